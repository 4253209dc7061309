"""The questions beside `worst_case`, each attacked in a file of its own with references of its own.

| question | asks |
|---|---|
| by_state | robust Bellman updates with a budget per state |
| ends | `worst_case` at the ends of the float range |
| entropy_pooling | the distribution nearest to a centre under views |
| project | the nearest point of a set |
| radius_for | the least radius at which the worst case reaches a target |
| support | `robust.support` inside problems with variables |
"""

from __future__ import annotations

from bench.soak.questions import ends, joint, nearest, pooling, radius, support
from bench.soak.questions.question import Batch, Question, Wrong

QUESTIONS: dict[str, Question] = {
    "by_state": Question(joint.GENERATORS, joint.batch),
    "ends": Question(ends.GENERATORS, ends.batch),
    "entropy_pooling": Question(pooling.GENERATORS, pooling.batch),
    "project": Question(nearest.GENERATORS, nearest.batch),
    "radius_for": Question(radius.GENERATORS, radius.batch),
    "support": Question(support.GENERATORS, support.batch),
}

__all__ = ["QUESTIONS", "Batch", "Question", "Wrong"]
