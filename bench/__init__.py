"""Measurements and demonstrations: `python -m bench NAME`, one module a command. Not installed."""
