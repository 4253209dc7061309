"""The two algorithms with cutting planes, in the order of reading.

`settings` has what both have, `planes` the cutting planes. Then either form:
`admm` is the paper's Algorithm 1 (`AspireEase`), `models` our own (`AspireModels`). `theory` has the paper's
bounds as functions.
"""
