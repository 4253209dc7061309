"""Algorithm 1 of the paper, in the order of reading.

`algorithm` has the settings of `AspireEase`, `worker` a local step, `master` an iteration; `consensus` z and
φ, `adversary` the planes' λ and h with all step sizes; `kernels` their arithmetic.
"""
