"""What can be wrong with a data set's files, one branch of the tree in `uncertainty_sets.errors`.

::

    FdroError
    └── DataError (RuntimeError)
        ├── DataMissing (FileNotFoundError)  not in FDRO_DATA, and no download is possible
        └── DataCorrupt              a file's checksum is not the known one

An option or a content that cannot be used is `fdro_core.errors.InvalidData`.
"""

from __future__ import annotations

from uncertainty_sets.errors import FdroError

__all__ = ["DataCorrupt", "DataError", "DataMissing"]


class DataError(FdroError, RuntimeError):
    """The files of a data set cannot be used."""


class DataMissing(DataError, FileNotFoundError):
    """The files were not found; the message says where to get them."""


class DataCorrupt(DataError):
    """A file's content differs from the one that the loader knows."""
