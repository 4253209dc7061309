"""What can be wrong with a data set, one branch of the tree in `uncertainty_sets.errors`.

::

    FdroError
    ├── InvalidInput (ValueError)
    │   └── InvalidData              an option or a file's content cannot be used
    └── DataError (RuntimeError)
        ├── DataMissing (FileNotFoundError)  not in FDRO_DATA, and not to be had by download
        └── DataCorrupt              a file's checksum is not the known one
"""

from __future__ import annotations

from uncertainty_sets.errors import FdroError, InvalidInput

__all__ = ["DataCorrupt", "DataError", "DataMissing", "InvalidData"]


class InvalidData(InvalidInput):
    """An option of a loader, or what a file holds, cannot be used."""


class DataError(FdroError, RuntimeError):
    """A data set cannot be had."""


class DataMissing(DataError, FileNotFoundError):
    """The files are nowhere; the message says where to get them."""


class DataCorrupt(DataError):
    """A file is not the one that the loader knows."""
