"""Training runs: the run file (TOML) that describes one, and the folder that it is written to."""
