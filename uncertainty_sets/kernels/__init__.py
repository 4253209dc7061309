"""numba kernels: arrays in, arrays out, no classes, no validation.

| set | files |
|---|---|
| Box | `box` |
| Burg, CressieRead, Hellinger | `cressie_read`, with `power_sums`, `power_links` and `power_pole` |
| CDNorm | `cd_norm`; `cd_norm_equal` for equal spreads, else `cd_norm_search`; `cd_norm_window` for large N |
| ChiSquare | `chi_square`; `cressie_read` for hard cases |
| Ellipsoid | `ellipsoid_diagonal`, with `ellipsoid_search` for hard cases; `ellipsoid_dense` for a matrix |
| CVaR | `box` |
| CVaRMixture | `cvar_mixture` |
| EVaR, KL | `kl` |
| Intersection of a ball and boxes | `clipped` |
| Penalised | `penalised`, with the passes of `kl` |
| Spectral | `spectral` |
| TotalVariation | `total_variation` |
| Wasserstein, Wasserstein1 | `wasserstein_line` for positions, `wasserstein_matrix` for any cost |
| WeightedL1 | `weighted_l1` |
| KL, ChiSquare, TotalVariation, a budget per state | `by_state_kl`, `by_state_chi_square`, `by_state_l1` |

A set's file has `rows`, which `dispatch.answer` calls with the parameters; `layout` says what `rows` writes.
Most have `ragged` too, for rows of different lengths; `gathering` says how it is called.

A kernel that Python calls is marked with `entry`, which names the parameters that it writes:

    @entry("P", "out")
    @kernel
    def rows(F: Matrix, center: Matrix, radius: Vector, warm: Matrix, P: Matrix, out: Matrix) -> None:

With that it is compiled ahead of time too (`make kernels`, wheels); nothing else needs an edit. For this, its
parameters are annotated with Vector, Matrix, Cube, Indices (arrays.py), float, int or bool; it returns
nothing, a number or a tuple of numbers; and neither it nor what it calls uses parts of numba that exist only
in a Python process. The build names what it finds. Usual replacements:

| not | but |
|---|---|
| np.dot, @, np.linalg | a loop (`cholesky.dot`) |
| x.max(), x.min() | `scan.largest`, `scan.smallest` |
| x[:] = y for two arrays | `scan.copy` |
| np.sort, lists | `selection.sort_pairs` |
| raise, assert | a status |

What several of them use:

| file | has |
|---|---|
| `jit` | how kernels are compiled |
| `cache` | compiled kernels on disk |
| `scan` | the first and last step of each: read the losses, write and judge the answer |
| `gathering` | the losses of a ragged row from shared values, and its answer into columns |
| `by_state` | states whose rows share a budget; `by_state_tilt`, `by_state_improve`, `by_state_evaluate` |
| `tangent` | the minimum of a convex function of one variable (CDNorm, Wasserstein, WeightedL1) |
| `selection` | the threshold at which sorted weights reach a target, unsorted (Box, CDNorm, TotalVariation) |
| `exponential`, `logarithm` | exp and log in forms that run on vector units (KL, powers) |
| `budget_projection` | the nearest point of a Box or CDNorm; not part of an oracle |
| `ball_projection` | the nearest point of a KL or χ² ball or a diagonal Ellipsoid; not part of an oracle |
| `total_variation_projection` | the nearest point of a total variation ball; not part of an oracle |
| `least_radius` | what the files `…_radius` share: the least radius whose worst case reaches a target |
| `radius_layout` | what they write |
| `cholesky` | a block's factor, and solutions for three right-hand sides (Ellipsoid) |
| `quadratic_form` | xᵀQx and xᵀQ⁻¹x of an ill-conditioned matrix (Ellipsoid) |
"""
