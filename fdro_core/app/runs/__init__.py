"""A training run described by a TOML file: what `fdro train`, `resume`, `report` and `compare` work on."""
