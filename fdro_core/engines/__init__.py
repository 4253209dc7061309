"""Engines carry messages between the master and the workers, and keep time.

In the order of reading: `virtual`, one process and a virtual clock, with `delays` for its laws and faults;
`threads`, `ray_` and `flower_` on a wall clock, with `wall_clock` for what they share. An engine is one file
or folder; `protocol.engine.ENGINES` finds it by the `name` of its class.
"""
