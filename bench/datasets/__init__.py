"""The data of the paper's experiments as federations: `load(name)`, `names()`.

One file per data set, found by itself; docs/datasets.md says what each is and where its files come from.
Beside them: `registry` finds them, `federation` is what they return and cuts it, `files` gets what they read,
`windows` cuts signals of sensors, `backdoor` poisons.
"""

from bench.datasets.federation import Client, Federation
from bench.datasets.files import DataCorrupt, DataError, DataMissing
from bench.datasets.registry import dataset, load, names
from fdro_core.errors import InvalidData

__all__ = [
    "Client",
    "DataCorrupt",
    "DataError",
    "DataMissing",
    "Federation",
    "InvalidData",
    "dataset",
    "load",
    "names",
]
