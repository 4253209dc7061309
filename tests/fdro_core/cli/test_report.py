"""The report, opened in a real browser: values read from the page, none of its scripts in error."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fdro_core.cli.output import for_people
from fdro_core.cli.report.curves import chart, line
from fdro_core.cli.report.page import page as whole_page
from fdro_core.cli.report.page import places, switch
from tests.fdro_core.command import RUN_FILE, TO_THE_END, asked, fdro, furnish

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH")


def browse(page: Path, *, width: int = 1200, script: str = "") -> tuple[str, list[str]]:
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


CUT_OFF = """
  const cut = [];
  const boxes = "table, td, th, li, p, pre, h1, h2, h3, figure, svg, .bar, svg text";
  for (const box of inside.querySelectorAll(boxes)) {
    const place = box.getBoundingClientRect();
    if (place.width && (place.right > root.clientWidth + 0.5 || place.left < -0.5))
      cut.push(box.tagName + " " + box.textContent.slice(0, 30));
    const inline = box.closest("svg") || getComputedStyle(box).display === "inline";
    if (!inline && box.scrollWidth > box.clientWidth + 1)
      cut.push("inside " + box.tagName + " " + box.textContent.slice(0, 30));
  }
"""


def on_phone(page: Path, *, width: int = 420) -> tuple[list[str], int]:
    """What is cut off or sticks out on a narrow screen, and the number of lines drawn in charts.

    A window is at least 500 pixels wide, a frame in it is not.
    """
    frame = page.with_name(f"frame-of-{page.name}")
    frame.write_text(
        f'<body><iframe src="{page.name}" style="width:{width}px;height:900px;border:0"></iframe><script>'
        'document.querySelector("iframe").onload = (event) => {'
        " const inside = event.target.contentDocument, root = inside.documentElement;"
        ' inside.querySelectorAll("details").forEach((part) => { part.open = true; });'
        " setTimeout(() => {"  # their charts are drawn when they are open
        f"{CUT_OFF}"
        ' if (root.scrollWidth > root.clientWidth) cut.push("page");'
        ' document.body.dataset.cut = cut.join("|");'
        ' document.body.dataset.paths = inside.querySelectorAll("path.line").length; }, 300); };'
        "</script></body>"
    )
    dom, errors = browse(frame)
    assert errors == []
    cut, paths = re.search(r'data-cut="([^"]*)" data-paths="(\d+)"', dom).groups()
    return [part for part in cut.split("|") if part], int(paths)


FAULTS = """deadline = 40.0

[engine]
crashes = [{ worker = 1, at = 20.0, until = 60.0 }, { worker = 2, at = 70.0 }]"""

CHARTS = {
    "loss", "accuracy", "traffic", "staleness", "workers", "planes",
    "worker-loss", "worker-accuracy", "weights",
}  # fmt: skip
LINES = 3 + 2 + 2 + 1 + 2 + 1 + 3 * 3


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run with a straggler, a crash and a death in it, its numbers, and its report."""
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
    assert value(dom, "objective") == for_people(numbers["objective"])
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
    assert len(re.findall(r'<path class="line c', dom)) == LINES
    told = dict(re.findall(r'id="chart-([\w-]+)".*?<p class="read"[^>]*>([^<]*)</p>', dom, re.DOTALL))
    assert set(told) == CHARTS
    first = history[0]
    assert told["loss"].startswith("at ")
    assert f"worst mix in the set: {first['objective']:.4g}" in told["loss"]
    assert f"worst worker: {max(first['losses']):.4g}" in told["loss"]
    assert f"planes: {first['planes']}" in told["planes"]
    assert f"w0: {100 * first['weights'][1]:.1f}" in told["weights"]
    loss = float(re.search(r"w1 \(gone\): ([\d.]+)", told["worker-loss"])[1])
    assert loss == pytest.approx(first["losses"][2], abs=1e-4)
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


@in_browser
def test_bands_are_drawn(run):
    """Around both accuracies and the staleness."""
    dom, _ = browse(run[2])
    shapes = re.findall(r'<path class="band c(\w+)" d="M[^"]+Z"', dom)
    assert shapes == ["0", "1", "0"]


@in_browser
def test_nothing_is_cut_on_a_phone(run):
    assert on_phone(run[2]) == ([], LINES)


@in_browser
def test_what_is_cut_would_be_seen(run):
    """The control: a table that does not wrap is found."""
    page = run[2].with_name("wide.html")
    page.write_text(run[2].read_text().replace("</style>", ".cards td { min-width: 300px; }</style>"))
    assert on_phone(page)[0] != []


@in_browser
def test_a_logarithmic_scale_in_the_browser(run):
    """Losses that span decades: ticks at powers of ten, equally far apart."""
    at = [{"clock": float(t), "iteration": t} for t in range(5)]
    drawn = chart("loss", "Losses", "x", [line("a", at, [10.0**-t for t in range(5)])], log=True)
    file = run[2].with_name("log.html")
    file.write_text(whole_page("log", [drawn], switch() + places([drawn])))
    dom, errors = browse(file)
    assert errors == []
    assert "x; logarithmic scale" in dom
    ticks = re.findall(r'<text x="\d+" y="([\d.]+)" text-anchor="end">([^<]+)<', dom)
    assert [text for _, text in ticks] == ["10⁻⁴", "0.001", "0.01", "0.1", "1"]
    heights = [float(y) for y, _ in ticks]
    assert heights[0] - heights[1] == pytest.approx(heights[3] - heights[4])


def spans(file, ends):
    """A page with a line to each of these times."""
    lines = []
    for k, end in enumerate(ends):
        at = [{"clock": end * t / 4, "iteration": t} for t in range(5)]
        lines.append(line(f"run{k}", at, [1.0, 0.9, 0.8, 0.7, 0.6 - 0.1 * k], color=k))
    drawn = chart("loss", "Losses", "x", lines)
    file.write_text(whole_page("spans", [drawn], switch() + places([drawn])))


@in_browser
def test_a_short_run_is_visible_beside_a_long_one(run):
    """Spans that differ tenfold have a logarithmic axis, and who ends early has its name at its end."""
    file = run[2].with_name("spans.html")
    spans(file, [188.0, 34_000.0])
    dom, errors = browse(file)
    assert errors == []
    assert "engine's clock, logarithmic" in dom
    [(end, name)] = re.findall(r'<text class="name c0" x="([\d.]+)"[^>]*>([^<]+)<', dom)
    [(right, other)] = re.findall(r'<text class="name c1" x="([\d.]+)"[^>]*>([^<]+)<', dom)
    assert (name, other) == ("run0, until 188 s", "run1")
    [dot] = re.findall(r'<circle class="dot c0" cx="([\d.]+)" cy="[\d.]+" r="3"', dom)
    assert float(end) == pytest.approx(float(dot) + 4)
    assert float(dot) > 56 + 0.2 * (float(right) - 56)  # by time it would be at one part in 180
    spans(file, [20_000.0, 34_000.0])
    dom, _ = browse(file)
    assert "logarithmic" not in re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)
    assert "run0, until 20,000 s" in dom


@in_browser
@pytest.mark.parametrize("ends", [[34_000.0], [210.0, 34_000.0], [33_998.0, 34_000.0]])
def test_a_narrow_chart_has_more_than_one_tick(run, ends):
    file = run[2].with_name("narrow.html")
    spans(file, ends)
    script = (
        'document.body.style.width = "388px"; window.innerWidth; document.querySelector("input").onchange();'
    )
    dom, errors = browse(file, script=script)
    assert errors == []
    assert len(re.findall(r'<text x="[\d.]+" y="[\d.]+" text-anchor="middle">[\d,]+<', dom)) >= 2


@in_browser
def test_two_runs_side_by_side_in_the_browser(run, monkeypatch):
    folder, numbers, _ = run
    monkeypatch.chdir(folder.parent)
    text = Path("run.toml").read_text()
    Path("other.toml").write_text(text.replace("radius = 0.1", "radius = 0.01").replace("300", "200"))
    other = asked("train", "other.toml", "--output", "other")
    told = asked("report", "run", "other")
    assert told["report"] == "side-by-side.html"
    page = folder.parent / told["report"]
    dom, errors = browse(page)
    assert errors == []
    assert "run and other side by side" in dom
    rows = dict(re.findall(r'<tr><td class="left">([^<]*)</td>(.*?)</tr>', dom, re.DOTALL))
    assert re.findall(r'left">([^<]+)<', rows["set.radius"]) == ["0.1", "0.01"]
    assert re.findall(r"<b>([^<]+)<", rows["iterations"]) == ["300", "200"]
    assert re.findall(r"<b>([^<]+)<", rows["worst expected loss over the set"]) == [
        for_people(each["objective"]) for each in (numbers, other)
    ]
    read = dict(re.findall(r'id="chart-([\w-]+)".*?<p class="read"[^>]*>([^<]*)</p>', dom, re.DOTALL))
    assert re.search(r"run: [\d.]+ · other: [\d.]+", read["objective"])
    assert {"weights-0", "weights-1", "worst-accuracy", "traffic", "staleness"} <= set(read)
    cut, paths = on_phone(page)
    assert cut == []
    assert paths == 2 + 2 + 2 + 2 + 4 + 2 + 2 * 3 * 3


def test_a_run_without_reports_or_tests_has_a_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    furnish()
    Path("run.toml").write_text(RUN_FILE.replace("iterations = 120", "iterations = 1"))
    fdro("train", "run.toml", "-q")
    fdro("report", "run", "-o", "page.html")
    assert "ended before its first report" in Path("page.html").read_text()
    fdro("train", "run.toml", "-q", "-o", "again")
    fdro("report", "run", "again", "-o", "both.html")
    page = Path("both.html").read_text()
    assert "ended before its first report" in page
    assert "<p>None.</p>" in page  # no setting differs


@pytest.mark.usefixtures("place")
def test_runs_side_by_side_are_different_and_defaults_are_named():
    Path("run.toml").write_text(RUN_FILE.replace("iterations = 120", "iterations = 5"))
    fdro("train", "run.toml", "-q", "--against", "fed-avg")
    for each in ("report", "compare"):
        assert "run is given twice" in fdro(each, "run", "run-fed-avg", "./run", code=2).stderr
    fdro("report", "run", "run-fed-avg")
    page = Path("side-by-side.html").read_text()
    assert "aspire-models (default)" in page
    assert '<div class="scroll"><table class="cards">' in page
    assert "aspire-models (default)" in fdro("compare", "run", "run-fed-avg").stdout


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
