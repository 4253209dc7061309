"""Any set by a conic solver.

| file | does |
|---|---|
| `program` | says what a conic program is, and rescales it |
| `compile` | makes one from a set's `constraints`, by cvxpy, and keeps it, with the solvers that hold it |
| `oracle` | solves it for given losses and checks the answer |
| `certificate` | repairs the solver's multipliers into a valid upper bound |
| `elastic` | says by how much a program must be widened to have a point: emptiness, inside, membership |
| `membership` | measures how far a distribution is from the set, and finds one in it |
| `support` | makes an oracle's value a cvxpy expression, which turns into its dual problem |
"""
