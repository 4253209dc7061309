"""Local problems: softmax regression, least squares, and any torch module (`fdro_core.problems.torch`)."""

from fdro_core.problems.least_squares import LeastSquares
from fdro_core.problems.softmax import SoftmaxRegression

__all__ = ["LeastSquares", "SoftmaxRegression"]
