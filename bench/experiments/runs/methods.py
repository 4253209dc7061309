"""The methods of the tables by name: the algorithm, the set, and the values each setting is searched in.

Every file of `fdro_core/baselines` whose class carries `label`, `year` and `tunable` is a method; the
variants of `AspireEase`, the paper's algorithm ("ASPIRE-EASE", "ASPIRE-CP"), and of `AspireModels`, ours, are
listed here. All get the same search: the same number of trials, drawn alike (`tuning.py`). Every baseline
that can use it has a row with the preconditioner of `AspireModels` too ("AFL + P"). Steps are searched up to
10/L, those of FedBuff and FedAsync up to 100/L, and by hundreds of workers up to 1000/L.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from fdro_core import Adaptive, AspireEase, AspireModels, baselines
from fdro_core.protocol.algorithm import Algorithm
from fdro_core.protocol.tuning import (
    ARRIVALS_STEP,
    LOCAL_STEPS,
    PRECONDITIONED_STEP,
    STEP,
    Choice,
    Range,
    Space,
    Tunable,
    Variant,
)
from uncertainty_sets import CDNorm, UncertaintySet
from uncertainty_sets.arrays import Array

__all__ = ["Choice", "Method", "Range", "Setup", "ease", "models", "names", "register", "registry"]

Settings = Mapping[str, Any]
Tunables = Mapping[str, Tunable]

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
    tunable: Tunables,
    workers: int,
    known_prior: bool,
    **more: Any,
) -> Method:
    found = {key: each.search(workers, known_prior) for key, each in tunable.items()}
    search = {key: space for key, (_, space) in found.items()}
    return Method(name, config, search, {key: default for key, (default, _) in found.items()}, **more)


def _configured(cls: Any, tunable: Tunables, fixed: Settings, setup: Setup, settings: Settings) -> Algorithm:
    """Build a baseline's algorithm; the run ends when its gradients are used up."""
    shared = {
        "iterations": setup.gradients,
        "local_steps": 1,
        "batch_size": setup.batch,
        "reported_loss": "full" if setup.batch is None else "batch",
        "seed": setup.seed,
    }
    known = {each.name for each in fields(cls)}
    options = {name: value for name, value in shared.items() if name in known} | dict(fixed)
    for name, chosen in settings.items():
        each = tunable[name]
        curvature = float(setup.curvatures.max()) if each.unit == "1/L" else 1.0
        options[each.field or name] = each.value(chosen, setup.workers, curvature)
    algorithm: Algorithm = cls(**options)
    return algorithm


_NETWORK_SEARCH = {PRECONDITIONED_STEP: replace(PRECONDITIONED_STEP, space=Range(6e-4, 6e-2))}
"""What networks search instead: longer steps switch off units for good."""


MANY = 100  # workers
_LONG_SEARCH = dict.fromkeys((STEP, ARRIVALS_STEP), replace(STEP, space=Range(0.1, 1000.0)))
"""What more workers than that search instead: an epoch of theirs is long, and 1/max_j L_j short for the mean.

On MNIST by writer the best steps of several methods were far beyond 10/L.
"""


def _fitted(network: bool, workers: int, tunable: Tunables) -> Tunables:
    instead = _LONG_SEARCH if workers > MANY else {}
    if network:
        instead = instead | _NETWORK_SEARCH
    return {name: instead.get(each, each) for name, each in tunable.items()}


def variants(cls: Any) -> tuple[Variant, ...]:
    """Return the further rows of a baseline."""
    found: tuple[Variant, ...] = getattr(cls, "variants", ())
    return found


def _baselines(workers: int, known_prior: bool, network: bool) -> list[Method]:
    """Return a row for every baseline, and those of its variants."""
    found = []
    for cls in baseline_classes():
        rows: list[tuple[str, Tunables, Settings]] = [(cls.label, cls.tunable, {})]
        rows += [(f"{cls.label} {v.suffix}", {**cls.tunable, **v.tunable}, v.fixed) for v in variants(cls)]
        for name, given, fixed in rows:
            tunable = _fitted(network, workers, given)
            config = partial(_configured, cls, tunable, fixed)
            found.append(_method(name, config, tunable, workers, known_prior))
    return found


# -- the paper's algorithm and ours --------------------------------------------------------------------------


def ease(**fixed: Any) -> Callable[[Setup, Settings], Algorithm]:
    """Return what makes `AspireEase` with these fields fixed; active_workers = "all" waits for everyone.

    The settings "step" and "penalty" are multiples of the driver's own rules, which hold if they are absent.
    Other settings that are fields of the class are passed on; the rest ("budget") belong to the set.
    """

    def make(setup: Setup, settings: Settings) -> Algorithm:
        options = _shared(AspireEase, fixed, setup, settings)
        options["reported_loss"] = "full" if setup.batch is None else "average"
        options.pop("penalty", None)
        if "step" in settings:
            options["step_scale"] = settings["step"]
        if "penalty" in settings:  # the driver's rule is κ₁ = ½·mean(q_jL_j)
            usual = float(np.mean(setup.prior * setup.curvatures))
            options["penalty"] = 0.5 * settings["penalty"] * usual
        return AspireEase(**options)

    return make


def models(**fixed: Any) -> Callable[[Setup, Settings], Algorithm]:
    """Return what makes `AspireModels` with these fields fixed; active_workers = "all" waits for everyone.

    Settings that are fields of the class are passed on, `model_step` times √N; the rest ("budget") belong to
    the set.
    """

    def make(setup: Setup, settings: Settings) -> Algorithm:
        options = _shared(AspireModels, fixed, setup, settings)
        if "model_step" in settings:
            options["model_step"] = PRECONDITIONED_STEP.value(settings["model_step"], setup.workers, 1.0)
        if setup.batch is None:
            options["tolerance"] = 0.0  # gradients or the clock end the run, as everyone's
        return AspireModels(**options)

    return make


def _shared(cls: Any, fixed: Settings, setup: Setup, settings: Settings) -> dict[str, Any]:
    """What both take of a setup, and those of the settings that are fields of the class."""
    known = {each.name for each in fields(cls)}
    options = {"iterations": setup.gradients, "batch_size": setup.batch, "seed": setup.seed} | dict(fixed)
    options |= {name: value for name, value in settings.items() if name in known}
    if options.get("active_workers") == "all":
        options["active_workers"] = setup.workers
    return options


BUDGET = Tunable(  # Γ; 1 moves half the weight, and beyond the whole simplex there is nothing
    WHOLE_SIMPLEX, Choice((0.25, 0.5, 1.0, WHOLE_SIMPLEX), limits=(0.0, WHOLE_SIMPLEX))
)
EASE_TUNABLE = {
    "step": STEP,
    "penalty": Tunable(1.0, Range(0.1, 3.0)),  # of the default κ₁
    "budget": BUDGET,
}
MODELS_TUNABLE = {
    "model_step": PRECONDITIONED_STEP,
    "weight_step": Tunable(0.1, Range(0.01, 1.0)),
    "budget": BUDGET,
}

ADAPTIVE = Adaptive(few=1, rule="mean", threshold=2.0)
"""The threshold of the paper's Section VIII: twice the mean delay."""

PAPERS, OURS = "ASPIRE-EASE", "AspireModels"

VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "ASPIRE-EASE": ("AspireModels", {}),
    "ASPIRE-EASE(-)": ("AspireModels(-)", {"active_workers": "all"}),
    "ASPIRE-CP": ("AspireModels-CP", {"planes": "cp"}),
    "ASPIRE-ADP": ("AspireModels-ADP", {"adaptive": ADAPTIVE}),
    "ASPIRE-EASE_per": ("AspireModels_per", {}),
}
"""The paper's names of its variants, ours of the same with `AspireModels`, and what both fix."""

DRAWN_AS = {ours: papers for papers, (ours, _) in VARIANTS.items()} | {PAPERS: "ASPIRE-EASE (admm)"}
"""By which names the searches of the committed tables were drawn: those that the methods had then."""


def _aspire(workers: int, known_prior: bool, sampled: bool, network: bool) -> list[Method]:
    """Return the variants of both."""
    found = []
    own = MODELS_TUNABLE if sampled else {"budget": BUDGET}
    for papers, (ours, fixed) in VARIANTS.items():
        for name, make, tunable in ((papers, ease, EASE_TUNABLE), (ours, models, own)):
            searched = _fitted(network, workers, tunable)
            if name.endswith("_per"):
                searched = {**searched, "local_steps": LOCAL_STEPS}
            found.append(
                _method(
                    name, make(**fixed), searched, workers, known_prior,
                    watches_delays="adaptive" in fixed, family=DRAWN_AS.get(name, name),
                )
            )  # fmt: skip
    return found


# -- all of them --------------------------------------------------------------------------------------------


def registry(
    workers: int = 3,
    *,
    known_prior: bool = False,
    sampled: bool = True,
    network: bool = False,
) -> dict[str, Method]:
    """Return all methods by name, with the search for that number of workers.

    Args:
        workers: N; with more than a hundred, longer steps are searched.
        known_prior: whether the prior carries information; then a method may search other values (DRFA-Prox a
            stronger regularisation).
        sampled: whether gradients are of mini-batches; `AspireModels` has no steps with full ones.
        network: whether the model is one; preconditioned steps are then searched up to 0.06, else up to 0.6.
    """
    found = [
        *_baselines(workers, known_prior, network),
        *_aspire(workers, known_prior, sampled, network),
    ]
    return {method.name: method for method in found} | _registered


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


def names(*variants_of_ours: str, without: Collection[str] = (), preconditioned: bool = False) -> list[str]:
    """Return a table's rows: every baseline but `without`, variants of ours, the paper's, registered ones.

    With `preconditioned`, the further rows of each baseline follow it.

    >>> names("AspireModels", without={"max{Ind}"})[:3]
    ['Mix_Even', 'FedAvg', 'AFL']
    >>> names(without={"max{Ind}"}, preconditioned=True)[:3]
    ['Mix_Even', 'Mix_Even + P', 'FedAvg']
    """
    found = []
    for cls in baseline_classes():
        if cls.label not in without:
            found.append(cls.label)
            found += [f"{cls.label} {each.suffix}" for each in variants(cls) if preconditioned]
    papers = [PAPERS] if variants_of_ours else []
    return [*found, *variants_of_ours, *papers, *_registered]


def check(chosen: Iterable[str], known: Mapping[str, Method]) -> None:
    """Exit with a message if a name is unknown."""
    for name in chosen:
        if name not in known:
            raise SystemExit(f"no method is called {name!r}; there are: {', '.join(known)}")
