"""How long the estimators' fits take: passes and processor seconds by loss, set and size.

    python -m bench fits --before ../an-older-checkout

Every side runs in a process of its own, the cases in turn, so that a busy machine slows all of them alike:
this tree; with --before another checkout of fdro; and scikit-learn's LogisticRegression for the mean loss
with the same ridge, the better of its solvers lbfgs and newton-cholesky. Times are medians of processor
seconds of `fit` on one thread, at a relative gap of 1e-6.

Features are normal; those of condition 30 are correlated so. Every group has effects of its own. "by sample"
has no groups, so that the set has an entry for each sample.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.display.tables import Table, console
from bench.measuring import machine

ROOT = Path(__file__).resolve().parents[2]
GROUPS = 8
HERE, BEFORE, PEER = "this tree", "before", "scikit-learn"


@dataclass(frozen=True)
class Case:
    """One fit; groups = 0 is a group for each sample."""

    loss: str
    classes: int
    set: str
    samples: int
    features: int
    groups: int
    condition: float

    @property
    def data(self) -> tuple[Any, ...]:
        """What two cases with the same samples share."""
        kind = self.classes if self.loss == "logistic" else 0
        return kind, self.samples, self.features, self.groups, self.condition

    def shown(self) -> list[str]:
        """The first cells of its row."""
        size = f"{self.samples:,} × {self.features}" + (", cond. 30" if self.condition > 1 else "")
        loss = self.loss if self.classes == 2 else f"{self.classes} classes"
        return [f"{loss}, {'by sample' if not self.groups else 'groups'}", self.set, size]


CHILD = """
import json, sys, time, warnings

import numpy as np

warnings.simplefilter("ignore")
side, kept = sys.argv[1], {}


def samples(case):
    n, d, groups = case["samples"], case["features"], case["groups"]
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    mix = (basis * np.geomspace(1.0, 1.0 / case["condition"], d)) @ basis.T
    X = rng.normal(size=(n, d)) @ (mix * np.sqrt(d / (mix**2).sum()))
    group = rng.integers(0, groups, n) if groups else None
    common = 0.3 * rng.normal(size=d)
    score = X @ common
    if groups:
        own = 0.3 * rng.normal(size=(groups, d))
        for g in range(groups):
            score[group == g] += X[group == g] @ own[g]
    if case["loss"] != "logistic":
        y = score + rng.standard_t(3, size=n)
    elif case["classes"] == 2:
        y = (score + rng.logistic(size=n) > 0).astype(int)
    else:
        more = 0.5 * X @ rng.normal(size=(d, case["classes"]))
        y = (more + rng.gumbel(size=more.shape)).argmax(axis=1)
    return X, y, group


def model(case):
    if side == "scikit-learn":
        from sklearn.linear_model import LogisticRegression

        C = (2.0 if case["classes"] == 2 else 1.0) / (case["samples"] * 1e-3)
        return LogisticRegression(C=C, tol=1e-5, max_iter=1000, solver=case["solver"])
    from fdro_core.sklearn import RobustClassifier, RobustRegressor
    from uncertainty_sets import Box

    count = case["groups"] or case["samples"]
    name, given = case["set"], {}
    if name == "simplex":
        name = Box(np.zeros(count), np.ones(count))
    elif name == "kl" and not case["groups"]:
        given = {"radius": 0.1}
    common = {"tolerance": 1e-6, "l2": 1e-3, **given}
    if case["loss"] == "logistic":
        return RobustClassifier(name, **common)
    return RobustRegressor(name, loss=case["loss"], **common)


for line in sys.stdin:
    case = json.loads(line)
    data = json.dumps([case[k] for k in ("samples", "features", "groups", "condition", "classes")])
    data += str(case["loss"] == "logistic")
    if data not in kept:
        kept = {data: samples(case)}
    X, y, group = kept[data]
    given = {} if side == "scikit-learn" else {"groups": group}
    fit = model(case)
    begin = time.process_time()
    fit.fit(X, y, **given)
    seconds = time.process_time() - begin
    found = {"seconds": seconds, "passes": int(np.max(fit.n_iter_))}
    if side != "scikit-learn":
        found |= {"gap": fit.gap_, "objective": fit.objective_}
    print(json.dumps(found), flush=True)
"""


class Side:
    """A process that fits what it is sent, on one thread."""

    def __init__(self, name: str, folder: Path, waiting: ExitStack) -> None:
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self.process = waiting.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", CHILD, name],
                env={**os.environ, **one, "PYTHONPATH": str(folder)},
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )

    def fit(self, case: Case, **more: Any) -> dict[str, Any]:
        """Fit once."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({**asdict(case), **more}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process for {case} ended; its error stands above")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Let the process end."""
        assert self.process.stdin is not None
        self.process.stdin.close()


def measure(case: Case, sides: dict[str, Side], repeats: int) -> dict[str, dict[str, Any]]:
    """Medians of the sides in turn, after a fit of each that does not count unless it takes seconds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for number in range(repeats + 1):
        for name, side in sides.items():
            if name != PEER:
                found.setdefault(name, []).append(side.fit(case))
            elif case.loss == "logistic":
                for solver in ("lbfgs", "newton-cholesky"):
                    found.setdefault(f"{PEER}, {solver}", []).append(side.fit(case, solver=solver))
        if number == 0:
            if max(run["seconds"] for runs in found.values() for run in runs) < 5.0:
                found = {}
        elif min(len(runs) for runs in found.values()) >= repeats:
            break
    medians = {
        name: {**runs[-1], "seconds": median(run["seconds"] for run in runs)} for name, runs in found.items()
    }
    peers = [medians.pop(name) for name in list(medians) if name.startswith(PEER)]
    if peers:
        medians[PEER] = min(peers, key=lambda run: run["seconds"])
    return medians


def row(case: Case, found: dict[str, dict[str, Any]]) -> list[str]:
    """A case's row of the table."""
    ours, old, peer = found[HERE], found.get(BEFORE), found.get(PEER)
    relative = ours["gap"] / max(1.0, ours["objective"])
    cells = [str(ours["passes"]), f"{relative:.0e}", f"{ours['seconds']:.3f}"]
    if old is None:
        cells += ["–"] * 3
    else:
        cells += [str(old["passes"]), f"{old['seconds']:.3f}", f"{old['seconds'] / ours['seconds']:.2f}"]
    cells += (
        ["–"] * 2 if peer is None else [f"{peer['seconds']:.3f}", f"{ours['seconds'] / peer['seconds']:.2f}"]
    )
    return [*case.shown(), *cells]


HEADINGS = (
    "loss", "set", "size", "passes", "relative gap", "seconds", "passes before", "seconds before",
    "times faster", "scikit-learn", "times its time",
)  # fmt: skip


def cases(given: argparse.Namespace) -> list[Case]:
    """All combinations that were asked for."""
    sizes = [tuple(map(int, size.split("x"))) for size in given.sizes]
    found = []
    for samples, features in sizes:
        for condition in given.conditions:
            for loss in given.losses:
                name, _, classes = loss.partition("-")
                for kind in given.kinds:
                    for each in given.sets:
                        groups = GROUPS if kind == "groups" else 0
                        found.append(
                            Case(name, int(classes or 2), each, samples, features, groups, condition)
                        )
    return found


def main(arguments: list[str]) -> int:
    """Measure, and print a row for each case as it is done, then the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench fits", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="another checkout to compare with")
    parser.add_argument("--sizes", nargs="+", default=["20000x50", "200000x50"], metavar="NxD")
    parser.add_argument("--losses", nargs="+", default=["logistic"], help="logistic, logistic-5, squared, …")
    parser.add_argument("--sets", nargs="+", default=["kl", "simplex", "cvar"])
    parser.add_argument("--kinds", nargs="+", default=["groups"], choices=["groups", "samples"])
    parser.add_argument("--conditions", nargs="+", type=float, default=[1.0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a thousand samples, once")
    given = parser.parse_args(arguments)
    if given.quick:
        given.sizes, given.repeats = ["1000x5"], 1
    screen = console()
    rows = []
    with ExitStack() as waiting:
        folders = {HERE: ROOT, PEER: ROOT}
        if given.before is not None:
            folders[BEFORE] = given.before.resolve()
        sides = {name: Side(name, folder, waiting) for name, folder in folders.items()}
        for side in sides.values():
            waiting.callback(side.close)
        for case in cases(given):
            rows.append(row(case, measure(case, sides, given.repeats)))
            print("; ".join(rows[-1]), file=sys.stderr, flush=True)
    screen.print(Table("Fits at a relative gap of 1e-6, processor seconds", HEADINGS, rows).rich())
    screen.print(machine.line(machine.describe()), markup=False)
    return 0
