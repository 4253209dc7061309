"""numba kernels: arrays in, arrays out, no classes, no validation.

| set | files |
|---|---|
| Box | `box` |
| CDNorm | `cd_norm`; `cd_norm_equal` for equal spreads, else `cd_norm_search`; `cd_norm_window` for large N |
| Ellipsoid | `ellipsoid_diagonal`, with `ellipsoid_search` for hard cases; `ellipsoid_dense` for a matrix |
| KL | `kl` |
| Wasserstein1 | `wasserstein1_line` for positions, `wasserstein1_matrix` for any cost |

A set's file has `rows`, which `dispatch.answer` calls with the parameters; `layout` says what `rows` writes.
What several of them use:

| file | has |
|---|---|
| `jit` | how kernels are compiled |
| `scan` | the first and last step of each: read the losses, write and judge the answer |
| `tangent` | the minimum of a convex function of one variable (CDNorm, Wasserstein1) |
| `selection` | the threshold at which sorted weights reach a target, without sorting (Box, CDNorm) |
| `exponential` | exp in forms that run on vector units (KL) |
| `budget_projection` | the nearest point of a Box or CDNorm; not part of an oracle |
| `quadratic_form` | xᵀQx and xᵀQ⁻¹x of an ill-conditioned matrix (Ellipsoid) |
"""
