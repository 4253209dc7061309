"""The audit: how far the world may move before a model fails, for any model that has a loss for each sample.

>>> import numpy as np
>>> from uncertainty_sets import KL
>>> from uncertainty_sets.audit import Audit
>>> losses = np.random.default_rng(0).beta(1, 4, size=2000)
>>> print(Audit(losses).radius_to_failure(KL, 0.3))
the mean loss reaches 0.3 at KL 0.149
  [in this sample, proved]
not below 0.109 (confidence 95 %)
  [population, proved]
0.123 to 0.178 (95 %)
  [population, asymptotic]

Needs SciPy; `worst_subpopulation` and `world` need scikit-learn. In the order in which one would read:

- `audit` asks and `answers` answers; `inputs` reads what it is given.
- `families` knows each kind of set, `bounds` what can be proved at any number of samples; `groups` does the
  groups, `covariates` what scikit-learn finds in covariates.
- `comparing` compares models, `report` says all of it on a page.
- `conformal`: thresholds of conformal prediction that hold over a set.
"""

from typing import TYPE_CHECKING, Any

from uncertainty_sets.packages import lazily

if TYPE_CHECKING:
    from uncertainty_sets.audit.answers import Failure, Holds, Statement, Subpopulation, World, Worst
    from uncertainty_sets.audit.audit import Audit
    from uncertainty_sets.audit.comparing import Comparison, compare
    from uncertainty_sets.audit.inputs import losses_of
    from uncertainty_sets.audit.report import Report

__all__ = [
    "Audit",
    "Comparison",
    "Failure",
    "Holds",
    "Report",
    "Statement",
    "Subpopulation",
    "World",
    "Worst",
    "compare",
    "losses_of",
]

_find = lazily(
    __name__,
    {
        "answers": "Failure Holds Statement Subpopulation World Worst",
        "audit": "Audit",
        "comparing": "Comparison compare",
        "inputs": "losses_of",
        "report": "Report",
    },
)


def __getattr__(name: str) -> Any:
    return _find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
