"""The questions beside `worst_case`, each attacked in a file of its own with references of its own.

| question | asks |
|---|---|
| entropy_pooling | the distribution nearest to a centre under views |
"""

from __future__ import annotations

from bench.soak.questions import pooling
from bench.soak.questions.question import Batch, Question, Wrong

QUESTIONS: dict[str, Question] = {
    "entropy_pooling": Question(pooling.GENERATORS, pooling.batch),
}

__all__ = ["QUESTIONS", "Batch", "Question", "Wrong"]
