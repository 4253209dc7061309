"""Conic solvers behind one protocol, one file each, found by walking this folder."""

from uncertainty_sets.backends.base import Backend, Solution, Solver
from uncertainty_sets.backends.registry import available_backends, cold, in_order, is_cold, select

__all__ = ["Backend", "Solution", "Solver", "available_backends", "cold", "in_order", "is_cold", "select"]
