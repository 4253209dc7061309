"""Asynchronous federated distributionally robust optimisation: the paper's ASPIRE-EASE, and our own form."""

from typing import TYPE_CHECKING, Any

from uncertainty_sets.packages import lazily

if TYPE_CHECKING:
    from fdro_core.aspire.admm.algorithm import AspireEase
    from fdro_core.aspire.models.algorithm import AspireModels
    from fdro_core.engines.delays import Constant, Crash, Exponential, LogNormal, Straggler, Trace
    from fdro_core.engines.flower_ import FlowerEngine, NamedProblem
    from fdro_core.engines.ray_ import RayEngine
    from fdro_core.engines.threads import ThreadEngine
    from fdro_core.engines.virtual import VirtualEngine
    from fdro_core.master.settings import Adaptive
    from fdro_core.privacy.policy import PrivacyPolicy
    from fdro_core.privacy.settings import Privacy
    from fdro_core.problems import DenseNetwork, HuberRegression, LeastSquares, SoftmaxRegression
    from fdro_core.protocol.problem import Problem, ProblemFrom
    from fdro_core.result import Result
    from fdro_core.solving import resume, solve

__all__ = [
    "Adaptive",
    "AspireEase",
    "AspireModels",
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
    "PrivacyPolicy",
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

_find = lazily(
    __name__,
    {
        "master.settings": "Adaptive",
        "aspire.admm.algorithm": "AspireEase",
        "aspire.models.algorithm": "AspireModels",
        "protocol.problem": "Problem ProblemFrom",
        "engines.delays": "Constant Crash Exponential LogNormal Straggler Trace",
        "engines.flower_": "FlowerEngine NamedProblem",
        "engines.ray_": "RayEngine",
        "engines.threads": "ThreadEngine",
        "engines.virtual": "VirtualEngine",
        "privacy.policy": "PrivacyPolicy",
        "privacy.settings": "Privacy",
        "problems": "DenseNetwork HuberRegression LeastSquares SoftmaxRegression",
        "result": "Result",
        "solving": "resume solve",
    },
)


def __getattr__(name: str) -> Any:
    return _find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
