"""What a run claims is so: planes of another set, workers that return, wrong facts, ends without a proof."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

from bench.driver import claims
from bench.driver.problems import classification, optimum, robust_value, six_sets
from fdro_core import AspireEase, AspireModels, Crash, LeastSquares, VirtualEngine, resume, solve
from fdro_core.aspire.planes import Planes
from fdro_core.errors import CheckpointWarning, InvalidSetting, ProofWarning
from fdro_core.observers import Checkpoint
from fdro_core.result import CONVERGED, STOPPED
from tests.fdro_core.helpers import Quadratic, middle_box, softmax_problems
from uncertainty_sets import KL, Box

HARMLESS = "ignore::fdro_core.errors.WorkerWarning"


def forced(path, problems, chosen, algorithm):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        return resume(path, problems, chosen, algorithm=algorithm, force=True)


# -- another set --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [AspireModels, AspireEase])
@pytest.mark.parametrize("small", [True, False])
def test_planes_of_another_set_are_left_behind(algorithm, small, tmp_path):
    """From a large set to a small one inside it, and back; each from the middle and from the end."""
    problems, q = softmax_problems(4), np.full(4, 0.25)
    sets = [Box(np.zeros(4), np.ones(4)), KL(q, 0.01)]
    first, second = sets if small else reversed(sets)
    best = optimum(problems, second)
    for stop in (13, 400):
        path = tmp_path / f"{stop}.npz"
        solve(problems, first, algorithm=algorithm(iterations=stop), observers=[Checkpoint(path)])
        result = forced(path, problems, second, algorithm(iterations=4000))
        assert all(second.contains(plane, 1e-7) for plane in result.planes)
        assert result.objective == pytest.approx(best, rel=1e-6 if algorithm is AspireModels else 1e-3)
        assert result.lower_bound <= best * (1.0 + 1e-7)


def test_other_problems_do_not_end_as_the_first_ones_did(tmp_path):
    """The state of a run that converged says nothing about other losses."""
    q, path = np.full(3, 1 / 3), tmp_path / "run.npz"
    solve(softmax_problems(3), KL(q, 0.1), algorithm=AspireModels(), observers=[Checkpoint(path)])
    others = softmax_problems(3, seed=9)
    result = forced(path, others, KL(q, 0.1), AspireModels())
    assert result.stop_reason == CONVERGED
    assert result.objective == pytest.approx(optimum(others, KL(q, 0.1)), rel=1e-6)


class Elsewhere(KL):
    """A set with a reference that is not in it."""

    def reference(self):
        return np.eye(1, 3)[0]


def test_a_reference_outside_its_set_is_refused():
    with pytest.raises(InvalidSetting, match="which is not in the set: its violation is"):
        solve(softmax_problems(3), Elsewhere(np.full(3, 1 / 3), 0.01))


def test_a_plane_is_checked_against_the_set():
    inside, outside = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    box = Box([0.2, 0.2], [0.8, 0.8])
    for measure, left in ((box.violation, [inside]), (None, [np.array([0.6, 0.4])])):
        planes = Planes(outside, keep_all=True, limit=20)
        planes._add(inside, 0.0)
        assert planes.check(measure, np.array([0.6, 0.4]))
        np.testing.assert_array_equal(planes.matrix(), left)
        np.testing.assert_array_equal(planes.multipliers, [1.0])
        assert not planes.check(measure, np.array([0.6, 0.4]))


# -- workers that are left out ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_planes_are_those_of_the_set_again_once_all_workers_are_back(seed):
    rng = np.random.default_rng(seed)
    N = int(rng.integers(2, 7))
    box, losses = Box(np.full(N, 0.3 / N), np.full(N, min(1.0, 3.0 / N))), rng.normal(size=N)
    planes = Planes(np.full(N, 1 / N), keep_all=bool(rng.integers(2)), limit=4)
    for _ in range(60):
        kept = rng.random(N) < 0.7
        kept[rng.integers(N)] = True
        planes.leave_out(kept.tolist())
        losses = losses + 0.3 * rng.normal(size=N)
        planes.update(box.worst_case(losses).p, losses)
        planes.settle()
        planes.previous[:] = planes.multipliers
        planes.multipliers[:] = rng.dirichlet(np.ones(planes.size)) * (rng.random(planes.size) < 0.7)
        assert (planes.matrix()[:, ~kept] == 0.0).all()
        np.testing.assert_allclose(planes.losses, planes.matrix() @ losses, atol=1e-12)
    planes.leave_out(None)
    assert all(box.contains(plane) for plane in planes.matrix())
    assert planes.whole is None


@pytest.mark.filterwarnings(HARMLESS)
@pytest.mark.parametrize("algorithm", [AspireModels, AspireEase])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_whose_worker_was_dropped_and_came_back_ends_at_the_optimum(algorithm, seed):
    problems = classification(4, seed=seed)
    for kind, chosen in six_sets(4, seed=seed).items():
        engine = VirtualEngine(seed=seed, crashes=[Crash(1, 5.0, 12.0), Crash(2, 9.0, 30.0)])
        settings = {"dead_losses": "drop", "iterations": 1500}
        result = solve(problems, chosen, algorithm=algorithm(**settings), engine=engine)
        best = optimum(problems, chosen)
        near = 1e-5 if algorithm is AspireModels else 1e-2
        assert result.objective == pytest.approx(best, rel=near), kind


# -- facts that are wrong -----------------------------------------------------------------------------------


class Forgetful:
    """After some calls its worst case is its centre."""

    size = 2

    def __init__(self, calls):
        self.inner, self.left = Box([0.2, 0.2], [0.8, 0.8]), calls

    def reference(self):
        return self.inner.reference()

    def violation(self, p):
        return self.inner.violation(p)

    def worst_case(self, losses):
        self.left -= 1
        return self.inner.worst_case(losses if self.left >= 0 else -losses)


def test_a_bound_above_the_objective_is_an_alarm():
    problems = [Quadratic([1.0, 2.0]), Quadratic([-1.0, 0.0], scale=3.0)]
    for problem in problems:
        problem.strong_convexity = 1.0
    for calls in (18, 20):  # of 21, the final round's included
        algorithm = AspireModels(iterations=40, tolerance=0.0)
        with pytest.warns(ProofWarning, match="is above the objective"):
            result = solve(problems, Forgetful(calls), algorithm=algorithm, start=[1.0, 2.0])
        assert result.lower_bound > result.worst_case.upper_bound
        assert result.gap == np.inf
        assert "contradicts" in repr(result)
        assert [entry["event"] for entry in result.history].count("contradiction") == 1


class Noisy(Quadratic):
    """Losses with noise, on all data."""

    strong_convexity = 1.0

    def __init__(self, centre, size):
        super().__init__(centre)
        self.rng, self.size = np.random.default_rng(0), size

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        loss, gradient = super().loss_and_gradient(w)
        return loss + self.size * float(self.rng.normal()), gradient


@pytest.mark.filterwarnings("ignore::fdro_core.errors.ProofWarning")
@pytest.mark.parametrize("size", [1e-3, 0.05])
def test_noisy_losses_do_not_converge(size):
    for seed in range(5):
        problems = [Noisy([-1.0 - seed, 0.0], size), Noisy([1.0, 0.3 * seed], size)]
        result = solve(problems, Box([0.0, 0.0], [1.0, 1.0]), algorithm=AspireModels(iterations=400))
        assert result.stop_reason != CONVERGED


class Steep:
    """½c‖w - a‖², with any c."""

    dimension = 2

    def __init__(self, c, a):
        self.c, self.a, self.strong_convexity = c, np.array(a), c

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        away = w - self.a
        return 0.5 * self.c * float(away @ away), self.c * away


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("c", [1e-140, 1e80, 1e140, 1e149])
def test_huge_and_tiny_curvatures(c):
    problems = [Steep(c, [1.0, 0.0]), Steep(c, [-1.0, 1.0])]
    result = solve(problems, Box([0.0, 0.0], [1.0, 1.0]), algorithm=AspireModels(iterations=300))
    best = 0.5 * c * 1.25  # in the middle between the two
    assert result.objective <= c * 1.0 * (1.0 + 1e-12)  # the start's
    if result.stop_reason == CONVERGED:
        assert result.objective == pytest.approx(best, rel=1e-5)
    assert not result.lower_bound > best * (1.0 + 1e-9)


class Kinked:
    """|xᵀw - y| summed: not smooth."""

    dimension = 3

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.X, self.y = rng.normal(size=(15, 3)), rng.normal(size=15)

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        off = self.X @ w - self.y
        return float(np.abs(off).mean()), self.X.T @ np.sign(off) / 15


@pytest.mark.parametrize("seed", range(4))
def test_losses_that_are_not_smooth_are_not_called_converged(seed):
    problems = [Kinked(3 * seed + j) for j in range(3)]
    result = solve(problems, middle_box(3), algorithm=AspireModels(iterations=900))
    assert result.stop_reason in {STOPPED, "iterations"}
    assert result.objective <= robust_value(problems, middle_box(3), np.zeros(3))


def collinear(seed, workers=3, features=5):
    rng = np.random.default_rng(seed)
    problems = []
    for _ in range(workers):
        X = rng.normal(size=(40, 1)) + 10.0 ** rng.uniform(-6, -2) * rng.normal(size=(40, features))
        y = X @ rng.normal(size=features) + 0.5 * rng.normal(size=40)
        problems.append(LeastSquares(X, y, l2=10.0 ** rng.uniform(-8, -3), intercept=False))
    return problems


def ridge_optimum(problems, q, radius):
    """The optimum over a KL ball by SciPy, in coordinates in which the mean Hessian is 1.

    sup over KL(p, q) <= r of pᵀf is min over u > 0 of u·log Σ_j q_j exp(f_j/u) + r·u.
    """
    H = [each.X.T @ each.X / len(each.y) + each.l2 * np.eye(each.dimension) for each in problems]
    basis = np.linalg.inv(np.linalg.cholesky(np.mean(H, axis=0))).T
    A = np.array([basis.T @ h @ basis for h in H])
    b = np.array([basis.T @ (each.X.T @ each.y) / len(each.y) for each in problems])
    c = np.array([0.5 * each.y @ each.y / len(each.y) for each in problems])

    def value(v):
        f = 0.5 * np.einsum("i,jik,k->j", v, A, v) - b @ v + c
        top = f.max()

        def above(log_u):
            u = np.exp(log_u)
            return top + u * np.log(q @ np.exp((f - top) / u)) + radius * u

        log_u = minimize_scalar(above, bounds=(-25.0, 10.0), method="bounded", options={"xatol": 1e-12}).x
        p = q * np.exp((f - top) / np.exp(log_u))
        p /= p.sum()
        return above(log_u), p @ (A @ v - b)

    v = np.zeros(len(basis))
    for _ in range(5):  # each from the last, with its memory of curvatures cleared
        v = minimize(value, v, jac=True, method="BFGS", options={"gtol": 1e-12, "maxiter": 2000}).x
    return float(value(v)[0])


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(20))
def test_nearly_collinear_ridges_claim_no_more_than_is_so(seed):
    problems, q = collinear(seed), np.full(3, 1 / 3)
    best = ridge_optimum(problems, q, 0.2)
    result = solve(problems, KL(q, 0.2), algorithm=AspireModels(iterations=1500))
    assert result.lower_bound <= best * (1.0 + 1e-6)
    assert result.objective <= robust_value(problems, KL(q, 0.2), np.zeros(5))
    if result.stop_reason == CONVERGED:
        assert result.objective == pytest.approx(best, rel=1e-5)


# -- never above the start ----------------------------------------------------------------------------------


def test_a_run_that_went_up_ends_at_its_start():
    """One step from the minimum of one worker, with the other's curvature not known yet."""

    class Hidden(Quadratic):
        """Nearly linear within 1e-3 of the start, steep beyond."""

        def loss_and_gradient(self, w, rng=None, batch_size=None):
            beyond = np.maximum(np.abs(w) - 1e-3, 0.0)
            value = 1e-6 * float(w.sum()) + 5e8 * float(beyond @ beyond)
            return value, 1e-6 + 1e9 * np.sign(w) * beyond

    problems = [Hidden([0.0]), Hidden([0.0])]
    result = solve(problems, Box([0.0, 0.0], [1.0, 1.0]), algorithm=AspireModels(iterations=1))
    assert result.model == "start"
    np.testing.assert_array_equal(result.w, 0.0)
    assert (result.objective, result.losses.tolist()) == (0.0, [0.0, 0.0])
    assert result.history[-1]["event"] == "back-at-start"


# -- random cases -------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", [1, 3, 5, 6, 66, 97])
def test_random_cases(number):
    case = claims.draw(number)
    assert claims.faults(case, case.run(), claims.optimum(case) if number in {1, 3} else np.inf) == []


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_a_hundred_random_cases(capsys):
    assert claims.judge(range(1000, 1100)) == []
    assert "no claim was wrong" in capsys.readouterr().out
