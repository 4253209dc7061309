"""The questions beside `worst_case`, each attacked in a file of its own with references of its own.

| question | asks |
|---|---|
| by_state | robust Bellman updates with a budget per state |
| entropy_pooling | the distribution nearest to a centre under views || project | the nearest point of a set |
| radius_for | the least radius at which the worst case reaches a target |
"""

from __future__ import annotations

from bench.soak.questions import joint, nearest, pooling, radius
from bench.soak.questions.question import Batch, Question, Wrong

QUESTIONS: dict[str, Question] = {
    "by_state": Question(joint.GENERATORS, joint.batch),
    "entropy_pooling": Question(pooling.GENERATORS, pooling.batch),
    "project": Question(nearest.GENERATORS, nearest.batch),
    "radius_for": Question(radius.GENERATORS, radius.batch),
}

__all__ = ["QUESTIONS", "Batch", "Question", "Wrong"]
