"""Pictures of sets and worst cases. Needs ``pip install "fdro[plot]"``.

`draw_simplex` shows any set over three workers, including plug-ins: it uses only the set's oracle. Every
function draws into the given axes or a new figure, and returns the axes. All can be read without colour.
`draw_price` shows what robustness costs in a Markov decision process.
"""

from uncertainty_sets.plotting.price import draw_price
from uncertainty_sets.plotting.simplex import boundary, draw_simplex
from uncertainty_sets.plotting.weights import draw_weights

__all__ = ["boundary", "draw_price", "draw_simplex", "draw_weights"]
