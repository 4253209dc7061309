"""One file per experiment: `python -m bench NAME`."""
