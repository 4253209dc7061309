"""ASPIRE-EASE: asynchronous federated distributionally robust optimisation."""

from fdro_core.adaptive import Adaptive
from fdro_core.config import AspireEase
from fdro_core.driver import resume, solve
from fdro_core.engines.delays import Constant, Crash, Exponential, LogNormal, Straggler, Trace
from fdro_core.engines.ray_ import RayEngine
from fdro_core.engines.threads import ThreadEngine
from fdro_core.engines.virtual import VirtualEngine
from fdro_core.problem import Problem, ProblemFrom
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
