"""What all measurements share.

`timing` has time and memory of a call; `targets` a command that prints numbers beside targets; `machine` what
they were measured on; `cases` and `models` what is measured.
"""
