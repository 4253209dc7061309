"""The complexity table, measured."""
