"""Algorithm 1, written from the paper alone in sixty lines, against `AspireEase` at every iteration.

The paper's -w_j in Eq. (12) is read as -φ_j and its doubled ∇ in Eq. (16) as one (docs/differences.md).
"""

from __future__ import annotations

import numpy as np
import pytest

from fdro_core import AspireEase, LeastSquares, LogNormal, VirtualEngine, solve
from fdro_core.aspire.theory import Theorem1
from uncertainty_sets import Box

N, P = 4, 3
LOW, HIGH = np.full(N, 0.05), np.array([0.5, 0.6, 0.4, 0.7])
SET = Box(LOW, HIGH)


class Valley:
    """Σ_i log(1 + (x_iᵀw - y_i)²) + ¼: neither convex nor concave, and positive."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.X, self.y, self.dimension = rng.normal(size=(5, P)), 2.0 * rng.normal(size=5), P

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        gap = self.X @ w - self.y
        return float(np.log1p(gap**2).sum() + 0.25), self.X.T @ (2.0 * gap / (1.0 + gap**2))


def largest(f):
    """The p of the box at which pᵀf is largest: as much as fits, from the largest loss down."""
    p, left = LOW.copy(), 1.0 - LOW.sum()
    for j in np.argsort(-f):
        p[j] += min(HIGH[j] - LOW[j], left)
        left = max(0.0, left - (HIGH[j] - LOW[j]))
    return p


def algorithm_1(problems, active_sets, start, s):
    """The iterates (z, h, λ, φ, w) for the active workers given; `s` has the paper's steps and bounds."""
    z = start.copy()
    w, phi = np.tile(z, (N, 1)), np.zeros((N, P))
    f = np.array([each.loss_and_gradient(z)[0] for each in problems])
    A, lam, before = [SET.reference()], np.array([1.0]), np.array([1.0])
    h, t = float(A[0] @ f), 0
    seen = [(z.copy(), lam.copy(), list(A), phi[j].copy(), s["eta_w"](0, 1)) for j in range(N)]
    while True:
        yield t, z, h, lam, phi, w
        if t == len(active_sets):
            return
        Q, size = active_sets[t], len(A)
        c1 = max(1 / (s["rho_1"] * (t + 1) ** (1 / 6)), s["floor_1"]) if s["setting_2"] else 0.0
        c2 = max(1 / (s["rho_2"] * (t + 1) ** (1 / 6)), s["floor_2"]) if s["setting_2"] else 0.0
        for j in Q:  # Eq. (11), with what worker j saw when it was last active
            z_j, lam_j, A_j, phi_j, step = seen[j]
            for _ in range(s["E"]):
                slope = sum(lam_l * a[j] for lam_l, a in zip(lam_j, A_j, strict=True))
                slope = slope * problems[j].loss_and_gradient(w[j])[1] - phi_j + s["kappa"] * (w[j] - z_j)
                w[j] = np.clip(w[j] - step * slope, -s["alpha_1"], s["alpha_1"])
            f[j] = problems[j].loss_and_gradient(w[j])[0]
        slope = phi.sum(axis=0) + s["kappa"] * (N * z - w.sum(axis=0))
        z = np.clip(z - s["eta_z"](t, size) * slope, -s["alpha_1"], s["alpha_1"])  # Eq. (13)
        h = min(max(h - s["eta_h"](t, size) * (1.0 - lam.sum()), 0.0), s["alpha_2"])  # Eq. (14)
        before = lam
        ascent = np.array([a @ f for a in A]) - h - c1 * lam
        lam = np.clip(lam + s["rho_1"] * ascent, 0.0, s["alpha_3"])  # Eq. (15)
        for j in Q:  # Eq. (16)
            ascent = z - w[j] - c2 * phi[j]
            phi[j] = np.clip(phi[j] + s["rho_2"] * ascent, -s["alpha_4"], s["alpha_4"])
        if (t + 1) % s["k"] == 0:
            p = largest(f)  # Eq. (18)-(21); what differs by rounding alone is no violation
            violated = p @ f > max(a @ f for a in A) + 1e-10 * np.ptp(f)
            kept = [i for i in range(size) if s["cp"] or lam[i] > 0.0 or before[i] > 0.0]
            if not kept and not violated:
                kept = [0]
            A, lam = [A[i] for i in kept], lam[kept]
            if violated:
                A, lam = [*A, p], np.append(lam, 0.0)
        t += 1
        for j in Q:
            seen[j] = (z.copy(), lam.copy(), list(A), phi[j].copy(), s["eta_w"](t, len(A)))


USUAL = {
    "kappa": 0.8, "eta_w": 0.05, "eta_z": 0.06, "eta_h": 0.5, "rho_1": 0.05, "rho_2": 0.3, "floor_1": 0.4,
    "floor_2": 0.2, "alpha_1": 1.5, "alpha_2": 100.0, "alpha_3": 2.0, "alpha_4": 3.0, "k": 4, "E": 1,
    "setting_2": True, "cp": False, "S": 1, "tau": 40,
}  # fmt: skip
THEOREM = Theorem1(L=0.4, rho1=0.02, rho2=0.3, N=N, floor1=20.0, floor2=1.0, horizon=150)
FORMS = {
    "S = 1": {},
    "S = 2": {"S": 2},
    "S = N": {"S": N},
    "CP": {"cp": True},
    "τ = 8": {"tau": 8},
    "E = 3": {"E": 3},
    "S = 2, CP, E = 3": {"S": 2, "cp": True, "E": 3},
    "no regularisation": {"setting_2": False, "S": 2},
    "tight bounds": {"alpha_1": 0.3, "alpha_3": 0.4, "alpha_4": 0.05},
    "Theorem 1": {"eta_w": THEOREM, "eta_z": THEOREM, "eta_h": THEOREM},
}


def runs_of(changed, iterations=300):
    """The iterates of `AspireEase`, who was active in each, and the same settings as the paper names them."""
    s = USUAL | changed
    problems = [Valley(j) for j in range(N)]
    config = AspireEase.paper(
        active_workers=s["S"], max_staleness=s["tau"], iterations=iterations, report_interval=1,
        plane_interval=s["k"], planes="cp" if s["cp"] else "ease", local_steps=s["E"], penalty=s["kappa"],
        worker_step=s["eta_w"], consensus_step=s["eta_z"], value_step=s["eta_h"], plane_dual_step=s["rho_1"],
        consensus_dual_step=s["rho_2"], plane_damping_floor=s["floor_1"],
        consensus_damping_floor=s["floor_2"], parameter_bound=s["alpha_1"], value_bound=s["alpha_2"],
        plane_dual_bound=s["alpha_3"], consensus_dual_bound=s["alpha_4"],
        regularisation="setting-2" if s["setting_2"] else "none",
    )  # fmt: skip
    found, active = [], []
    start = np.full(P, 0.2)
    last = [start] * N

    def look(run, entry):
        if entry["event"] == "report":
            own, adversary = run.master.consensus, run.master.adversary
            active.append([j for j in range(N) if not np.array_equal(own.w[j], last[j])])
            last[:] = own.w
            found.append(
                (
                    own.z.copy(),
                    adversary.value,
                    adversary.planes.multipliers.copy(),
                    own.U.copy(),
                    list(own.w),
                )
            )

    engine = VirtualEngine(seed=1, delays=LogNormal(1.0, 1.2))
    solve(problems, SET, algorithm=config, engine=engine, observers=[look], start=start)
    for name in ("eta_w", "eta_z", "eta_h"):
        number = s[name]
        s[name] = number if callable(number) else lambda t, planes, number=number: number
    return problems, found, active, s


@pytest.mark.parametrize("form", FORMS)
def test_every_iterate_is_the_papers(form):
    problems, found, active, s = runs_of(FORMS[form])
    most = 0
    for t, *theirs in algorithm_1(problems, active, np.full(P, 0.2), s):
        if not t:
            continue
        most = max(most, len(theirs[2]))
        for name, ours, papers in zip(("z", "h", "λ", "φ", "w"), found[t - 1], theirs, strict=True):
            assert np.shape(ours) == np.shape(papers), f"{name} at t = {t}"
            worst = np.max(np.abs(np.asarray(ours) - papers) / (1.0 + np.abs(papers)))
            assert worst <= 1e-12, f"{name} at t = {t}: {worst:.1e}"
    assert most > 1  # planes came
    assert t == len(active) == 300
    assert max(len(each) for each in active) >= s["S"]


@pytest.mark.parametrize("regularisation", ["none", "setting-2"])
@pytest.mark.parametrize("curvature", [0.1, 1.0, 4.5, 10.0])
def test_every_setting_with_every_metric_comes_near_the_optimum(regularisation, curvature):
    """The damping of φ_j is in units of z, so it must not grow with the metric D."""
    rng = np.random.default_rng(3)
    problems = []
    for _ in range(N):
        X = rng.normal(size=(30, P))
        X *= np.sqrt(curvature) / np.sqrt((X**2).mean())
        problems.append(LeastSquares(X, X @ rng.normal(size=P), l2=1e-3, intercept=False))
    best = solve(problems, SET).lower_bound
    start = SET.worst_case([each.loss_and_gradient(np.zeros(P))[0] for each in problems]).value
    for metric in ("problem", "none"):
        settings = {"metric": metric, "regularisation": regularisation, "iterations": 4000}
        found = solve(problems, SET, algorithm=AspireEase(**settings)).objective
        # Setting 2's c₁ᵗ falls as t^-⅙: after 4,000 iterations it is still a quarter of c₁⁰.
        assert found <= best + (1e-4 if regularisation == "none" else 0.1) * (start - best), metric
