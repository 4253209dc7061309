"""Ray's hosts compile kernels on machines without a folder that they may write to."""

from __future__ import annotations

import stat

from tests.fdro_core.engine_kinds import needs_ray
from tests.uncertainty_sets.kernels import tiny
from tests.uncertainty_sets.kernels.test_build import NOWHERE

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
def test_hosts_compile_without_a_cache(tmp_path):
    code = tiny.package(tmp_path / "code")
    for path in [code, *code.rglob("*")]:
        if path.is_dir():
            path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert tiny.run(code, HOSTS, **NOWHERE)[0] == "[3.0, 3.0]"
