"""The layout of a kernel's answer: one row of `out` per loss vector. Needs neither NumPy nor numba.

| column | holds |
|---|---|
| VALUE | pᵀf |
| BOUND | the upper bound on the maximum that the multipliers prove |
| GAP | bound - value, before both are rounded to the size of the losses |
| VIOLATION | the largest residual of p |
| ITERATIONS | evaluations of the dual function |
| STATUS | one of the codes below |
| DUAL, DUAL + 1 | the set's multipliers, in the order of its keys; the second only if it has two |

p is an array of its own. `scan.finish` writes every column but the multipliers, which each set's kernel adds;
`dispatch.answer` reads them. With NOT_FINITE and OUT_OF_RANGE the other columns are not written.
"""

VALUE, BOUND, GAP, VIOLATION, ITERATIONS, STATUS, DUAL = range(7)
COLUMNS = 8

OK, NOT_FINITE, OUT_OF_RANGE, NOT_SOLVED = range(4)
"""Proved; a loss is NaN or infinite; losses must be scaled first; the certificate breaks the promise."""

PROMISE, FEASIBLE, ULPS = 1e-9, 1e-10, 8 * 2.0**-52
"""What every closed form promises: a gap of at most PROMISE·(max f - min f), or of some units in the last
place of the losses if that is more, and a p that is feasible up to FEASIBLE."""

RADIUS, LOWER, RADIUS_GAP, RADIUS_VALUE, MULTIPLIER, PASSES, RADIUS_STATUS = range(7)
RADIUS_COLUMNS = 7
"""What a kernel of the inverse question writes for each loss vector (least_radius.py): the radius, the lower
bound on it that the multiplier proves, their difference before both are rounded, pᵀf, by how much the radius
grows per unit of the target, evaluations, and one of the codes above."""
