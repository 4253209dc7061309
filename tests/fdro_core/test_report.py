"""The report, opened in a real browser: values read from the page, none of its scripts in error."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from fdro_core.app.report.curves import POINTS, curves
from tests.fdro_core.command import RUN_FILE, TO_THE_END, asked, fdro, furnish

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH")

FAULTS = "deadline = 40.0\n\n[engine]\ncrashes = [{ worker = 1, at = 20.0, until = 60.0 }]"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run with a fault in it, its numbers, and its report."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        furnish()
        text = TO_THE_END.replace("iterations = 120", f"iterations = 300\n{FAULTS}", 1).replace(
            "[engine]\nseed", "seed"
        )
        Path("run.toml").write_text(text)
        rows = Path("samples.csv").read_text().replace("w2", "<b>w2 & co</b>")
        Path("samples.csv").write_text(rows)
        numbers = asked("train", "run.toml")
        told = asked("report", "run")
    page = folder / told["report"]
    assert told["bytes"] == page.stat().st_size
    return folder / "run", numbers, page


def browse(page, *, width=1200, script=""):
    """The page's DOM after its scripts have run, and the errors on its console."""
    if script:
        copy = page.with_name(f"tried-{width}.html")
        copy.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
        page = copy
    answer = subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={page.parent / f'profile-{width}'}", f"--window-size={width},1500",
            "--virtual-time-budget=3000", "--enable-logging=stderr", "--allow-file-access-from-files",
            "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return answer.stdout, [line for line in answer.stderr.splitlines() if "CONSOLE" in line]


def value(dom, key):
    return re.search(rf'data-value="{key}">([^<]*)<', dom)[1]


class Outside(HTMLParser):
    """Everything that a page would fetch."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        for name, text in attributes:
            if name in {"src", "href", "srcset", "data", "action"} and not text.startswith(("data:", "#")):
                self.found.append(text)


def test_the_file_stands_alone(run):
    page = run[2].read_text()
    outside = Outside()
    outside.feed(page)
    assert outside.found == []
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")  # the name of SVG, not an address
    assert "https://" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_names_are_escaped(run):
    page = run[2].read_text()
    assert "<b>w2" not in page
    assert "&lt;b&gt;w2 &amp; co&lt;/b&gt;" in page


@in_browser
def test_values_in_the_browser(run):
    _, numbers, page = run
    dom, errors = browse(page)
    assert errors == []
    assert value(dom, "worst_test_accuracy") == f"{100 * numbers['worst_test_accuracy']:.1f} %"
    assert value(dom, "objective") == f"{numbers['objective']:.6g}"
    assert value(dom, "iterations") == "300"
    rows = re.findall(r'<tr[^>]*data-worker="w\d".*?</tr>', dom, re.DOTALL)
    assert [value(row, "weight") for row in rows] == [
        f"{100 * worker['weight']:.1f} %" for worker in numbers["workers"] if worker["name"].startswith("w")
    ]
    assert "worker lost" in dom
    assert "reason crashed" in dom
    assert "radius = 0.1" in dom


@in_browser
@pytest.mark.parametrize("width", [500, 1200])
def test_curves_are_drawn_and_tell_values_under_the_pointer(run, width):
    script = """
      for (const svg of document.querySelectorAll(".chart svg")) {
        const box = svg.getBoundingClientRect();
        svg.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + 53, clientY: box.top + 50}));
      }
      document.body.dataset.overflow = document.documentElement.scrollWidth - window.innerWidth;
    """
    folder, _, page = run
    dom, errors = browse(page, width=width, script=script)
    assert errors == []
    history = [entry for entry in _history(folder) if entry["event"] == "report"]
    assert len(re.findall(r'<path class="line line\d"', dom)) == 3 + 2 + 1 + 2 + 1
    told = dict(re.findall(r'id="chart-([\w-]+)".*?<p class="read"[^>]*>([^<]*)</p>', dom, re.DOTALL))
    assert set(told) == {"loss", "accuracy", "planes", "workers", "staleness"}
    first = history[0]
    assert told["loss"].startswith("at ")
    assert f"worst mix in the set {first['objective']:.4f}" in told["loss"]
    assert f"worst worker {max(first['losses']):.4f}" in told["loss"]
    assert f"planes {first['planes']}" in told["planes"]
    assert int(re.search(r'data-overflow="(-?\d+)"', dom)[1]) <= 0  # nothing sticks out to the side


@in_browser
def test_the_other_axis(run):
    script = 'document.querySelector("input[value=iteration]").click();'
    dom, errors = browse(run[2], script=script)
    assert errors == []
    assert "last, at iteration 300: " in dom


@in_browser
def test_an_error_would_be_seen(run):
    """The control: a script that fails leaves a line on the console."""
    _, errors = browse(run[2], script="thereIsNoSuchThing();")
    assert len(errors) == 1
    assert "thereIsNoSuchThing" in errors[0]


def _history(folder):
    from fdro_core.observers import read_history

    return read_history(folder / "history.jsonl")


def test_long_histories_are_thinned_and_keep_their_peaks():
    rng = np.random.default_rng(0)
    history = [
        {
            "event": "report", "iteration": t, "clock": float(t), "objective": 1.0,
            "losses": rng.random(3).tolist(),
            "planes": 2, "active_workers": 1, "live_workers": 2 if t == 7_001 else 3,
            "staleness": 99 if t == 5_003 else 4,
        }
        for t in range(20_000)
    ]  # fmt: skip
    charts = {chart["name"]: chart for chart in curves(history)}
    assert len(charts["loss"]["clock"]) == POINTS
    assert charts["loss"]["clock"][-1] == 19_999.0
    assert max(charts["staleness"]["lines"][0]["values"]) == 99
    assert min(charts["workers"]["lines"][0]["values"]) == 2
    assert "accuracy" not in charts


def test_losses_that_nobody_knows_leave_a_gap():
    entry = {
        "event": "report", "iteration": 1, "clock": 1.0, "objective": np.nan, "losses": [np.nan, np.nan],
        "planes": 1, "active_workers": 1, "live_workers": 2, "staleness": 0, "test_accuracy": [None, 0.5],
    }  # fmt: skip
    charts = {chart["name"]: chart for chart in curves([entry])}
    assert all(np.isnan(line["values"][0]) for line in charts["loss"]["lines"])
    assert [line["values"] for line in charts["accuracy"]["lines"]] == [[50.0], [50.0]]


def test_a_run_without_reports_or_tests_has_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    furnish()
    Path("run.toml").write_text(RUN_FILE.replace("iterations = 120", "iterations = 1"))
    fdro("train", "run.toml", "-q")
    fdro("report", "run", "-o", "page.html")
    assert "ended before its first report" in Path("page.html").read_text()


def test_many_workers_are_cut_to_the_worst():
    from fdro_core.app.report.parts import ROWS, worker_table

    blank = dict.fromkeys(("samples", "accuracy", "test_loss", "test_accuracy"))
    workers = [
        {"name": f"w{j}", "loss": float(j), "weight": 0.001, "prior": 0.001, **blank} for j in range(1000)
    ]
    page = worker_table(workers)
    assert page.count("<tr") == ROWS + 1
    assert ">w999<" in page
    assert ">w0<" not in page


@in_browser
def test_nothing_sticks_out_on_a_phone(run):
    """A window is at least 500 pixels wide, a frame in it is not."""
    page = run[2]
    frame = page.with_name("frame.html")
    frame.write_text(
        f'<body><iframe src="{page.name}" style="width:400px;height:900px;border:0"></iframe><script>'
        'document.querySelector("iframe").onload = (event) => {'
        " const inside = event.target.contentDocument, root = inside.documentElement;"
        " document.body.dataset.over = root.scrollWidth - root.clientWidth;"
        ' document.body.dataset.paths = inside.querySelectorAll("path.line").length; };</script></body>'
    )
    dom, errors = browse(frame)
    assert errors == []
    assert 'data-over="0"' in dom
    assert 'data-paths="9"' in dom


@pytest.mark.usefixtures("place")
def test_open_says_when_there_is_no_browser(monkeypatch):
    import webbrowser

    fdro("train", "run.toml", "-q")
    asked_for = []
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(asked_for.append(address)))
    told = fdro("report", "run", "--open")
    assert "no browser was found on this machine; open run/report.html in one yourself" in told.stderr
    assert asked_for == [Path("run/report.html").resolve().as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda address: True)
    assert fdro("report", "run", "--open").stderr == ""
