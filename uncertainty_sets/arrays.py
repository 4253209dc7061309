"""The array types that all code shares.

The types with a shape are for kernels that Python calls (kernels/jit.py, `entry`): the text beside the type
is the numba type of which the kernel is compiled ahead of time. A type checker sees plain arrays.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""An array of float64."""

Vector = Annotated[Array, "float64[::1]"]
Matrix = Annotated[Array, "float64[:, ::1]"]
Cube = Annotated[Array, "float64[:, :, ::1]"]
Indices = Annotated[NDArray[np.int64], "int64[::1]"]
IndexMatrix = Annotated[NDArray[np.int64], "int64[:, ::1]"]
"""C-contiguous arrays of one, two and three dimensions, and of whole numbers."""

Single = NDArray[np.float32]
"""An array of float32."""

SingleVector = Annotated[Single, "float32[::1]"]
SingleMatrix = Annotated[Single, "float32[:, ::1]"]
