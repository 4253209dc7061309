"""ASPIRE-EASE: asynchronous federated distributionally robust optimisation."""

from fdro_core.aspire.adaptive import Adaptive
from fdro_core.aspire.algorithm import AspireEase
from fdro_core.contracts.problem import Problem, ProblemFrom
from fdro_core.engines.delays import Constant, Crash, Exponential, LogNormal, Straggler, Trace
from fdro_core.engines.ray_ import RayEngine
from fdro_core.engines.threads import ThreadEngine
from fdro_core.engines.virtual import VirtualEngine
from fdro_core.problems import LeastSquares, SoftmaxRegression
from fdro_core.result import Result
from fdro_core.solving import resume, solve

__all__ = [
    "Adaptive",
    "AspireEase",
    "Constant",
    "Crash",
    "Exponential",
    "LeastSquares",
    "LogNormal",
    "Problem",
    "ProblemFrom",
    "RayEngine",
    "Result",
    "SoftmaxRegression",
    "Straggler",
    "ThreadEngine",
    "Trace",
    "VirtualEngine",
    "resume",
    "solve",
]
