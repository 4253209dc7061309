"""What every algorithm with a master needs, in the order of reading.

`base` is the parent of all masters, `roster` who is alive and who was sent what, `worker` the parent of all
workers; `handshake` comes before the first step. `settings` are those of every algorithm; `outliers` names
workers whose numbers stand out; `preconditioner` and `kernels` are arithmetic. `checkpoint` writes, reads and
looks over states, `identity` says which run one belongs to.
"""
