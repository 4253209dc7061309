"""The complexity table, measured.

In the order in which one would read: `__main__`, `grid` (one cell), `variants` (the sets), `peers` and
`by_hand` (what they are compared with), `overall` (a whole run), `store` (the file), `summary` (the rows),
`report`, `plots` and `page` (how they are shown), `paper` (its claims), `compare` (two files).
"""
