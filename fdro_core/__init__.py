"""ASPIRE-EASE: asynchronous federated distributionally robust optimisation."""

from fdro_core.adaptive import Adaptive
from fdro_core.config import AspireEase
from fdro_core.driver import resume, solve
from fdro_core.engines.delays import Constant, Crash, Exponential, LogNormal, Straggler, Trace
from fdro_core.engines.virtual import VirtualEngine
from fdro_core.problem import Problem
from fdro_core.problems import LeastSquares, SoftmaxRegression
from fdro_core.result import Result

__all__ = [
    "Adaptive",
    "AspireEase",
    "Constant",
    "Crash",
    "Exponential",
    "LeastSquares",
    "LogNormal",
    "Problem",
    "Result",
    "SoftmaxRegression",
    "Straggler",
    "Trace",
    "VirtualEngine",
    "resume",
    "solve",
]
