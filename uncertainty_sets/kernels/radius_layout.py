"""The layout of an answer to the inverse question: one row of `out` per loss vector. Needs no numba."""

RADIUS, LOWER, GAP, VALUE, MULTIPLIER, PASSES, STATUS = range(7)
COLUMNS = 7
"""What `rows` writes for each loss vector; GAP is radius - lower bound before both are rounded."""
