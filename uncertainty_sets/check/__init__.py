"""`check_set`: the properties that every set must have, tried on one.

`check` has the function and its report, `properties` the promises, a function for each, and `subject` what
these look at: the set, losses of every kind, and the same maximum by cvxpy.
"""
