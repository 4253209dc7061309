"""What an experiment runs: methods, sets, models, the search for settings, and one run."""
