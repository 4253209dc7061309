"""Training runs: the run file (TOML) that describes one, and the folder that it is written to.

In the order in which one would read:

- `execute` trains or resumes, tests on the way, and writes the result;
- `setup` makes workers, set, algorithm and engine from a run file; `fields` reads it, and knows every line;
- `data` has every worker's samples, `workers` their problems;
- `folder` is where a run is written, `records` what its JSON files may hold, `summary` its numbers;
- `comparing` tells what differs between runs, and whether it is more than noise.
"""
