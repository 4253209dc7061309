"""Deprecated name of `fdro_core.problems.torch`, which has `TorchProblem`."""

from fdro_core.moved import forward

__getattr__ = forward(__name__, "fdro_core.problems.torch")
