"""The master of a run on Ray in the test bed.

`python -m bench.network.ray_master FOLDER ADDRESS SITES SECONDS`: where to write, the head, the resources of
the nodes, and how long a gradient takes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.network.problem import make_problem
from bench.network.run_log import train
from fdro_core import ProblemFrom, RayEngine

WORKERS, ITERATIONS = 6, 2000

if __name__ == "__main__":
    folder, address, sites, seconds = sys.argv[1:]
    problems = [ProblemFrom(make_problem, {"worker": j}, seconds=float(seconds)) for j in range(WORKERS)]
    engine = RayEngine(address=address, hosts=[{site: 0.1} for site in sites.split(",")])
    train(Path(folder), problems, engine, ITERATIONS)
