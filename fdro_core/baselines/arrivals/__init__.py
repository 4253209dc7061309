"""Asynchronous arrivals: what baselines without rounds share. A method's own file holds its update alone."""

from fdro_core.baselines.arrivals.algorithm import Arrivals
from fdro_core.baselines.arrivals.state import Arrival, ArrivalState

__all__ = ["Arrival", "ArrivalState", "Arrivals"]
