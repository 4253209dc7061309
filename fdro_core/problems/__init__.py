"""Local problems, in the order of reading.

`linear` has least squares and Huber's loss, `softmax` softmax regression, `dense` networks of dense layers,
`torch` any module of PyTorch; `shared` what they check and draw, `kernels` their arithmetic, `samples` data.
"""

from fdro_core.problems.dense import DenseNetwork
from fdro_core.problems.linear import HuberRegression, LeastSquares
from fdro_core.problems.softmax import SoftmaxRegression

__all__ = ["DenseNetwork", "HuberRegression", "LeastSquares", "SoftmaxRegression"]
