"""Every command of the experiments in its quick form on digits, and the pages that quote their results."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from bench.__main__ import run
from bench.display.tables import Table
from bench.experiments.commands import heterogeneity, options, quote
from bench.experiments.runs import methods, stopping
from bench.experiments.runs.perform import perform
from bench.experiments.runs.task import read
from tests.bench.short import SHORT


@pytest.mark.parametrize(
    ("command", "more", "files"),
    [
        (
            "heterogeneity",
            ["--methods", "FedAvg", "AFL", "AspireModels"],
            ["tables.md", "methods-digits.png", "methods-digits.svg"],
        ),
        (
            "heterogeneity",
            ["--methods", "AFL + P", "AspireModels", "ASPIRE-EASE"],
            ["tables.md", "methods-digits.png", "methods-digits.svg"],
        ),
        ("attack", ["--methods", "Mix_Even", "AspireModels"], ["tables.md", "success.png"]),
        ("robustness", ["--sets", "cd-norm", "kl", "--sizes", "2"], ["tables.md", "size-digits.svg"]),
    ],
)
@pytest.mark.few(1)
def test_quick_commands_on_digits(command, more, files, tmp_path, capsys):
    arguments = [command, "--quick", "--data", "digits", "--gradients", "100", "--out", str(tmp_path), *more]
    assert run(arguments) == 0
    lines = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert {line["data"] for line in lines} == {"digits"}
    assert {line["seed"] for line in lines if line["stage"] == "run"} == {0, 1}
    assert all((tmp_path / name).stat().st_size > 500 for name in files)
    assert "AspireModels" in capsys.readouterr().out
    before = (tmp_path / "runs.jsonl").read_bytes()
    assert run(arguments) == 0  # nothing is left to do
    assert (tmp_path / "runs.jsonl").read_bytes() == before


def test_a_rehearsal_on_digits(tmp_path, capsys):
    arguments = ["rehearse", "--quick", "--gradients", "60", "--repeats", "2", "--out", str(tmp_path)]
    assert run([*arguments, "--methods", "AFL", "AspireModels"]) == 0
    shown = (tmp_path / "tables.md").read_text()
    assert all(rule in shown for rule in stopping.RULES)
    assert "search with 1 seed |" in shown
    with pytest.raises(SystemExit, match="at least 2"):
        run([*arguments, "--repeats", "1"])
    with pytest.raises(SystemExit, match="no method is called 'SGD'"):
        run([*arguments, "--methods", "SGD"])


def file_of(page: str, name: str) -> str:
    """A file that a page shows."""
    text = (quote.ROOT / "docs" / page).read_text(encoding="utf-8")
    return text.partition(f"```py\n# {name}\n")[2].partition("```\n")[0]


@pytest.mark.thorough
def test_a_method_and_data_of_ones_own(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(file_of("paper-experiments.md", "mine.py"))
    out = tmp_path / "out"
    given = ["heterogeneity", "--quick", "--gradients", "60", "--with", str(mine), "--data", "even-digits"]
    command = [sys.executable, "-m", "bench", *given, "--jobs", "2", "--out", str(out)]
    subprocess.run(command, check=True, cwd=quote.ROOT, capture_output=True)
    lines = read(out / "runs.jsonl")
    assert {line["data"] for line in lines} == {"even-digits"}
    mine_only = [line for line in lines if line["method"] == "ASPIRE-EASE, KL"]
    assert {line["stage"] for line in mine_only} == {"tune", "run"}
    tried = [line["settings"] for line in mine_only if line["stage"] == "tune"]  # in the order they ended
    assert len(tried) == 2
    assert {"step": 0.5, "penalty": 1.0, "radius": 0.3} in tried
    table = (out / "tables.md").read_text()
    assert "| ASPIRE-EASE, KL |" in table
    assert "paper" not in table  # it has nothing on this data


def test_own_methods_that_cannot_be_searched_are_refused(tmp_path, capsys):
    with pytest.raises(ValueError, match="search and default must name the same settings"):
        methods.register(methods.Method("mine", methods.ease(), {"step": methods.Range(0.1, 1.0)}, {}))
    with pytest.raises(SystemExit, match="2"):
        run(["heterogeneity", "--quick", "--with", str(tmp_path / "none.py")])
    assert "there is no Python file" in capsys.readouterr().err
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        run(["heterogeneity", "--quick", "--with", str(broken)])


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_data_that_is_not_there_is_said_in_a_line(jobs, tmp_path):
    command = [sys.executable, "-m", "bench", "heterogeneity", "--data", "sc-ma", "--jobs", jobs]
    command += ["--trials", "1", "--repeats", "1", "--methods", "AFL", "--out", str(tmp_path)]
    surroundings = {key: value for key, value in os.environ.items() if key != "FDRO_DATA"}
    found = subprocess.run(
        command, cwd=quote.ROOT, check=False, capture_output=True, text=True, env=surroundings
    )
    assert found.returncode == 4
    assert "FDRO_DATA is not set" in found.stderr
    assert "Traceback" not in found.stderr


def test_a_table_of_single_workers_alone_has_no_figure(tmp_path):
    heterogeneity.draw(tmp_path, "digits", {"max{Ind}": [perform(SHORT)]})
    assert not list(tmp_path.iterdir())


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="no data set is called 'digit'"):
        run(["heterogeneity", "--data", "digit", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="no method is called 'SGD'"):
        run(["heterogeneity", "--quick", "--methods", "SGD", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="at least 1"):
        options.read(options.parser("x", "", ["digits"]), ["--repeats", "0"], "x")


def test_the_optimum_is_bounded_from_below(tmp_path, capsys):
    assert run(["optimum", "--quick", "--budgets", "1", "--out", str(tmp_path)]) == 0
    assert "lower bound" in capsys.readouterr().out


def test_the_pages_show_the_results():
    pages = quote.pages()
    assert {"race.md", "paper-experiments.md", "paper-efficiency.md"} <= {page.name for page in pages}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert quote.filled(text) == text, f"{page.name}: run python -m bench quote"
        assert text.count("<!-- results: ") == len(quote.PLACE.findall(text)), (
            f"{page.name}: a place is not read"
        )


@pytest.mark.parametrize("page", quote.pages(), ids=lambda page: page.name)
def test_a_number_changed_by_hand_would_be_seen(page):
    text = page.read_text(encoding="utf-8")
    for place in quote.PLACE.finditer(text):
        row = place.group(0).rstrip().splitlines()[-3]  # above an empty line and the end
        if row.startswith("|"):
            assert quote.filled(text.replace(row, f"{row[:-1]} 1 |")) != text.replace(row, f"{row[:-1]} 1 |")


def test_the_driver_s_page_counts_as_its_table_does():
    text = (quote.RESULTS.parent / "driver" / "convergence.md").read_text(encoding="utf-8")
    [table] = [table for title, table in quote.blocks(text)[0].items() if title.startswith("Gradients")]
    _, *rows = quote.cells(table)
    for _, _, ours, *others, better in rows:
        assert (float(ours) <= min(map(float, others))) == (better == "yes")
    count = f"{sum(row[-1] == 'yes' for row in rows)} of {len(rows)}"
    for page in (text, (quote.ROOT / "docs" / "driver-internals.md").read_text(encoding="utf-8")):
        assert count in page


def test_a_table_is_quoted_by_lines_and_columns(tmp_path):
    headings = ["method", "Acc_w %", "Acc_w % at the end", "time, s"]
    for title in ("a: first", "b: second"):
        rows = [
            [name, f"{title[0]}{number} ± 0.1", "x", "|y|"] for number, name in enumerate(["AFL", "ACE + P"])
        ]
        with (tmp_path / "t.md").open("a") as file:
            file.write(Table(title, headings, rows).markdown() + "\n")

    def table(choices):
        page = f"<!-- results: t.md{choices} -->\n<!-- results end -->"
        return [line for line in quote.filled(page, tmp_path).splitlines() if line and line[0] in "|*"]

    assert table(", a; rows: ACE + P; columns: method, Acc_w %, time") == [
        "**a: first**",
        "| method | Acc_w % | time, s |",
        "|---|---|---|",
        "| ACE + P | a1 ± 0.1 | \\|y\\| |",
    ]
    assert table("; across: Acc_w %; rows: ACE + P, AFL") == [
        "| method | a: first | b: second |",
        "|---|---|---|",
        "| ACE + P | a1 | b1 |",
        "| AFL | a0 | b0 |",
    ]
    with pytest.raises(SystemExit, match=r"no line begins with 'AFK'; there are: AFL, ACE \+ P"):
        table(", a; rows: AFK")
    with pytest.raises(SystemExit, match=r"no column begins with 'Loss'; there are: method / Acc_w %"):
        table(", a; columns: Loss")
    with pytest.raises(SystemExit, match="row: choose by rows, columns and across"):
        table(", a; row: AFL")


def test_a_table_is_quoted_by_its_title(tmp_path):
    one, two = (Table(title, ["x", "y"], [["1", title]]).markdown() for title in ("a: first", "b: second"))
    (tmp_path / "t.md").write_text("\n".join([one, two, "How it was done.", ""]))
    page = "before\n<!-- results: t.md, b -->\nold\n<!-- results end -->\n<!-- results: t.md, remarks -->\n"
    found = quote.filled(page + "<!-- results end -->\nafter", tmp_path)
    assert "| 1 | b: second |" in found
    assert "How it was done." in found
    assert "old" not in found
    assert "a: first" not in found
    assert found.startswith("before\n")
    assert found.endswith("\nafter")
    assert quote.filled(found, tmp_path) == found
    with pytest.raises(SystemExit, match=r"no table 'c'; there are: a: first, b: second"):
        quote.quoted("t.md", "c", tmp_path)
