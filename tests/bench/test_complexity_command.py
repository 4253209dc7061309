"""`python -m bench complexity` on tiny sizes: formats, resuming, plug-ins, prediction, plots, comparison."""

from __future__ import annotations

import copy
import csv
import json

import numpy as np
import pytest

from bench.complexity import __main__ as complexity
from bench.complexity import compare, grid, page, paper, peers, report, summary, variants
from bench.complexity.store import Store, load
from uncertainty_sets import UncertaintySet
from uncertainty_sets.base import SETS

pytestmark = pytest.mark.filterwarnings("ignore")

TINY = ["--quick", "--largest", "1000"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One small run that the tests of this file look at."""
    out = tmp_path_factory.mktemp("complexity")
    assert complexity.main([*TINY, "--sets", "box", "polyhedron", "--out", str(out)]) == 0
    return out


@pytest.fixture
def document(folder):
    return load(folder)


def test_all_files_are_written_and_parse(folder, document):
    names = {"results.json", "table.md"}
    names |= {f"{name}.csv" for name in ("table", "methods", "memory", "cells", "overall")}
    assert names <= {path.name for path in folder.iterdir()}
    with (folder / "cells.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(document["cells"])
    with (folder / "table.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["set"] for row in rows] == ["box", "polyhedron"]
    lines = (folder / "table.md").read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("|")]
    heads = {line.replace("\\|", "").count("|") for line in table[: 2 + len(rows)]}
    assert heads == {len(report.HEADINGS) + 1}


def test_every_backend_that_can_do_a_set_is_there(document):
    methods = {cell["method"] for cell in document["cells"] if cell["set"] == "box"}
    assert {"closed-form", "clarabel", "highs", "cvxpy"} <= methods
    assert {peers.CVXPY, peers.CONSTANT, peers.NUMPY} <= methods
    assert "closed-form" not in {cell["method"] for cell in document["cells"] if cell["set"] == "polyhedron"}


def test_methods_agree_where_they_give_a_value(document):
    best = {
        (cell["set"], cell["size"]): cell["value"]
        for cell in document["cells"]
        if cell["method"] in {"closed-form", "highs"}
    }
    for cell in document["cells"]:
        if cell["value"] is not None:
            assert cell["value"] == pytest.approx(best[cell["set"], cell["size"]], abs=1e-4)


def test_the_machine_is_described_without_names_or_paths(document):
    assert set(document["machine"]) == {
        "date",
        "processor",
        "cores",
        "memory_gb",
        "system",
        "python",
        "versions",
        "load",
    }


def test_plots_come_as_png_and_svg(folder):
    pytest.importorskip("matplotlib")
    for name in ("times", "memory", "methods", "paper"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (folder / f"{name}.svg").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_a_finished_run_measures_nothing_again(folder, monkeypatch):
    def never(*arguments):
        raise AssertionError("measured again")

    monkeypatch.setattr(grid, "measure", never)
    assert complexity.main([*TINY, "--sets", "box", "polyhedron", "--out", str(folder)]) == 0


@pytest.mark.thorough
def test_an_interrupted_run_keeps_what_is_done_and_goes_on(tmp_path, monkeypatch, capsys):
    measured = []

    def stop_at_third(variant, size, *rest):
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(size)
        return real(variant, size, *rest)

    real = grid.measure
    monkeypatch.setattr(grid, "measure", stop_at_third)
    arguments = [*TINY, "--sets", "box", "--out", str(tmp_path)]
    assert complexity.main(arguments) == 130
    assert "Interrupted" in capsys.readouterr().out
    assert len(load(tmp_path)["groups"]) == 2

    monkeypatch.setattr(grid, "measure", lambda variant, size, *rest: [])
    assert complexity.main(arguments) == 0
    groups = [group for group in load(tmp_path)["groups"] if group[0] == "cells"]
    assert [group[-1] for group in groups] == [10, 100, 320, 1_000]
    assert "Continuing from 2 groups" in capsys.readouterr().out


@pytest.mark.thorough
def test_what_the_deadline_leaves_is_said_and_done_by_the_next_run(tmp_path, capsys):
    arguments = ["--quick", "--largest", "10", "--sets", "cvar", "--out", str(tmp_path)]
    assert complexity.main([*arguments, "--seconds", "0"]) == 0
    said = capsys.readouterr().out
    assert "Left out: cvar from N = 10 on, 1 whole run (out of the budget of 0 processor seconds;" in said
    assert complexity.main(arguments) == 0
    assert load(tmp_path)["notes"]["late"] == []


def test_other_settings_start_a_new_run(tmp_path):
    store = Store(tmp_path / "results.json", {"seed": 0})
    store.add(["cells", 1], "cells", [{"a": 1}])
    assert Store(tmp_path / "results.json", {"seed": 0}).resumed
    assert not Store(tmp_path / "results.json", {"seed": 1}).resumed
    assert not Store(tmp_path / "results.json", {"seed": 0}, fresh=True).resumed


@pytest.mark.thorough
def test_a_plug_in_is_found_and_measured_without_being_listed(tmp_path):
    import cvxpy as cp

    class Near(UncertaintySet):
        name = "near-for-this-test"

        def __init__(self, center, radius):
            self.center, self.radius = np.asarray(center), radius
            self.size = self.center.size

        def constraints(self, p):
            return [cp.norm1(p - self.center) <= self.radius]

    try:
        arguments = ["--quick", "--largest", "10", "--sets", Near.name, "--out", str(tmp_path)]
        assert complexity.main(arguments) == 0
        (row,) = summary.rows(load(tmp_path))
        assert (row["method"], row["formulation"], row["parameters"]) == ("highs", "LP", "N + 1")
        assert row["paper_cost"] == ""
    finally:
        SETS.forget(Near.name)


def test_a_set_without_an_example_is_named(monkeypatch):
    class Strange(UncertaintySet):
        name = "strange-for-this-test"

        def __init__(self, anything):
            self.anything = anything

        def constraints(self, p):
            return []

    try:
        found, without = variants.found()
        assert list(without) == [Strange.name]
        assert without[Strange.name].startswith("no example: ")
        assert Strange.name not in {each.name for each in found}
    finally:
        SETS.forget(Strange.name)


def made_cell(size, first, method="closed-form"):
    return {"set": "box", "variant": "", "method": method, "size": size, "first": first}


def test_a_method_leaves_when_its_next_call_would_take_too_long():
    box = variants.Variant("box", "", None, "O(N)")
    quadratic = [made_cell(100, 0.01), made_cell(1_000, 1.0)]
    assert grid.expected(quadratic, box, "closed-form", 10_000, 4.0) == pytest.approx(100.0)
    assert grid.expected(quadratic, box, "highs", 10_000, 4.0) == 0.0
    fixed = [made_cell(10, 0.002), made_cell(100, 0.002)]
    assert grid.expected(fixed, box, "closed-form", 1_000, 4.0) == pytest.approx(0.002)


@pytest.mark.parametrize(
    ("name", "power"), [("box", 1.0), ("kl", 3.5), ("ellipsoid", 3.0), ("wasserstein-1", 7.0)]
)
def test_the_papers_formulas_grow_as_printed(name, power):
    low, high = paper.operations(name, [1e7, 1e8])
    assert np.log10(high / low) == pytest.approx(power, abs=0.1)
    assert paper.overall(name).startswith("O(K₁/ε³ + ⌊T₁/k⌋·")


def test_the_paper_counts_more_for_more_constraints_and_digits():
    for name in ("ellipsoid", "polyhedron", "wasserstein-1"):
        assert paper.operations(name, [50.0], m=5) > paper.operations(name, [50.0], m=1)
        assert paper.operations(name, [50.0], eps=0.1) > paper.operations(name, [50.0], eps=0.9)
    assert paper.operations("no such set", [50.0]) is None


@pytest.mark.parametrize(
    ("size", "text"), [(10, "10"), (100, "10²"), (3_000, "3·10³"), (10**6, "10⁶"), (1_234, "1,234")]
)
def test_sizes_as_people_write_them(size, text):
    assert report.power(size) == text


def test_peers_give_the_value_of_the_closed_form():
    rng = np.random.default_rng(0)
    for variant in variants.found()[0]:
        uncertainty_set, losses = variant.make(7, rng), rng.normal(size=7)
        best = uncertainty_set.worst_case(losses).value
        for peer in peers.present():
            if peer.can(variant):
                value = peer.make(uncertainty_set, 7)(losses)
                assert np.isnan(value) or value == pytest.approx(best, abs=1e-4), peer.title


def test_missing_peers_are_named():
    assert len(peers.present()) + len(peers.missing()) == len(peers.PEERS)


def slower(document, factor):
    other = copy.deepcopy(document)
    for cell in other["cells"]:
        if cell["method"] == "closed-form" and cell["over_argsort"]:
            cell["over_argsort"] *= factor
    return other


def written(path, document):
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def test_compare_shows_a_regression(folder, document, tmp_path, capsys):
    other = written(tmp_path / "slower.json", slower(document, 3.0))
    assert compare.main([str(folder), other]) == 1
    said = capsys.readouterr().out
    assert "3.00 slower" in said
    assert "4 worse" in said


def test_compare_shows_an_improvement_and_no_change(folder, document, tmp_path, capsys):
    other = written(tmp_path / "faster.json", slower(document, 0.2))
    assert compare.main([str(folder), other]) == 0
    assert "faster" in capsys.readouterr().out
    assert compare.main([str(folder), str(folder), "--all"]) == 0
    assert "0 worse" in capsys.readouterr().out


def test_compare_reads_the_direction_of_oracle_numbers():
    def made(speed_up, time):
        rows = [
            {"group": "g", "what": "over cvxpy", "value": speed_up, "at_least": True},
            {"group": "g", "what": "time", "value": time, "at_least": False},
        ]
        return {"command": "oracles", "rows": rows}

    found, alone = compare.changes(made(1000.0, 2.0), made(250.0, 1.0))
    assert [(change.what, change.ratio) for change in found] == [("g: over cvxpy", 4.0), ("g: time", 0.5)]
    assert alone == []


def test_compare_says_what_is_wrong_with_a_file(tmp_path, folder):
    with pytest.raises(SystemExit, match="does not exist"):
        compare.main([str(tmp_path / "none.json"), str(folder)])
    bad = tmp_path / "bad.json"
    bad.write_text("{", encoding="utf-8")
    with pytest.raises(SystemExit, match="not a result file"):
        compare.main([str(bad), str(folder)])


def test_the_page_is_written_from_the_results(folder, document, tmp_path, capsys):
    target = tmp_path / "page.md"
    oracles = {
        "schema": 1,
        "command": "oracles",
        "quick": True,
        "machine": document["machine"],
        "rows": [
            {
                "group": "made",
                "what": "a number",
                "value": 0.25,
                "unit": "×",
                "limit": 0.5,
                "at_least": False,
                "low": None,
                "high": None,
                "met": True,
            }
        ],
    }
    promises = written(tmp_path / "oracles.json", oracles)
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n", encoding="utf-8")
    files = ["--results", str(folder), "--oracles", promises, "--to", str(target), "--readme", str(readme)]
    assert page.main(files) == 0
    short = readme.read_text(encoding="utf-8")
    assert short.startswith("before\n")
    assert short.endswith("\nafter\n")
    assert "old" not in short
    assert page.short_table(document) in short
    text = target.read_text(encoding="utf-8")
    assert "1 of 1 promises" in text
    assert "| a number (made) | ≤ 0.5 × | 0.25 × |  | yes |" in (tmp_path / "oracles.md").read_text("utf-8")
    oracles["rows"][0]["met"] = False
    assert "| a number (made) |" in page.page(document, oracles, folder, target)
    assert report.lines(document)[0][5] in text
    capsys.readouterr()


def test_the_readme_shows_the_committed_results():
    text = (page.ROOT / "README.md").read_text(encoding="utf-8")
    assert page.with_times(text, load(page.RESULTS / "complexity")) == text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("missing", "there is no module or file missing"),
        ("missing.sets", "No module named 'missing'"),
        ("missing.py", "No module named 'missing'"),
        ("some/missing.py", "there is no Python file of that name"),
    ],
)
def test_a_module_that_is_not_there_is_named(given, said, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        complexity.main(["--quick", "--with", given, "--out", str(tmp_path)])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
