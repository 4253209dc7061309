"""The hot passes of ASPIRE-EASE in numba: arrays are changed in place, nothing is validated.

The diagonal metric D scales every step: a step size a means a/D_i in coordinate i, the penalty κ₁ means
κ₁D_i and the dual step ρ₂ means ρ₂D_i. D = 1 gives exactly the paper's updates. φ is kept divided by D
(u = φ/D). A worker needs z and φ_j only as y_j = φ_j/D + κ₁z, so the master sends that one vector. Both save
arrays in passes that are bound by memory.

One file for each part that calls them: `worker`, `consensus` and `planes` (the adversary).
"""
