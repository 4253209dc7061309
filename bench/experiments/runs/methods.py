"""Every method of the tables by its name: its config, its set, and the ranges its settings are searched in.

Each gets the same search: the same number of trials, drawn alike (`tuning.py`).
"""

from __future__ import annotations

from uncertainty_sets.arrays import Array

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core import Adaptive, AspireEase
from fdro_core.contracts.algorithm import Algorithm
from fdro_core.baselines import AFL, DRFAProx, FedAvg, Individual, MixEven
from uncertainty_sets import CDNorm, UncertaintySet

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Range:
    """A number between low and high, even on a logarithmic scale."""

    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float:
        """Three digits are enough to write it down."""
        return float(f"{np.exp(rng.uniform(np.log(self.low), np.log(self.high))):.3g}")


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """Any of them."""
        return self.values[int(rng.integers(len(self.values)))]


@dataclass(frozen=True, eq=False)
class Setup:
    """What a method is told of a run.

    Attributes:
        prior: q.
        spread: the largest deviation from q of each worker's weight, where something is known.
        gradients: how many local gradients may be taken, all workers together.
        batch: samples a gradient; None: all.
        seed: of the run.
        curvatures: L_j at the start, by power iterations: the unit of steps and penalties in the settings.
    """

    prior: Array
    gradients: int
    batch: int | None
    seed: int
    curvatures: Array
    spread: Array | None = None

    @property
    def workers(self) -> int:
        """N."""
        return self.prior.size

    def limits(self) -> Array:
        """The spreads of the CD-norm set; by default so wide that a large budget is the whole simplex."""
        return np.full(self.workers, 1.0 - self.prior.min()) if self.spread is None else self.spread


@dataclass(frozen=True)
class Method:
    """A named method.

    Attributes:
        name: as the paper writes it.
        config: from a setup and settings to an algorithm.
        search: what is searched.
        default: where the search begins.
        make_set: from a setup and settings to an uncertainty set; None: the paper's.
        family: methods of one family, with the same ranges, are tried with the same settings; by default the
            name, so that each draws its own.
    """

    name: str
    config: Callable[[Setup, Settings], Algorithm]
    search: Mapping[str, Range | Choice]
    default: Settings = field(default_factory=dict)
    make_set: Callable[[Setup, Settings], UncertaintySet] | None = None
    family: str = ""

    def uncertainty_set(self, setup: Setup, settings: Settings) -> UncertaintySet:
        """The method's own set, or the paper's; methods without a budget are judged with the largest one."""
        if self.make_set is not None:
            return self.make_set(setup, settings)
        return CDNorm(setup.prior, setup.limits(), settings.get("budget", 2.0))


def _rounds(setup: Setup, settings: Settings) -> dict[str, Any]:
    """Settings that all synchronous methods share; the run ends when its gradients are used up."""
    steps = int(settings.get("local_steps", 1))
    return {
        "iterations": setup.gradients,
        "local_steps": steps,
        "step": settings["step"] / setup.curvatures.max(),
        "batch_size": setup.batch,
        "reported_loss": "full" if setup.batch is None else "batch",
        "seed": setup.seed,
    }


def _individual(setup: Setup, settings: Settings) -> Algorithm:
    return Individual(worker_index=int(settings["worker"]), **_rounds(setup, settings))


def _mix_even(setup: Setup, settings: Settings) -> Algorithm:
    return MixEven(**_rounds(setup, settings))


def _fedavg(setup: Setup, settings: Settings) -> Algorithm:
    return FedAvg(**_rounds(setup, settings))


def _afl(setup: Setup, settings: Settings) -> Algorithm:
    return AFL(weight_step=settings["weight_step"], **_rounds(setup, settings))


def _drfa(setup: Setup, settings: Settings) -> Algorithm:
    return DRFAProx(
        weight_step=settings["weight_step"],
        regularisation=settings["regularisation"],
        clients=setup.workers * int(settings["draws"]),
        **_rounds(setup, settings),
    )


def aspire(**fixed: Any) -> Callable[[Setup, Settings], Algorithm]:
    """ASPIRE with these settings fixed; S = "all" waits for everyone."""

    def make(setup: Setup, settings: Settings) -> Algorithm:
        options = dict(fixed)
        S = setup.workers if options.pop("S", 1) == "all" else 1
        steps = int(settings.get("local_steps", 1))
        # In the units of the driver's own rules, η_w = 1/(s_jL_j + κ₁) and κ₁ = ½·mean(q_jL_j).
        own = float(np.mean(setup.prior * setup.curvatures))
        return AspireEase(
            active_workers=S,
            iterations=setup.gradients,
            local_steps=steps,
            step_scale=settings["step"],
            penalty=0.5 * settings["penalty"] * own,
            batch_size=setup.batch,
            reported_loss="full" if setup.batch is None else "average",
            seed=setup.seed,
            **options,
        )

    return make


STEP = Range(0.1, 2.0)  # of 1/L
DRAWS = Choice((30,))  # m of DRFA in N: with few draws from few one-class workers its noise is all one sees
LOCAL = Choice((2, 5, 10))
WEIGHT_STEP = Range(1e-3, 0.1)
PENALTY = Range(0.1, 3.0)  # of the default κ₁
BUDGET = Choice((0.25, 0.5, 1.0, 2.0))  # Γ; 2 is the whole simplex, 1 moves half of the weight


def registry(workers: int = 3, *, known_prior: bool = False) -> dict[str, Method]:
    """All methods by name, with ranges for that number of workers.

    Where the prior says something, DRFA-Prox may hold on to it as hard as it likes.
    """
    regularisation = Range(0.1, 30.0) if known_prior else Range(1e-3, 1.0)
    step, first = STEP, {"step": 0.5}
    own: dict[str, Range | Choice] = {"step": step, "penalty": PENALTY, "budget": BUDGET}
    start = first | {"penalty": 1.0, "budget": 2.0}
    weights: dict[str, Range | Choice] = {"step": step, "weight_step": WEIGHT_STEP}
    methods = [
        Method(
            "max{Ind}",
            _individual,
            {"step": step, "worker": Choice(tuple(range(workers)))},
            first | {"worker": 0},
        ),
        Method("Mix_Even", _mix_even, {"step": step}, first),
        Method("FedAvg", _fedavg, {"step": step, "local_steps": LOCAL}, first | {"local_steps": 5}),
        Method("AFL", _afl, weights, first | {"weight_step": 0.01}),
        Method(
            "DRFA-Prox",
            _drfa,
            weights | {"local_steps": LOCAL, "regularisation": regularisation, "draws": DRAWS},
            first
            | {
                "weight_step": 0.01,
                "local_steps": 5,
                "regularisation": 3.0 if known_prior else 0.01,
                "draws": 30,
            },
        ),
        Method("ASPIRE-EASE", aspire(), own, start),
        Method("ASPIRE-EASE_per", aspire(), own | {"local_steps": LOCAL}, start | {"local_steps": 5}),
        Method("ASPIRE-EASE(-)", aspire(S="all"), own, start),
        Method("ASPIRE-CP", aspire(planes="cp"), own, start),
        Method("ASPIRE-ADP", aspire(adaptive=Adaptive(few=1, rule="median")), own, start),
    ]
    return {method.name: method for method in methods} | _own


_own: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Take in a method of one's own: it gets the same search and a row in the tables (see `plugins`)."""
    missing = set(method.search) ^ set(method.default)
    if missing:
        raise ValueError(f"{method.name}: search and default must name the same settings, not so {missing}")
    _own[method.name] = method
    return method


def own() -> list[str]:
    """The names of the methods taken in."""
    return list(_own)


def check(names: Iterable[str], known: Mapping[str, Method]) -> None:
    """End with a message where a name is not among the known ones."""
    for name in names:
        if name not in known:
            raise SystemExit(f"no method is called {name!r}; there are: {', '.join(known)}")
