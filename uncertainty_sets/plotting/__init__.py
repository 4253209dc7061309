"""What `uncertainty_sets.pictures` draws with."""
