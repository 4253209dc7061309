"""Differential privacy at the worker (docs/privacy.md), in the order of reading.

`settings` says what is promised and, of a run, what was used; `policy` what a data owner allows; `gate` what
may leave a worker; `mechanism` clips and adds noise; `account` counts releases; `accounting` turns them to ε.
"""
