"""What a master learns of its workers before the first step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fdro_core.contracts.messages import Update
from uncertainty_sets.arrays import Array


@dataclass(frozen=True)
class Meeting:
    """What the two rounds of `setup.meet` told.

    Attributes:
        z: where to start.
        metric: D.
        reference: q, a distribution in the set.
        first: every worker's loss and curvature at z, None for one that failed.
        failures: what those raised, or sent instead.
        samples: every worker's number of samples, None where its problem does not say.
        suspicious: whose metric or curvature is far beyond the others', and what it is.
        sent, received: numbers on the wire.
    """

    z: Array
    metric: Array
    reference: Array
    first: list[Update | None]
    failures: Mapping[int, Exception]
    samples: list[int | None]
    suspicious: Mapping[int, str]
    sent: int
    received: int
