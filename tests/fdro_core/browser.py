"""Open a page in Chromium and read what its scripts made of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

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
        f"{CUT_OFF}"
        ' if (root.scrollWidth > root.clientWidth) cut.push("page");'
        ' document.body.dataset.cut = cut.join("|");'
        ' document.body.dataset.paths = inside.querySelectorAll("path.line").length; };</script></body>'
    )
    dom, errors = browse(frame)
    assert errors == []
    cut, paths = re.search(r'data-cut="([^"]*)" data-paths="(\d+)"', dom).groups()
    return [part for part in cut.split("|") if part], int(paths)
