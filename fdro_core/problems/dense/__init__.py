"""Networks of dense layers: the problem, the arrays that it computes in, and its compiled passes."""

from fdro_core.problems.dense.network import DenseNetwork

__all__ = ["DenseNetwork"]
