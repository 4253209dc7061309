"""What a step is charged with on the virtual clock: the gradients that the master counts."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from fdro_core import AspireEase, AspireModels, VirtualEngine, solve
from fdro_core.protocol.engine import gradients_of
from tests.fdro_core.helpers import middle_box, softmax_problems
from tests.fdro_core.test_every_baseline import METHODS, N

ASPIRE = {
    "admm": AspireEase(iterations=40, batch_size=4),
    "models": AspireModels(iterations=40, tolerance=0.0),
    "models-sampled": AspireModels(iterations=40, batch_size=4),
}
EVERY = METHODS | ASPIRE


class Counting(VirtualEngine):
    """Adds up what the workers say that their answers to steps take."""

    def start(self, factories):
        super().start(factories)
        self.charged = 0
        for worker in self._workers:
            worker.handle = self._counting(worker, worker.handle)

    def _counting(self, worker, handle):
        def counted(message):
            self.charged += gradients_of(worker, message) if hasattr(message, "ticket") else 0
            return handle(message)

        return counted


@pytest.mark.parametrize("name", EVERY)
def test_a_step_is_charged_with_the_gradients_that_the_master_counts(name):
    algorithm = EVERY[name]
    if "local_steps" in {each.name for each in fields(algorithm)}:
        algorithm = replace(algorithm, local_steps=3)
    engine = Counting(seed=1)
    result = solve(softmax_problems(N), middle_box(N), algorithm=algorithm, engine=engine)
    assert engine.charged == result.gradients > 0
