"""The complexity table: what is measured first, what is shown and refused, where labels stand."""

from __future__ import annotations

import io
import itertools
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from bench import __main__ as bench
from bench.complexity import __main__ as complexity
from bench.complexity import grid, overall, page, paper, peers, plots, report, summary
from bench.complexity.store import load
from bench.complexity.variants import found

pytestmark = pytest.mark.filterwarnings("ignore")


def cell(name, label, method, size, seconds):
    made = {"set": name, "variant": label, "method": method, "size": size, "seconds": seconds}
    same = dict.fromkeys(("low", "high", "least", "first"), seconds)
    rest = {
        "argsort": 1e-8 * size,
        "over_argsort": 1.0,
        "memory": 10**6 + 16 * size,
        "gap": 1e-15,
        "violation": 0.0,
    }
    return made | same | rest | {"peer": False, "outcome": "solved", "rounds": 5, "value": 1.0, "note": ""}


def about(variant, default):
    made = {"set": variant.name, "variant": variant.label, "default": default, "cost": variant.cost}
    return made | {"formulation": "LP", "parameters": "N", "largest": grid.largest(variant)}


@pytest.fixture(scope="module")
def document():
    """A made run of every set, whose times grow in proportion to N, two at a time alike."""
    notes = {
        "variants": [],
        "without": {},
        "missing": [],
        "late": [["burg", 10_000], ["burg", 0]],
        "budget": 60.0,
    }
    document = {"cells": [], "overall": [], "notes": notes, "groups": []}
    document["settings"] = {"sizes": list(grid.QUICK.sizes), "quick": True, "rounds": 5, "budget": 0.05}
    document["settings"] |= {"limit": 0.25, "programs_to": 1_000}
    document["machine"] = load(page.RESULTS / "complexity")["machine"]
    for number, each in enumerate(found()[0]):
        notes["variants"].append(about(each, "closed-form"))
        for size in grid.QUICK.sizes:
            for method, factor in (("closed-form", 1.0), (peers.NUMPY, 5.0), (peers.CVXPY, 800.0)):
                seconds = 1e-9 * size * factor * 1.05 ** (number // 2)
                document["cells"].append(cell(each.name, each.label, method, size, seconds))
    return document


def printed(document, width, **options):
    console = Console(width=width, file=io.StringIO())
    for table in report.rich_tables(document, width, **options):
        console.print(table)
    return console.file.getvalue()


class Clock(SimpleNamespace):
    """Stands for `time`: only processor time exists."""

    seconds = 0.0

    def process_time(self):
        return self.seconds


def run_without_measuring(monkeypatch, tmp_path, *arguments, cost=1.0):
    """Run the command with groups that take `cost` processor seconds each; return their keys in order."""
    clock, order = Clock(), []

    def measured(variant, size):
        order.append((variant.name, size))
        clock.seconds += cost
        return []

    monkeypatch.setattr(complexity, "time", clock)
    monkeypatch.setattr(grid, "measure", lambda variant, size, *rest: measured(variant, size))
    monkeypatch.setattr(
        overall, "measure", lambda variant, *rest: measured(variant, 0) or ROW | {"set": variant.name}
    )
    monkeypatch.setattr(plots, "draw", lambda *arguments: None)
    monkeypatch.setattr(complexity, "_about", about)
    monkeypatch.setattr(grid, "methods", lambda variant: (["closed-form"], "closed-form"))
    assert complexity.main(["--quick", "--out", str(tmp_path), *arguments]) == 0
    return order


ROW = {"gradient": 1.0, "oracle": 1.0, "driver": 1.0, "total": 3.0, "oracle_calls": 1}


def test_the_papers_sets_are_measured_whatever_the_budget(monkeypatch, tmp_path, capsys):
    order = run_without_measuring(monkeypatch, tmp_path, "--seconds", "0")
    assert {name for name, _ in order} == set(paper.CLAIMS)
    for name in ("box", "ellipsoid", "polyhedron", "kl", "wasserstein-1", "cd-norm"):
        assert {(name, 10**k) for k in range(1, 5)} <= set(order)
    assert {name for name, size in order if size == 0} == set(paper.CLAIMS)
    said = capsys.readouterr().out
    assert (
        "Left out: burg, chi-square and 13 more from N = 10 on, 15 whole runs (out of the budget of 0" in said
    )


def test_the_budget_is_in_processor_seconds_and_others_come_after_the_papers(monkeypatch, tmp_path):
    order = run_without_measuring(monkeypatch, tmp_path, "--seconds", "120")
    others = [(name, size) for name, size in order if name not in paper.CLAIMS]
    assert len(order) == 121  # the last one begins within the budget
    assert order[-len(others) :] == others
    assert [size for _, size in others] == sorted(size for _, size in others)


def test_eighty_columns_show_the_complexity_table_and_nothing_else(document):
    text = printed(document, 80)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert all(name in lines[1] for name in report.TERMINAL)
    assert "argsort" not in text
    assert "·(n²+m+Σk²)" in text  # a formula is broken before its signs
    assert "not in the paper" not in text


def test_wider_terminals_show_times_and_ratios_and_all_shows_everything(document):
    text = printed(document, 150)
    assert max(map(len, text.splitlines())) <= 150
    assert all(name in text.splitlines()[1] for name in report.WIDE)
    everything = printed(document, 250, everything=True)
    assert all(name in everything for name in report.HEADINGS)
    assert "Every method" in everything
    assert "Peak memory of a first call" in everything


def test_an_exponent_that_is_not_sure_is_a_dash(document):
    assert all(row["exponent"] == pytest.approx(1.0) for row in summary.rows(document))
    few = document | {"cells": [each for each in document["cells"] if each["size"] in {10, 100, 320}]}
    assert all(row["exponent"] == pytest.approx(1.0) for row in summary.rows(few))
    short = document | {"cells": [each for each in document["cells"] if each["size"] in {100, 320, 1_000}]}
    assert {row["exponent"] for row in summary.rows(short)} == {None}
    noisy = document | {"cells": [each | {"high": 9 * each["low"]} for each in document["cells"]]}
    assert {row["exponent"] for row in summary.rows(noisy)} == {None}
    column = report.HEADINGS.index("exponent")
    assert {entry[column] for entry in report.lines(noisy)} == {"–"}


def test_ratios_to_numpy_are_a_range_and_to_cvxpy_the_quicker_of_two(document):
    first = summary.rows(document)[0]
    assert (first["numpy_over_ours_least"], first["numpy_over_ours_most"]) == pytest.approx((5.0, 5.0))
    assert first["cvxpy_over_ours"] == pytest.approx(800.0)
    quicker = [cell("box", "", peers.CONSTANT, 10**6, 1e-3 * 300.0)]
    other = document | {"cells": [*document["cells"], *quicker]}
    assert summary.rows(other)[0]["cvxpy_over_ours"] == pytest.approx(300.0)
    (memory,) = summary.memory(other)
    assert (memory["set"], memory["size"]) == ("box", 10**6)
    assert memory["constant"] == 10**6 + 16 * 10**6


def test_what_was_left_out_is_one_line(document):
    line = report.left_out(document)
    assert line.startswith("Left out: burg from N = 10⁴ on, 1 whole run (out of the budget of 60 processor")
    assert "ellipsoid, dense and wasserstein-1, cost matrix above N = 3,200 (N² numbers)" in line
    assert "\n" not in line
    missing = document | {"notes": document["notes"] | {"missing": ["a (b)"], "without": {"c": "no example"}}}
    assert "not installed: a (b); c (no example)" in report.left_out(missing)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sets", "klx"], "no uncertainty set is called 'klx'; did you mean 'kl'?"),
        (["--sets", "box", "wasserstien"], "did you mean 'wasserstein'?"),
        (["--sets", "bench.complexity.grid:Settings"], "bench.complexity.grid:Settings is not a subclass of"),
        (["--sets", "uncertainty_sets.sets.kl:KLL"], "has no class KLL; did you mean 'KL'?"),
        (["--fresch"], "there is no option --fresch; did you mean '--fresh'?"),
        (["--larges=10", "--seets", "box"], "there is no option --seets; did you mean '--sets'?"),
    ],
)
def test_typos_are_refused_with_a_suggestion(arguments, words, capsys):
    with pytest.raises(SystemExit) as ended:
        complexity.main(["--quick", *arguments])
    assert ended.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_command_with_a_typo_is_refused_with_a_suggestion(capsys):
    assert bench.run(["complexty"]) == 2
    assert "bench has no command 'complexty'; did you mean 'complexity'?" in capsys.readouterr().err


OWN = '''
import cvxpy as cp

from uncertainty_sets import UncertaintySet


class Near(UncertaintySet):
    """Near the uniform distribution."""

    {name}

    def __init__(self, radius: float, size: int) -> None:
        self.radius, self.size = radius, size

    def constraints(self, p):
        return [cp.norm1(p - 1.0 / self.size) <= self.radius]

    @classmethod
    def example(cls, size, rng=None):
        return cls(0.1, size)


class Broken(UncertaintySet):
    def constraints(self, p):
        return []

    @classmethod
    def example(cls, size, rng=None):
        raise KeyError("no idea")
'''


def test_a_set_of_ones_own_is_named_by_module_and_class(monkeypatch, tmp_path):
    (tmp_path / "own_sets_for_this_test.py").write_text(OWN.format(name=""), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    name = "own_sets_for_this_test:Near"
    variants, without = found([name, "box", "box", "own_sets_for_this_test:Broken"])
    assert [each.title for each in variants] == [name, "box"]
    assert without == {"own_sets_for_this_test:Broken": "no example: KeyError: 'no idea'"}
    assert not variants[0].closed_form
    able, default = grid.methods(variants[0])
    (solved, *_) = grid.measure(variants[0], 10, able, default, [], [], grid.QUICK)
    assert solved["set"] == name
    assert solved["outcome"] == "solved"
    assert 0.0 <= abs(solved["gap"]) < 1e-6


def overlaps(figure):
    """Pairs of labels of the panels whose boxes meet, without their leaders."""
    from matplotlib.text import Text

    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [Text.get_window_extent(text) for text in axes.texts]
        yield from (pair for pair in itertools.combinations(boxes, 2) if pair[0].overlaps(pair[1]))


def test_labels_of_the_pictures_do_not_overlap(document):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    plots._times(figure, document)
    assert sum(len(axes.texts) for axes in figure.axes) > 24
    assert list(overlaps(figure)) == []


def test_the_page_shows_the_committed_results():
    results, oracles = load(page.RESULTS / "complexity"), load(page.RESULTS / "oracles.json")
    target = page.ROOT / "docs" / "complexity.md"
    text = page.page(results, oracles, page.RESULTS / "complexity", target)
    assert target.read_text(encoding="utf-8") == text, "run python -m bench page"
    assert (page.RESULTS / "oracles.md").read_text(encoding="utf-8") == page.promises(oracles)
    assert (page.RESULTS / "complexity" / "table.md").read_text(encoding="utf-8") == report.markdown(results)


def test_the_page_says_what_its_table_says(document):
    rows = summary.rows(document)
    text = page.found(document)
    for row in rows:
        if row["our_cost"] == "O(N)" and row["over_argsort"]:
            low, high = re.search(r"take ([\d.,]+) to ([\d.,]+) times as long as one", text).groups()
            assert float(low) <= row["over_argsort"] * 1.01
            assert row["over_argsort"] <= float(high.replace(",", "")) * 1.01
