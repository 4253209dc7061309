"""The engine on Flower: `engine` is the master's side, `client` the workers', `codec` what passes between."""

from fdro_core.engines.flower_.client import client_app
from fdro_core.engines.flower_.engine import FlowerEngine
from fdro_core.engines.flower_.problem import NamedProblem
from fdro_core.engines.flower_.server import server_app

__all__ = ["FlowerEngine", "NamedProblem", "client_app", "server_app"]
