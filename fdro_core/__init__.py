"""ASPIRE-EASE: asynchronous federated distributionally robust optimisation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fdro_core.aspire.adaptive import Adaptive
    from fdro_core.aspire.algorithm import AspireEase
    from fdro_core.contracts.problem import Problem, ProblemFrom
    from fdro_core.engines.delays import Constant, Crash, Exponential, LogNormal, Straggler, Trace
    from fdro_core.engines.flower_ import FlowerEngine, NamedProblem
    from fdro_core.engines.ray_ import RayEngine
    from fdro_core.engines.threads import ThreadEngine
    from fdro_core.engines.virtual import VirtualEngine
    from fdro_core.privacy.settings import Privacy
    from fdro_core.problems import DenseNetwork, HuberRegression, LeastSquares, SoftmaxRegression
    from fdro_core.result import Result
    from fdro_core.solving import resume, solve

__all__ = [
    "Adaptive",
    "AspireEase",
    "Constant",
    "Crash",
    "DenseNetwork",
    "Exponential",
    "FlowerEngine",
    "HuberRegression",
    "LeastSquares",
    "LogNormal",
    "NamedProblem",
    "Privacy",
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

_MODULES = {
    "Adaptive": "fdro_core.aspire.adaptive",
    "AspireEase": "fdro_core.aspire.algorithm",
    "Constant": "fdro_core.engines.delays",
    "Crash": "fdro_core.engines.delays",
    "DenseNetwork": "fdro_core.problems",
    "Exponential": "fdro_core.engines.delays",
    "FlowerEngine": "fdro_core.engines.flower_",
    "HuberRegression": "fdro_core.problems",
    "LeastSquares": "fdro_core.problems",
    "LogNormal": "fdro_core.engines.delays",
    "NamedProblem": "fdro_core.engines.flower_",
    "Privacy": "fdro_core.privacy.settings",
    "Problem": "fdro_core.contracts.problem",
    "ProblemFrom": "fdro_core.contracts.problem",
    "RayEngine": "fdro_core.engines.ray_",
    "Result": "fdro_core.result",
    "SoftmaxRegression": "fdro_core.problems",
    "Straggler": "fdro_core.engines.delays",
    "ThreadEngine": "fdro_core.engines.threads",
    "Trace": "fdro_core.engines.delays",
    "VirtualEngine": "fdro_core.engines.virtual",
    "resume": "fdro_core.solving",
    "solve": "fdro_core.solving",
}
"""Where each name is defined: imported when it is first used, so that `fdro --help` does not wait for it."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
