"""The data of the paper's experiments as federations: `load(name)`, `names()`.

One file per data set, found by itself; docs/datasets.md says what each is and where its files come from.
"""

from bench.datasets.errors import DataCorrupt, DataError, DataMissing
from bench.datasets.federation import Client, Federation
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
