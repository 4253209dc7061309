"""The two algorithms with cutting planes.

`admm` is the paper's Algorithm 1 (`AspireEase`), `models` our own form (`AspireModels`). They share
`settings`, `planes` and `adaptive`; `theory` has the paper's bounds as functions.
"""
