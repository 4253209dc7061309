"""Pictures of sets and worst cases. Needs ``pip install "fdro[plot]"``.

`draw_simplex` shows any set over three workers, plug-ins too: it knows nothing of a set but its oracle. Every
function draws into the axes given, or into a new figure, and returns the axes. Nothing depends on colour.
"""

from uncertainty_sets.plotting.simplex import boundary, draw_simplex
from uncertainty_sets.plotting.weights import draw_weights

__all__ = ["boundary", "draw_simplex", "draw_weights"]
