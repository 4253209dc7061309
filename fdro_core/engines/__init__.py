"""Engines carry messages between the master and the workers, and keep time.

One file or folder per engine: `virtual`, `threads`, `ray_`, `flower_`. The parts: `delays` of the virtual
engine, and `wall_clock`, which engines on a wall clock share. `protocol.engine.ENGINES` finds an engine by
the `name` of its class.
"""
