"""The paper's experiments: methods tuned alike, runs that resume, the paper's numbers beside ours.

A command is a file here with a `main`; `python -m bench` lists them.
"""
