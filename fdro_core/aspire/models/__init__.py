"""Quadratic models of the losses at the master: `consensus="models"`."""
