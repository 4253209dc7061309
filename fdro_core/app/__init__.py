"""The `fdro` command: commands, run files and the report. Nothing outside imports it."""
