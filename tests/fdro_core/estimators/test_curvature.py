"""Losses, gradients and Hessians of all groups at once, against definitions and differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import log_softmax

from fdro_core.estimators import curvature
from fdro_core.estimators.groups import GroupedRegression, GroupedSoftmax

SAMPLES, GROUPS = 300, 4


def models(grouped, sparse, weighted):
    """One model of each kind and its losses by definition: (model, w -> losses of the samples)."""
    rng = np.random.default_rng(2)
    X, group = rng.normal(size=(SAMPLES, 3)), rng.integers(0, GROUPS, size=SAMPLES)
    group = group if grouped else np.arange(SAMPLES)
    weight = rng.uniform(0.5, 2.0, size=SAMPLES) if weighted else None
    given = csr_array(X) if sparse else X
    ones = np.column_stack([X, np.ones(SAMPLES)])
    y = rng.normal(size=SAMPLES)
    for classes in (2, 3):
        labels = rng.integers(0, classes, size=SAMPLES)
        model = GroupedSoftmax(given, labels, group, classes, 0.1, weight)

        def entropy(w, model=model, labels=labels):
            return -log_softmax(ones @ model.columns(w), axis=1)[np.arange(SAMPLES), labels]

        yield model, entropy
    center = rng.uniform(-0.5, 0.5, size=SAMPLES)

    def residual(w):
        return ones @ w - y

    def lifted(w):
        s = np.clip(center + residual(w) / 0.7, -1, 1)
        return s * residual(w) - 0.35 * (s - center) ** 2

    def huber(w):
        r = np.abs(residual(w))
        return np.where(r <= 0.7, 0.5 * r**2, 0.7 * r - 0.245)

    for loss, by_hand in (
        ("squared", lambda w: 0.5 * residual(w) ** 2),
        ("absolute", lambda w: np.abs(residual(w))),
        ("huber", huber),
        ("smoothed", lifted),
    ):
        yield GroupedRegression(given, y, group, loss, 0.1, weight, 0.7, center), by_hand


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_losses_gradients_and_hessians(grouped, sparse, weighted):
    rng = np.random.default_rng(3)
    for model, by_sample in models(grouped, sparse, weighted):
        w = 0.5 * rng.normal(size=model.dimension)
        losses, point = model.evaluate(w)
        np.testing.assert_allclose(losses, model.means(by_sample(w)), rtol=1e-13, atol=1e-15)
        J, h = point.jacobian(), 1e-6
        moved = [model.means(by_sample(w + h * e) - by_sample(w - h * e)) / (2 * h) for e in np.eye(w.size)]
        np.testing.assert_allclose(J, moved, atol=1e-8)
        p = rng.dirichlet(np.ones(losses.size))
        np.testing.assert_allclose(point(p), J @ p, atol=1e-13)
        if model.outputs > 1 or point.bends.any():
            H = point.hessian(p)
            steps = [
                (model.evaluate(w + h * e)[1](p) - model.evaluate(w - h * e)[1](p)) / (2 * h)
                for e in np.eye(w.size)
            ]
            np.testing.assert_allclose(H, steps, atol=1e-2 if model.outputs == 1 and model.width else 1e-7)
            S, g = rng.random(losses.size), rng.normal(size=losses.size)
            g -= S @ g / S.sum()
            spread = np.diag(S) - np.outer(S, S) / S.sum() - np.outer(S * g, S * g) / (S @ g**2)
            np.testing.assert_allclose(point.hessian(p, S, g), H + J @ spread @ J.T, atol=1e-12)
            flat = np.diag(S) - np.outer(S, S) / S.sum()
            np.testing.assert_allclose(point.hessian(p, S), H + J @ flat @ J.T, atol=1e-12)


def test_scores_far_out_stay_finite():
    """Scores of ±2,000: losses as large, no overflow, slopes that are 0 or the whole."""
    X, labels = np.array([[2000.0], [2000.0]]), np.array([1, 0])
    for classes in (2, 3):
        model = GroupedSoftmax(X, labels, np.arange(2), classes)
        columns = np.zeros((2, classes))
        columns[0, 1] = 1.0
        losses, point = model.evaluate(model.from_columns(columns.ravel()))
        np.testing.assert_allclose(losses, [0.0, 2000.0], atol=1e-12)
        assert np.isfinite(point.slopes).all()


def test_two_classes_have_the_ridge_of_two_columns():
    rng = np.random.default_rng(0)
    model = GroupedSoftmax(rng.normal(size=(9, 3)), np.arange(9) % 2, np.arange(9), 2)
    columns = rng.normal(size=(4, 2))
    w = model.from_columns(columns.ravel())
    even = columns - columns.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(model.columns(w), even, atol=1e-15)
    assert w @ w == pytest.approx((even**2).sum())


def test_a_hessian_of_chosen_samples_is_near_that_of_all(monkeypatch):
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(40_000, 3)), rng.integers(0, 3, size=40_000)
    group = rng.integers(0, GROUPS, size=y.size)
    p = np.array([0.1, 0.2, 0.3, 0.4])
    for classes in (2, 3):
        model = GroupedSoftmax(X, np.minimum(y, classes - 1), group, classes)
        _, point = model.evaluate(rng.normal(size=model.dimension))
        part = point.hessian(p)
        with monkeypatch.context() as patched:
            patched.setattr(curvature, "ROWS", 10**6)
            whole = point.hessian(p)
        assert 0.0 < np.abs(part - whole).max() < 0.1 * np.abs(whole).max()
