"""The methods of the tables by name: the algorithm, the set, and the values each setting is searched in.

Every file of `fdro_core/baselines` whose class carries `label`, `year` and `tunable` is a method; ASPIRE's
variants are listed here. All get the same search: the same number of trials, drawn alike (`tuning.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any

import numpy as np

from fdro_core import Adaptive, AspireEase, baselines
from fdro_core.contracts.algorithm import Algorithm
from fdro_core.contracts.tuning import LOCAL_STEPS, STEP, Choice, Range, Space, Tunable
from uncertainty_sets import CDNorm, UncertaintySet
from uncertainty_sets.arrays import Array

__all__ = ["Choice", "Method", "Range", "Setup", "aspire", "names", "register", "registry"]

Settings = Mapping[str, Any]

WHOLE_SIMPLEX = 2.0  # Γ: Σ|p - q| over the default spreads is at most 2, so every distribution is in the set


@dataclass(frozen=True, eq=False)
class Setup:
    """What a method knows about a run.

    Attributes:
        prior: q.
        gradients: how many local gradients may be taken, all workers together.
        batch: samples per gradient; None: all.
        seed: of the run.
        measure: measures L_j of every worker at the start, by power iterations.
        spread: the largest deviation of each weight from q; None: wide enough for the whole simplex.
        budget: Γ for methods whose settings have none.
    """

    prior: Array
    gradients: int
    batch: int | None
    seed: int
    measure: Callable[[], Array]
    spread: Array | None = None
    budget: float = WHOLE_SIMPLEX

    @property
    def workers(self) -> int:
        """N."""
        return self.prior.size

    @cached_property
    def curvatures(self) -> Array:
        """L_j at the start: the unit of steps and penalties in the settings. Measured at first use."""
        return self.measure()

    def limits(self) -> Array:
        """The spreads of the CD-norm set; by default so wide that a large budget is the whole simplex."""
        return np.full(self.workers, 1.0 - self.prior.min()) if self.spread is None else self.spread


@dataclass(frozen=True)
class Method:
    """A named method.

    Attributes:
        name: as the paper writes it.
        config: from a setup and settings to an algorithm.
        search: the settings that are searched, with their values.
        default: the first trial's settings.
        make_set: from a setup and settings to an uncertainty set; None: the paper's CD-norm set.
        family: methods of one family, with the same search, are tried with the same settings; by default the
            name, so that each method draws its own.
        watches_delays: whether curves over virtual time record the workers' delays.
    """

    name: str
    config: Callable[[Setup, Settings], Algorithm]
    search: Mapping[str, Space]
    default: Settings = field(default_factory=dict)
    make_set: Callable[[Setup, Settings], UncertaintySet] | None = None
    family: str = ""
    watches_delays: bool = False

    def uncertainty_set(self, setup: Setup, settings: Settings) -> UncertaintySet:
        """Return the method's own set, or the paper's with the budget of the settings or of the setup."""
        if self.make_set is not None:
            return self.make_set(setup, settings)
        return CDNorm(setup.prior, setup.limits(), settings.get("budget", setup.budget))


# -- baselines: found ---------------------------------------------------------------------------------------


def baseline_classes() -> list[Any]:
    """Return every class of `fdro_core/baselines` that carries a `label`, oldest publication first."""
    every = (getattr(baselines, name) for name in baselines.__all__)
    found: list[Any] = [cls for cls in every if vars(cls).get("label")]
    labels = [cls.label for cls in found]
    for cls in found:
        if labels.count(cls.label) > 1:
            raise ValueError(f"two baselines have the label {cls.label!r}: each needs its own")
    return sorted(found, key=lambda cls: (cls.year, cls.label.casefold()))


def _method(
    name: str,
    config: Callable[[Setup, Settings], Algorithm],
    tunable: Mapping[str, Tunable],
    workers: int,
    known_prior: bool,
    **more: Any,
) -> Method:
    found = {key: each.search(workers, known_prior) for key, each in tunable.items()}
    search = {key: space for key, (_, space) in found.items()}
    return Method(name, config, search, {key: default for key, (default, _) in found.items()}, **more)


def _configured(cls: Any, setup: Setup, settings: Settings) -> Algorithm:
    """Build a baseline's algorithm; the run ends when its gradients are used up."""
    shared = {
        "iterations": setup.gradients,
        "local_steps": 1,
        "batch_size": setup.batch,
        "reported_loss": "full" if setup.batch is None else "batch",
        "seed": setup.seed,
    }
    known = {each.name for each in fields(cls)}
    options = {name: value for name, value in shared.items() if name in known}
    for name, chosen in settings.items():
        each = cls.tunable[name]
        curvature = float(setup.curvatures.max()) if each.unit == "1/L" else 1.0
        options[each.field or name] = each.value(chosen, setup.workers, curvature)
    algorithm: Algorithm = cls(**options)
    return algorithm


# -- ASPIRE's variants --------------------------------------------------------------------------------------


def aspire(**fixed: Any) -> Callable[[Setup, Settings], Algorithm]:
    """Return what makes ASPIRE with these fields fixed; active_workers = "all" waits for every worker.

    The settings "step" and "penalty" are multiples of the driver's own rules, which hold if they are absent.
    Other settings that are fields of `AspireEase` are passed on; the rest ("budget") belong to the set.
    """

    def make(setup: Setup, settings: Settings) -> Algorithm:
        options: dict[str, Any] = {
            "consensus": "admm",
            "iterations": setup.gradients,
            "batch_size": setup.batch,
            "reported_loss": "full" if setup.batch is None else "average",
            "seed": setup.seed,
        }
        options |= fixed | {name: value for name, value in settings.items() if name in AS_THEY_ARE}
        if options.get("active_workers") == "all":
            options["active_workers"] = setup.workers
        if "step" in settings:
            options["step_scale"] = settings["step"]
        if "penalty" in settings:  # the driver's rule is κ₁ = ½·mean(q_jL_j)
            usual = float(np.mean(setup.prior * setup.curvatures))
            options["penalty"] = 0.5 * settings["penalty"] * usual
        return AspireEase(**options)

    return make


AS_THEY_ARE = {each.name for each in fields(AspireEase)} - {"penalty"}
"""The settings of ASPIRE that are fields of its class, in the same unit."""

ASPIRE_TUNABLE = {
    "step": STEP,
    "penalty": Tunable(1.0, Range(0.1, 3.0)),  # of the default κ₁
    "budget": Tunable(WHOLE_SIMPLEX, Choice((0.25, 0.5, 1.0, WHOLE_SIMPLEX))),  # Γ; 1 moves half the weight
}

ADAPTIVE = Adaptive(few=1, rule="mean", threshold=2.0)
"""The threshold of the paper's Section VIII: twice the mean delay."""


def _variants(workers: int, known_prior: bool) -> list[Method]:
    """Return ASPIRE's variants."""
    local = ASPIRE_TUNABLE | {"local_steps": LOCAL_STEPS}
    given: list[tuple[str, Callable[[Setup, Settings], Algorithm], Mapping[str, Tunable], dict[str, Any]]] = [
        ("ASPIRE-EASE", aspire(), ASPIRE_TUNABLE, {}),
        ("ASPIRE-EASE_per", aspire(), local, {}),
        ("ASPIRE-EASE(-)", aspire(active_workers="all"), ASPIRE_TUNABLE, {}),
        ("ASPIRE-CP", aspire(planes="cp"), ASPIRE_TUNABLE, {}),
        ("ASPIRE-ADP", aspire(adaptive=ADAPTIVE), ASPIRE_TUNABLE, {"watches_delays": True}),
    ]
    return [
        _method(name, config, tunable, workers, known_prior, **more) for name, config, tunable, more in given
    ]


# -- all of them --------------------------------------------------------------------------------------------


def registry(workers: int = 3, *, known_prior: bool = False) -> dict[str, Method]:
    """Return all methods by name, with the search for that number of workers.

    If the prior carries information, a method may search other values (DRFA-Prox a stronger regularisation).
    """
    found = [
        _method(cls.label, partial(_configured, cls), cls.tunable, workers, known_prior)
        for cls in baseline_classes()
    ]
    return {method.name: method for method in (*found, *_variants(workers, known_prior))} | _registered


_registered: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Add a method: it gets the same search and a row in the tables (see `plugins`)."""
    missing = set(method.search) ^ set(method.default)
    if missing:
        raise ValueError(
            f"{method.name}: search and default must name the same settings; only one of them has "
            f"{', '.join(sorted(missing))}"
        )
    _registered[method.name] = method
    return method


def names(*variants: str, without: Collection[str] = ()) -> list[str]:
    """Return the rows of a table: every baseline but `without`, ASPIRE's variants given, registered methods.

    >>> names("ASPIRE-EASE", without={"max{Ind}"})[:4]
    ['Mix_Even', 'FedAvg', 'AFL', 'DRFA-Prox']
    """
    found = [cls.label for cls in baseline_classes() if cls.label not in without]
    return [*found, *variants, *_registered]


def check(chosen: Iterable[str], known: Mapping[str, Method]) -> None:
    """Exit with a message if a name is unknown."""
    for name in chosen:
        if name not in known:
            raise SystemExit(f"no method is called {name!r}; there are: {', '.join(known)}")
