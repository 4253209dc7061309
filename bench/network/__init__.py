"""A network on one machine, with delay, loss and partitions, for Ray's nodes and Flower's.

In the order in which one would read: `rows` measures one run, `disturbances` is what is done to it; `nodes`
starts Ray or Flower in a `bed` of `hosts` around a `switch`; `run_log` is the master of a run on `problem`.
Files that end in `_master` and `first_process` are started as processes of their own.
"""
