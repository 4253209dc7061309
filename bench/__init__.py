"""Measurements: `python -m bench` lists them; none of it is part of the installed package.

- `complexity`, `oracles`, `mdp`, `soak`: speed, accuracy and robustness of the oracles;
- `driver`, `network`, `estimators`: the same of training;
- `experiments`: the paper's tables and figures, on the data of `datasets`;
- `measuring` and `display` are what all share; `loop` measures what everyone waits for;
- `results` has committed results, from which pages quote.
"""
