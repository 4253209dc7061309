"""A training step on two processes of torch.distributed; run as a script, this file is the second process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch

from uncertainty_sets import KL
from uncertainty_sets.torch import GroupRobustLoss

PARTS = (slice(0, 7), slice(7, 12))
"""The samples of each process: group 2 is in the first alone, group 3 in the second."""

GROUPS = torch.tensor([0, 0, 0, 1, 1, 2, 0, 1, 0, 1, 3, 3])


@contextmanager
def joined(rank: int, store: str) -> Iterator[None]:
    """Be one of two processes."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=120)
    )
    try:
        yield
        torch.distributed.barrier()  # gloo's threads abort a process whose peer has gone before it
    finally:  # a loss in a later test would wait for the other process
        torch.distributed.destroy_process_group()


def steps(part: slice, parallel: bool) -> dict[str, object]:
    """Take three steps on part of the data; return the last value, gradient, weights and running losses."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1).double()
    X = torch.randn(12, 3).double()
    copies = torch.nn.parallel.DistributedDataParallel(model) if parallel else model
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = GroupRobustLoss(KL([0.4, 0.3, 0.2, 0.1], radius=0.1), 4).double()
    for _ in range(3):
        optimiser.zero_grad()
        value = loss(copies(X[part]).squeeze(1) ** 2, GROUPS[part])
        value.backward()
        optimiser.step()
    if part == PARTS[0]:
        loss.eval()(
            torch.ones(1), torch.tensor([0])
        )  # one process alone: evaluation must not wait for others
    return {
        "value": value.item(),
        "gradient": model.weight.grad,
        "weights": loss.weights,
        "running losses": loss.running_loss,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined(1, sys.argv[1]):
        values = torch.tensor(steps(PARTS[1], parallel=True)["value"])
        torch.distributed.all_reduce(values)
