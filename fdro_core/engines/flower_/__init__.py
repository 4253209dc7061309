"""The engine on Flower, in the order of reading.

`engine` is the master's side, `mailbox` its requests on their way and who is which node; `client` is the
workers' side, `problem` which worker a node may make. `wire` has requests and responses, `codec` what they
are written in; `package` imports Flower.
"""

from fdro_core.engines.flower_.client import client_app
from fdro_core.engines.flower_.engine import FlowerEngine
from fdro_core.engines.flower_.package import server_app
from fdro_core.engines.flower_.problem import NamedProblem

__all__ = ["FlowerEngine", "NamedProblem", "client_app", "server_app"]
