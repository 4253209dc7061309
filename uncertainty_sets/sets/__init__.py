"""Uncertainty sets, one file each; the registry walks this folder."""
