"""Engines move messages between the master and the workers, and stamp them with time."""
