"""Synchronous rounds: what the baselines share."""
