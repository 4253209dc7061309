"""What engines on a wall clock share, all but the transport (docs/add-an-engine.md), in the order of reading.

`transport` has the five methods that an engine adds, and what arrives; `engine` everything else; `records`
what is kept of workers, who are made again; `host` what runs them in another process.
"""

from fdro_core.engines.wall_clock.engine import WallEngine
from fdro_core.engines.wall_clock.records import WorkerRecord, make_worker, restore_worker
from fdro_core.engines.wall_clock.transport import Answer, Arrival, WorkersLost, WorkersReady

__all__ = [
    "Answer",
    "Arrival",
    "WallEngine",
    "WorkerRecord",
    "WorkersLost",
    "WorkersReady",
    "make_worker",
    "restore_worker",
]
