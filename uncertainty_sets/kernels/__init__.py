"""numba kernels: arrays in, arrays out, no classes, no validation. In the order in which one would read them:

| file | has |
|---|---|
| `dispatch` | the one way from a set's parameters to a kernel and back, on several threads |
| `layout` | the columns that kernels write |
| `scan` | each one's first and last step: read losses, write and judge the answer; how `ragged` is called |
| `tilt` | balls of a divergence: what they share, and the entries that are made of a *link* |
| `kl`, `chi_square` | the links of KL (EVaR too) and ChiSquare |
| `exponential` | exp and log in forms that run on vector units |
| `cressie_read`, `power_sums` | Burg, CressieRead, Hellinger, and hard cases of ChiSquare |
| `least_radius`, `power_radius` | the least radius that reaches a target, for these and total variation |
| `penalised` | a divergence that costs instead of one that is bounded |
| `clipped`, `clipped_balance` | a KL or quadratic ball cut by a box |
| `selection` | the threshold at which sorted weights reach a target, unsorted |
| `box`, `cvar_mixture`, `total_variation` | by such selections: Box and CVaR, CVaRMixture, TotalVariation |
| `spectral` | Spectral: a sort |
| `tangent` | the minimum of a convex function of one variable, a price |
| `weighted_l1` | WeightedL1 by such a search |
| `cd_norm`, `cd_norm_search`, `cd_norm_window` | CDNorm: equal spreads; any others; large N |
| `wasserstein_line`, `wasserstein_envelope`, `wasserstein_prune` | transport on a line |
| `wasserstein_distance` | the transport distance of a given p |
| `wasserstein_matrix` | transport at any cost |
| `ellipsoid_diagonal`, `ellipsoid_search` | Ellipsoid with a diagonal, and hard cases of it |
| `ellipsoid_dense`, `quadratic_form` | Ellipsoid with a matrix, and the linear algebra |
| `projection` | nearest points; not part of an oracle |
| `by_state` | budgets that the rows of a state share |
| `by_state_tilt`, `by_state_improve`, `by_state_evaluate` | a row; the best policy; a given policy |
| `by_state_kl`, `by_state_chi_square`, `by_state_l1` | the entries; total variation has a way of its own |
| `chain` | Markov chains that a policy and nature's transitions make |
| `jit`, `native` | how kernels are compiled, kept and found |

A set's file has `rows`, which `dispatch.answer` calls with the parameters, and most have `ragged` too, for
rows of different lengths. A new divergence with a closed form is a file with its link, of which `tilt.ball`
makes both.

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
| np.dot, @, np.linalg | a loop (`quadratic_form.dot`) |
| x.max(), x.min() | `scan.largest`, `scan.smallest` |
| x[:] = y for two arrays | `scan.copy` |
| np.sort, lists | `selection.sort_pairs` |
| raise, assert | a status |
"""
