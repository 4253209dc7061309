"""The numbers of the driver and its engines.

`__main__` runs sections: `convergence`, `cost`, `settings`, `networks`, `endurance`, `claims`, on `problems`.
The other files are commands of their own: `engines`, `flower`, `chaos`, `actors`, `privacy`, `example`.
"""
