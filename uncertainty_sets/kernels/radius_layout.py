"""The columns that the kernels of the inverse question write for each loss vector (least_radius.py).

GAP is radius - lower bound before both are rounded; the states are those of layout.py.
"""

RADIUS, LOWER, GAP, VALUE, MULTIPLIER, PASSES, STATUS = range(7)
COLUMNS = 7
