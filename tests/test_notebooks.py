"""The notebooks of the documentation: each runs, is valid, and its last paragraph is true."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("matplotlib")

WIDTH = 84  # of a code block in the pages, in letters
DOCS = Path(__file__).resolve().parent.parent / "docs"


def load():
    spec = importlib.util.spec_from_file_location("run_notebooks", DOCS / "run_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


notebooks = load()
SOURCES = notebooks.sources()


# -- what the texts say ------------------------------------------------------------------------------


def means(runs):
    return {name: np.mean([run[name] for run in runs], axis=0) for name in runs[0]}


def check_classifier(names):
    hospitals, digits = means(names["hospitals"]), means(names["digits"])
    assert len(names["hospitals"]) == len(names["digits"]) == 10
    gain = hospitals["robust"] - hospitals["ordinary"]
    assert gain[0] == pytest.approx(0.20, abs=0.03)
    assert hospitals["robust"][0] - hospitals["equal hospitals"][0] == pytest.approx(0.09, abs=0.02)
    assert -0.04 < gain[1] < -0.03
    spread = np.std([run["robust"][0] - run["ordinary"][0] for run in names["digits"]])
    assert abs(digits["robust"][0] - digits["ordinary"][0]) < spread
    assert names["robust"].gap_ < 1e-4


def check_federated(names):
    fed, everyone, four = (names["table"][name].mean(axis=0) for name in names["methods"])
    assert four[1] - fed[1] > 0.2
    assert fed[2] - four[2] == pytest.approx(0.02, abs=0.01)
    assert four[:3] == pytest.approx([four[0], everyone[1], everyone[2]], abs=2e-3)  # the same model
    assert 1 - four[0] / everyone[0] == pytest.approx(0.2, abs=0.07)
    assert 1 - four[3] / everyone[3] > 1 - four[0] / everyone[0]
    assert names["result"].gap < 1e-6
    assert names["answer"].p == pytest.approx(names["result"].worst_case.p)
    assert int(np.argmax(names["result"].worst_case.p)) == names["names"].index("H")


def check_groups_in_torch(names):
    mean, by_size, robust, online = (np.mean(rows, axis=0) for rows in names["found"].values())
    assert names["without"] > 0.5
    assert robust[0] - mean[0] > 0.4
    assert mean[1] - robust[1] == pytest.approx(0.08, abs=0.02)
    worst = {name: [row[0] for row in rows] for name, rows in names["found"].items()}
    assert abs(robust[0] - by_size[0]) < np.std(worst["GroupRobustLoss"]) + np.std(worst["weights by size"])
    assert abs(robust[0] - online[0]) < np.std(worst["GroupRobustLoss"]) + np.std(worst["online update"])


def check_robust_mdp(names):
    assert names["promised"] == pytest.approx(0.32, abs=0.005)
    assert names["kept"] == pytest.approx(0.03, abs=0.005)
    assert names["cost"] == pytest.approx(0.02, abs=0.005)
    nominal, robust = names["drawn"].T
    assert np.mean(robust > nominal) > 0.5
    assert robust.min() > 0.3 > nominal.min() + 0.1
    assert np.sum(np.array(names["nominal"].actions) != names["robust"].actions) == 3
    table = names["perturbed"](0.1)  # what policies earn there, by a linear system
    policy = np.arange(0, 64, 4) + names["robust"].actions
    P = np.zeros((64, 16))
    np.add.at(P, (names["rows"], table.indices), table.probabilities)
    rewards = np.bincount(names["rows"], table.probabilities * (table.indices == 15) * (names["rows"] < 60))
    by_hand = np.linalg.solve(np.eye(16) - 0.99 * P[policy], rewards[policy])
    assert names["earned"](table)[1] == pytest.approx(by_hand[0], rel=1e-5)
    assert names["V"][0] == pytest.approx(names["robust"].lower[0], abs=1e-5)
    wetter, drier = names["earned"](names["lake"](0.6)), names["earned"](names["lake"](1.0))
    assert wetter[1] < wetter[0]
    assert drier[0] < 1e-9 < 0.9 < drier[1]


def check_portfolio(names):
    found = names["found"]
    kept = {name: np.mean(rows[:, 1] >= rows[:, 0]) for name, rows in found.items()}
    _, past_earned, past_tail = found["past days"].mean(axis=0)
    _, earned, tail = found["KL 0.02"].mean(axis=0)
    assert kept["KL 0.02"] == 1.0
    assert kept["past days"] < 0.5
    assert tail < past_tail / 2
    assert earned < past_earned / 2
    assert found["CVaR 10 %"].mean(axis=0)[1] < min(
        found[name].mean(axis=0)[1] for name in found if "KL" in name
    )
    assert names["least"] == pytest.approx(names["bound"], rel=1e-4)
    assert names["value"] == pytest.approx(-found["CVaR 10 %"][-1, 0])  # the last that was solved
    assert names["by_hand"] == pytest.approx(names["value_tail"], rel=1e-6)
    assert names["boxed"] == pytest.approx(names["value_tail"], rel=1e-6)
    assert names["limit_kept"] == pytest.approx(5.0, rel=1e-4)


def check_audit_groups(names):
    ordinary, robust = (names["failures"][name] for name in ("ordinary", "robust"))
    assert abs(names["audits"]["ordinary"].mean - names["audits"]["robust"].mean) < 0.03
    assert ordinary.radius < robust.radius
    assert max(ordinary.shares, key=lambda share: share.then / share.now).group == "H"
    assert all(len(each.statements()) == 3 for each in names["failures"].values())


def check_audit_models(names):
    one, other = (each.mean() for each in names["losses"].values())
    assert abs(one - other) < 0.05
    pair = names["pair"]
    assert pair.first_is_better[0]
    assert pair.second_is_better[-1]
    assert len(pair.crossings) == 1


def check_audit_regression(names):
    assert "temperature" in names["world"].cells[0].rule
    plain, _, wide = names["rows"].values()
    assert plain[0] == pytest.approx(0.9, abs=0.015)
    assert plain[1] < 0.88
    assert wide[1] >= 0.9
    assert plain[2] < wide[2]


def check_audit_evals(names):
    failure = names["report"].failure
    careless = names["careless"].group_radius_to_failure("kl", 0.25)
    assert failure.at_least < careless.at_least < failure.radius
    assert np.ptp(failure.interval) > np.ptp(careless.interval)
    assert max(failure.shares, key=lambda share: share.then - share.now).group == "math"


def check_learned_radius(names):
    radius, value, slope = names["path"][-1]
    best = int(np.argmin(names["values"]))
    assert names["grid"][best - 1] < radius < names["grid"][best + 1]
    assert value <= names["values"][best] + 1e-3
    assert abs(slope) < 0.01
    off = [((names["X_test"] @ names[w] - names["y_test"]) ** 2) for w in ("plain", "w")]
    assert off[1].mean() < 0.85 * off[0].mean()
    predicted, again = 0.01 * names["influence"][:, names["k"]], names["again"] - names["w"]
    assert float((predicted - again).norm()) < 0.02 * float(again.norm())
    squares, decision = (
        float(names["earned"](names[each].detach(), names["S_test"], names["R_test"]))
        for each in ("squares", "parameters")
    )
    assert decision > squares + 0.03 > float(names["equal"]) + 0.2


def checks(name):
    return globals()["check_" + name.replace("-", "_")]


def ran(path):
    notebook = notebooks.read(path)
    if notebook.missing:
        pytest.skip(f"needs {', '.join(notebook.missing)}")
    notebooks.run(notebook, path)
    return notebook


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_runs_and_says_what_is_true(path, tmp_path):
    notebook = ran(path)
    checks(path.stem)(notebook.names)
    notebooks.write(notebook, tmp_path)
    file = nbformat.read(tmp_path / f"{path.stem}.ipynb", as_version=4)
    nbformat.validate(file)
    code = [cell for cell in file.cells if cell.cell_type == "code"]
    assert [cell.source for cell in code] == [cell.source for cell in notebook.cells if cell.code]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert max(len(line) for cell in notebook.cells for line in cell.text.splitlines()) <= WIDTH
    pictures = [output for cell in code for output in cell.outputs if "image/png" in output.get("data", {})]
    assert len(pictures) >= 1
    assert len(list(tmp_path.glob("*.png"))) == len(pictures)
    assert all(cell.caption for cell in notebook.cells if cell.pictures), "a picture without words for it"
    assert "](../" not in str(file), "a downloaded notebook has no pages beside it"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_says_what_it_needs_and_what_is_gained(path):
    text = path.read_text(encoding="utf-8")
    assert re.search(r'^To run it: `pip install "fdro\[[\w,]+\]" jupyterlab`', text, re.MULTILINE)
    for word in ("Gain", "Price", "No gain"):
        assert re.search(rf"\*\*{word}\b", text), f"does not say: {word}"
    for cell in notebooks.parse(text):
        if cell.code:
            assert max(map(len, cell.source.splitlines())) <= WIDTH, "a line that a page cuts off"


# -- the runner --------------------------------------------------------------------------------------

PAGE = """# Two cells

What it shows, and [a page](../start.md).

```python
x = 2
print("x is", x)
x + 1
```

Between.

```python
# A line that rises.
from matplotlib import pyplot
_ = pyplot.plot([x, 3])
```
"""


def made(tmp_path, text):
    path = tmp_path / "two.md"
    path.write_text(text, encoding="utf-8")
    notebook = notebooks.read(path)
    notebooks.run(notebook, path)
    return notebook


def test_outputs_come_below_their_cells(tmp_path):
    notebook = made(tmp_path, PAGE)
    page = notebooks.page_of(notebook, "../out")
    assert notebook.title == "Two cells"
    assert notebook.summary == "What it shows, and a page."
    parts = (
        "# Two cells",
        "{download}`two.ipynb <../out/two.ipynb>`",
        "x + 1",
        "x is 2\n3",
        "Between.",
        "two-1.png",
    )
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert ":alt: A line that rises.\n" in page
    assert notebook.cells[3].pictures[0].startswith(b"\x89PNG")
    assert "two-1.png" in notebooks.card_of(notebook, "../out")


def test_a_notebook_is_the_same_in_every_build(tmp_path):
    first, second = (notebooks.jupyter_of(made(tmp_path, PAGE)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\n\n1 / 0", r"two\.md, line 12: ZeroDivisionError"),
        ("def f():\n    raise KeyError('no')\n\nf()", r"two\.md, line 11: KeyError"),
        ("import warnings\nwarnings.warn('old')", r"two\.md, line 11: UserWarning"),
        ("x = (", r"two\.md, line \d+: SyntaxError"),
    ],
)
def test_an_error_or_warning_fails_the_build(tmp_path, code, message):
    with pytest.raises(notebooks.CellFailed, match=message):
        made(tmp_path, f"# Title\n\nText.\n\n```python\ny = 0\n```\n\n```python\n{code}\n```\n")


def test_without_a_package_the_page_says_so_and_nothing_runs(tmp_path):
    notebook = made(tmp_path, PAGE.replace("What it", "<!-- needs: no_such_package -->\n\nWhat it"))
    assert notebook.missing == ["no_such_package"]
    page = notebooks.page_of(notebook, "../out")
    assert "{admonition} no_such_package was not installed" in page
    assert "x + 1" in page
    assert "x is 2" not in page
    assert "no_such_package was not installed" in notebooks.card_of(notebook, "../out")
    file = notebooks.jupyter_of(notebook)
    assert [cell.outputs for cell in file.cells if cell.cell_type == "code"] == [[], []]
    assert notebook.summary == "What it shows, and a page."
