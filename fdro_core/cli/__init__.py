"""The `fdro` command: commands, run files and the report. No other package imports it."""
