"""The numbers promised for the oracles."""
