"""The numbers promised for the oracles: `__main__` lists the parts, a file each.

`certificates` rechecks answers in plain NumPy; `process` measures in new processes.
"""
