"""Local problems: linear and softmax regression, dense networks, and torch modules (in `problems.torch`)."""

from fdro_core.problems.dense import DenseNetwork
from fdro_core.problems.linear import HuberRegression, LeastSquares
from fdro_core.problems.softmax import SoftmaxRegression

__all__ = ["DenseNetwork", "HuberRegression", "LeastSquares", "SoftmaxRegression"]
