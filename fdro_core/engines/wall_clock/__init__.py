"""What engines on a wall clock share: all of the engine except the transport (docs/add-an-engine.md)."""

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
