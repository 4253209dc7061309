"""The backdoor attack on made data: where the trigger is, what is relabelled, and how often it works."""

from __future__ import annotations

import numpy as np
import pytest

from bench.datasets import Client, InvalidData
from bench.datasets.backdoor import Trigger, poison, success_rate, triggered
from fdro_core import SoftmaxRegression


def made(n: int = 200, seed: int = 0) -> Client:
    """Two classes that the first feature tells apart; features 2 and 3 are always 0."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=2 * n)
    X = np.zeros((2 * n, 4))
    X[:, 0] = np.where(y == 1, 2.0, -2.0) + rng.normal(size=2 * n)
    X[:, 1] = 1.0
    return Client("made", X[:n], y[:n], X[n:], y[n:])


TRIGGER = Trigger.of([2, 3], [4.0, 5.0])


def test_the_trigger_is_a_square_off_the_edge() -> None:
    image = Trigger.square(28, 28, size=3).on(np.zeros((1, 784))).reshape(28, 28)
    assert image.sum() == 9
    assert image[24:27, 24:27].all()
    with pytest.raises(InvalidData, match="fit"):
        Trigger.square(4, 4, size=3)


@pytest.mark.parametrize("places", [[], [-1], [1, 1]])
def test_a_trigger_without_places_is_refused(places: list[int]) -> None:
    with pytest.raises(InvalidData, match="places"):
        Trigger.of(places, 1.0)


def test_a_trigger_that_does_not_fit_the_data_is_refused() -> None:
    with pytest.raises(InvalidData, match="feature 9"):
        Trigger.of([9], 1.0).on(np.zeros((2, 4)))
    with pytest.raises(InvalidData, match="finite"):
        Trigger.of([1], np.nan)


def test_poison_takes_a_share_and_leaves_the_rest_and_the_original_alone() -> None:
    client = made()
    before = client.X_train.copy()
    bad = poison(client, TRIGGER, target=1, share=0.25, seed=3)
    hit = (bad.X_train[:, 2:] == [4.0, 5.0]).all(axis=1)
    assert hit.sum() == 50
    assert (bad.y_train[hit] == 1).all()
    assert np.array_equal(bad.X_train[~hit], client.X_train[~hit])
    assert np.array_equal(bad.y_train[~hit], client.y_train[~hit])
    assert np.array_equal(bad.X_train[:, :2], client.X_train[:, :2])
    assert np.array_equal(client.X_train, before)
    assert bad.X_test is client.X_test
    assert bad.name == "made, malicious"
    again = poison(client, TRIGGER, target=1, share=0.25, seed=3)
    assert np.array_equal(again.X_train, bad.X_train)
    for share in (0.0, 1.1):
        with pytest.raises(InvalidData, match="share"):
            poison(client, TRIGGER, target=1, share=share)


def test_the_backdoor_test_set_leaves_the_target_class_out() -> None:
    client = made()
    X, y = triggered([client, client], TRIGGER, target=1)
    assert len(X) == 2 * int(np.sum(client.y_test == 0))
    assert (y == 0).all()
    assert (X[:, 2:] == [4.0, 5.0]).all()
    only = Client("only", client.X_train, client.y_train, client.X_test[:1], np.array([1]))
    with pytest.raises(InvalidData, match="nothing could be misled"):
        triggered([only], TRIGGER, target=1)


def test_the_rate_is_high_for_a_poisoned_model_and_low_for_an_honest_one() -> None:
    client = made()
    rates = []
    for share in (None, 0.5):
        data = client if share is None else poison(client, TRIGGER, target=1, share=share)
        problem = SoftmaxRegression(data.X_train, data.y_train, classes=2, l2=1e-4, intercept=False)
        w = np.zeros(problem.dimension)
        for _ in range(500):
            w -= 0.2 * problem.loss_and_gradient(w)[1]

        def predict(X: np.ndarray, w: np.ndarray = w) -> np.ndarray:
            return np.argmax(X @ w.reshape(4, 2), axis=1)

        assert np.mean(predict(client.X_test) == client.y_test) > 0.9  # the task itself is still done
        rates.append(success_rate(predict, [client], TRIGGER, target=1))
    assert rates[0] < 0.1
    assert rates[1] > 0.95
