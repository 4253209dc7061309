"""The engine on Ray: `engine` runs the workers, `cluster` joins or starts a cluster."""

from fdro_core.engines.ray_.engine import RayEngine

__all__ = ["RayEngine"]
