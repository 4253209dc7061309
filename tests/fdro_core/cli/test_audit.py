"""`fdro audit`: tables as people have them, the page, what is asked about and what is refused."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tests.fdro_core.command import asked, fdro
from uncertainty_sets.audit import Audit

pytestmark = pytest.mark.usefixtures("place")

RNG = np.random.default_rng(0)
N = 2000
REGION = RNG.choice(["north", "south", "<b>west</b>"], N, p=[0.6, 0.35, 0.05])
ERROR = (RNG.random(N) < np.where(REGION == "<b>west</b>", 0.5, 0.05)).astype(int)
OTHER = (RNG.random(N) < 0.1).astype(int)
AGE = RNG.integers(20, 80, N)
PATIENT = RNG.integers(0, 600, N)


@pytest.fixture
def losses():
    with Path("losses.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["patient", "region", "age", "error", "other"])
        table.writerows(zip(PATIENT, REGION, AGE, ERROR, OTHER, strict=True))
    return "losses.csv"


def test_it_says_what_the_audit_says(losses):
    expected = Audit(ERROR, groups=REGION).report(0.12)
    answer = fdro("audit", losses, "--by", "region", "--threshold", 0.12)
    assert answer.exit_code == 0, answer.output
    for statement in expected.headline:
        assert " ".join(statement.text.split()) in " ".join(answer.stdout.split())
    data = asked("audit", losses, "--by", "region", "--threshold", 0.12)
    assert data["radius"] == pytest.approx(expected.failure.radius)
    assert data["radius_at_least"] == pytest.approx(expected.failure.at_least)
    assert {row["group"] for row in data["groups"]} == set(REGION)
    assert {each["holds"] for each in data["statements"]} <= {
        "in this sample, proved", "population, proved", "population, asymptotic", "description",
    }  # fmt: skip
    quiet = fdro("audit", losses, "--by", "region", "--threshold", 0.12, "--quiet")
    assert float(quiet.stdout) == pytest.approx(expected.failure.radius)


class Page(HTMLParser):
    """The tags of a page, and whether they close."""

    def __init__(self):
        super().__init__()
        self.tags, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in {"meta", "link"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_small_whole_and_without_scripts(losses):
    pytest.importorskip("sklearn")
    columns = ("--column", "error", "--column", "other", "--by", "region", "--covariates", "age,region")
    answer = fdro("audit", losses, *columns, "--threshold", 0.12, "--radius", 0.05, "--html", "audit.html")
    assert answer.exit_code == 0, answer.output
    text = Path("audit.html").read_text(encoding="utf-8")
    assert len(text.encode()) < 100_000
    assert "<script" not in text
    assert "script-src" not in text
    assert not re.search(r"https?://", text)
    assert "<b>west</b>" not in text
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.tags.count("polyline") == 4
    for words in ("in this sample, proved", "population, proved", "population, asymptotic", "description"):
        assert words in text
    assert "is better" in text


def test_json_lines_with_scores_and_clusters():
    lines = [
        {"item": f"q{k // 4}", "category": "math" if k % 3 else "law", "correct": bool(k % 5)}
        for k in range(2000)
    ]
    Path("evals.jsonl").write_text("\n".join(map(json.dumps, lines)))
    data = asked("audit", "evals.jsonl", "--column", "correct", "--higher-is-better", "--by", "category",
                 "--clusters", "item", "--threshold", 0.3)  # fmt: skip
    wrong = [not line["correct"] for line in lines]
    expected = Audit(
        wrong, groups=[line["category"] for line in lines], clusters=[line["item"] for line in lines]
    )
    assert data["mean"] == pytest.approx(expected.mean)
    assert data["mean_at_most"] == pytest.approx(expected.mean_at_most())


def test_columns_that_come_back_are_asked_about(losses):
    asked_about = fdro("audit", losses, "--by", "region", "--threshold", 0.12).stderr
    assert "add --clusters patient" in asked_about
    assert "age" not in asked_about
    assert "add --clusters" not in fdro("audit", losses, "--clusters", "patient", "--threshold", 0.12).stderr


def test_several_group_columns_overlap(losses):
    data = asked("audit", losses, "--by", "region", "--by", "other", "--threshold", 0.2)
    names = {row["group"] for row in data["groups"]}
    assert names == {"other = 0", "other = 1", *(f"region = {each}" for each in set(REGION))}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--by", "region"), "--threshold is needed"),
        (("--column", "eror", "--threshold", 0.1), "no column 'eror'"),
        (("--column", "age", "--threshold", 30), "outside bounds=(0, 1)"),
        (("--threshold", 30), "largest possible loss, 1; did you mean 0.3?"),
        (("--column", "region", "--threshold", 0.1), "'"),
        (("--threshold", 0.1, "--bounds", "1"), "two numbers"),
        (("--threshold", 0.1, "--set", "box"), "sets of one size around a centre"),
        (("--threshold", 0.1, "--bounds", "none", "--higher-is-better"), "needs --bounds"),
        (("--threshold", 0.1, "--html", "nowhere/a.html"), "cannot be written"),
    ],
)
def test_what_cannot_be_is_told(losses, options, said):
    answer = fdro("audit", losses, *options, code=2)
    assert said in " ".join(answer.stderr.split())


def test_a_loss_that_is_missing_is_told_with_its_line():
    Path("gap.csv").write_text("loss,region\n0.5,a\n,b\n0.1,a\n")
    assert (
        "gap.csv, line 3, column 'loss': the cell is empty"
        in fdro("audit", "gap.csv", "-t", 0.4, code=2).stderr
    )
    Path("bad.jsonl").write_text('{"loss": 0.5}\n{"loss": null}\n[1]\n')
    assert "line 3: each line must be one JSON object" in fdro("audit", "bad.jsonl", "-t", 0.4, code=2).stderr
    Path("gap.jsonl").write_text('{"loss": 0.5, "a": 1}\n{"loss": null, "a": 2}\n')
    assert (
        "gap.jsonl, line 2, column 'loss': the cell is empty"
        in fdro("audit", "gap.jsonl", "-t", 0.4, code=2).stderr
    )
