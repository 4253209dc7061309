"""The paper's experiments: methods tuned alike, runs that resume, the paper's numbers beside ours.

A command is a file of `commands` with a `main`; `python -m bench` lists them. `runs` takes a task to its
record, `presentation` records to tables and figures.
"""
