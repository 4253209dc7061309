"""One file per set; a new file is found by itself (registry.py).

Sets of the simplest kind first: `box`; balls of a divergence (`kl`, `chi_square`, `burg`, `hellinger`,
`cressie_read`), of total variation and of other norms (`total_variation`, `weighted_l1`, `cd_norm`,
`ellipsoid`), in transport distance (`wasserstein1`, `wasserstein`); risk measures (`cvar`, `evar`,
`cvar_mixture`, `spectral`); `polyhedron`; and sets made of sets (`intersection`, `mapped`, `nested`,
`product`).

Files that begin with an underscore are what several share: `_balls` (centre, radius, power divergences),
`_transport`, `_tails`, `_composed`, and two closed forms of `intersection`, `_clipped_ball` and
`_tilted_ball`.
"""
