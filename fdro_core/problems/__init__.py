"""Local problems: softmax and linear regression, and any torch module (`fdro_core.problems.torch`)."""

from fdro_core.problems.huber import HuberRegression
from fdro_core.problems.least_squares import LeastSquares
from fdro_core.problems.softmax import SoftmaxRegression

__all__ = ["HuberRegression", "LeastSquares", "SoftmaxRegression"]
