"""Ray's hosts compile kernels on machines without a folder that they may write to."""

from __future__ import annotations

from tests.uncertainty_sets.test_without_a_cache import NOWHERE, read_only, run, tiny

from tests.fdro_core.engine_kinds import needs_ray

__all__ = ["tiny"]  # a fixture

HOSTS = """
import os
from fdro_core.engines.ray_ import cluster
cluster.connect(None)
ray = cluster.load()
@ray.remote
class Host:
    def ask(self):
        from tiny.kernels.second import twice
        return twice(1.0), os.getpid()
hosts = [Host.remote() for _ in range(2)]
answers = ray.get([host.ask.remote() for host in hosts])
assert len({process for _, process in answers} | {os.getpid()}) == 3
print([value for value, _ in answers])
ray.shutdown()
"""


@needs_ray
def test_hosts_compile_without_a_cache(tiny):
    read_only(tiny)
    assert run(tiny, HOSTS, **NOWHERE) == "[3.0, 3.0]"
