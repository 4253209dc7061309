"""Training runs: the run file (TOML) that describes one, and the folder that it is written to.

In the order in which one would read:

- `execute` trains or resumes, tests on the way, and writes the result;
- `setup` makes workers, set, algorithm and engine from a run file; `fields` reads it, and knows every line;
- `workers` has every worker's samples and problem;
- `folder` is where a run is written, and says what its files may hold; `summary` has the numbers of a result;
- `comparing` tells what differs between runs, and whether it is more than noise.
"""
