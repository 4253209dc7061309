"""Runs the pages of docs/notebooks, and makes of each a page with outputs and a Jupyter notebook.

A notebook's source is a Markdown page: every `python` block is a cell. Cells run in order, in one namespace,
as in Jupyter: what a cell prints, the value of its last line and the figures that it draws come below it.
An error or a warning in a cell fails the build. Outputs are kept in the user's cache under a hash of the
page, the packages' sources and the versions in use, so that none is shown of anything else.

A page that needs an optional package says so, `<!-- needs: torch -->`. Without the package it is made without
outputs, and says that.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import pickle
import sys
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from uncertainty_sets.kernels.native import cache as store

FOLDER = Path(__file__).parent / "notebooks"
STYLE = {
    "figure.figsize": (5.6, 3.4),
    "figure.facecolor": "white",  # readable on a dark page too
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.1,
    "savefig.dpi": 160.0,
    "font.size": 11.0,  # on a phone the page shows two thirds of it
    "axes.spines.top": False,
    "axes.spines.right": False,
}
FENCE = re.compile(r"^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"<!-- needs: ([\w, ]+?) -->\n*")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]+\)")  # to a page, which a download does not have


class CellFailed(RuntimeError):
    """A cell raised, or warned; the message says which line of which page."""


@dataclass
class Cell:
    """A piece of a notebook.

    Attributes:
        source: the text, or the code.
        line: where it begins in the page.
        code: whether it is run.
        text: what it printed, and the value of its last line.
        pictures: the figures that it drew, as PNG.
    """

    source: str
    line: int
    code: bool
    text: str = ""
    pictures: list[bytes] = field(default_factory=list)

    @property
    def caption(self) -> str:
        """The comment that a cell begins with: what its picture shows, for those who cannot see it."""
        lines = []
        for line in self.source.splitlines():
            if not line.startswith("#"):
                break
            lines.append(line.lstrip("# "))
        return " ".join(lines)


@dataclass
class Notebook:
    """A page of docs/notebooks.

    Attributes:
        name: that of the file.
        cells: in order; the first one has the title.
        missing: packages that it needs and that are not installed: it was not run.
        names: what its cells have defined.
    """

    name: str
    cells: list[Cell]
    missing: list[str]
    names: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Its heading."""
        return self.cells[0].source.splitlines()[0].lstrip("# ")

    @property
    def summary(self) -> str:
        """Its first paragraph, without links."""
        return LINK.sub(r"\1", self.cells[0].source.split("\n\n")[1].replace("\n", " "))


def sources() -> list[Path]:
    """The pages that are notebooks: all but the gallery."""
    return [path for path in sorted(FOLDER.glob("*.md")) if path.name != "index.md"]


def read(path: Path) -> Notebook:
    """Take a page apart, and look for what it needs."""
    page = path.read_text(encoding="utf-8")
    needs = [name for names in NEEDS.findall(page) for name in names.split(", ")]
    return Notebook(path.stem, parse(page), [name for name in needs if find_spec(name) is None])


def parse(page: str) -> list[Cell]:
    """The cells of a page; comments that say what it needs are left out.

    >>> [cell.source for cell in parse("# Title\\n\\nText.\\n\\n```python\\n1 + 1\\n```\\n\\nEnd.\\n")]
    ['# Title\\n\\nText.', '1 + 1', 'End.']
    """
    cells, end = [], 0
    for match in [*FENCE.finditer(page), None]:
        text = NEEDS.sub("", page[end : match.start() if match else None]).strip()
        if text:
            cells.append(Cell(text, page.count("\n", 0, end) + 1, code=False))
        if match:
            line = page.count("\n", 0, match.start("code")) + 1
            cells.append(Cell(match["code"].rstrip(), line, code=True))
            end = match.end()
    return cells


def run(notebook: Notebook, path: Path) -> None:
    """Run the cells, unless something that they need is missing."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    if notebook.missing:
        return
    plt.close("all")  # of whoever drew before
    notebook.names["__name__"] = "__main__"
    try:
        with mpl.rc_context(STYLE), warnings.catch_warnings():
            warnings.simplefilter("error")
            for cell in notebook.cells:
                if cell.code:
                    _run_cell(cell, path, notebook.names)
    finally:  # what a page sets for its whole process must not reach the next one
        if torch := sys.modules.get("torch"):
            torch.set_default_dtype(torch.float32)


def run_once(notebook: Notebook, path: Path) -> None:
    """Run the cells, or take their outputs from an earlier run of the same."""
    content = path.read_bytes() + _surroundings() + repr(notebook.missing).encode()
    name = f"notebooks/{notebook.name}.{blake2b(content, digest_size=12).hexdigest()}.pickle"
    kept = store.read(name)
    if kept is None:
        run(notebook, path)
        store.write(name, pickle.dumps([(cell.text, cell.pictures) for cell in notebook.cells]))
    else:
        for cell, outputs in zip(notebook.cells, pickle.loads(kept), strict=True):
            cell.text, cell.pictures = outputs


@cache
def _surroundings() -> bytes:
    """A hash of everything but the page that outputs depend on."""
    root = FOLDER.parents[1]
    total = blake2b(Path(__file__).read_bytes(), digest_size=16)
    for package in ("uncertainty_sets", "fdro_core"):
        for file in sorted((root / package).rglob("*.py")):
            total.update(str(file.relative_to(root)).encode() + file.read_bytes())
    versions = sorted(f"{each.name} {each.version}" for each in distributions())
    return total.digest() + repr(versions).encode()


def _run_cell(cell: Cell, path: Path, names: dict[str, Any]) -> None:
    printed = io.StringIO()
    try:
        tree = ast.increment_lineno(ast.parse(cell.source, str(path)), cell.line - 1)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, str(path), "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), str(path), "eval"), names)
                if value is not None:
                    print(repr(value))
        cell.pictures = list(_drawn())
    except Exception as error:
        raise CellFailed(f"{path.name}, line {_line(error, path, cell)}: {error!r}") from error
    cell.text = printed.getvalue().rstrip()


def _line(error: BaseException, path: Path, cell: Cell) -> int:
    """The line of the page that was running."""
    found, trace = cell.line, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == str(path):
            found = trace.tb_lineno
        trace = trace.tb_next
    return found


def _drawn() -> Iterator[bytes]:
    """The open figures, which are closed: the next cell begins without, as in Jupyter."""
    from matplotlib import pyplot

    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, format="png", metadata={"Software": None})
        yield file.getvalue()
    pyplot.close("all")


def page_of(notebook: Notebook, folder: str) -> str:
    """The page with its outputs, in Markdown; `folder` has pictures and notebooks, seen from the page."""
    above, *rest = notebook.cells
    heading, _, opening = above.source.partition("\n")
    download = f"{{download}}`{notebook.name}.ipynb <{folder}/{notebook.name}.ipynb>`"
    if notebook.missing:
        names = ", ".join(notebook.missing)
        note = f"Built without {names}: the outputs are missing here. The notebook without them: {download}."
        parts = [heading, f"```{{admonition}} {names} was not installed\n{note}\n```", opening.strip()]
    else:
        parts = [heading, f"As a Jupyter notebook, outputs included: {download}.", opening.strip()]
    number = 0
    for cell in rest:
        parts.append(f"```python\n{cell.source}\n```" if cell.code else cell.source)
        if cell.text:
            parts.append(f"```{{code-block}} text\n:class: output\n\n{cell.text}\n```")
        for _ in cell.pictures:
            number += 1
            alt = f":alt: {cell.caption}\n" if cell.caption else ""
            parts.append(f"```{{image}} {folder}/{notebook.name}-{number}.png\n{alt}:width: 560px\n```")
    return "\n\n".join(parts) + "\n"


def jupyter_of(notebook: Notebook) -> Any:
    """The notebook in Jupyter's format 4.5, checked against its schema."""
    import nbformat
    from nbformat import v4

    cells, count = [], 0
    for place, cell in enumerate(notebook.cells):
        if not cell.code:
            cells.append(v4.new_markdown_cell(LINK.sub(r"\1", cell.source)))
        else:
            count += 1
            outputs = [v4.new_output("stream", name="stdout", text=cell.text + "\n")] if cell.text else []
            for picture in cell.pictures:
                data = {
                    "image/png": base64.b64encode(picture).decode(),
                    "text/plain": cell.caption or "a figure",
                }
                outputs.append(v4.new_output("display_data", data=data))
            ran = None if notebook.missing else count
            cells.append(v4.new_code_cell(cell.source, outputs=outputs, execution_count=ran))
        cells[-1]["id"] = f"{notebook.name}-{place}"  # the same in every build
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = v4.new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})
    nbformat.validate(made)
    return made


def card_of(notebook: Notebook, folder: str) -> str:
    """The notebook's entry in the gallery: its first picture, its title, and its first paragraph."""
    text = f"**[{notebook.title}]({notebook.name}.md)**\n\n{notebook.summary}"
    if not any(cell.pictures for cell in notebook.cells):
        why = f"{', '.join(notebook.missing)} was not installed: no picture"
        return f"```{{container}} card\n{text}\n\n({why})\n```"
    return (
        f"```{{figure}} {folder}/{notebook.name}-1.png\n:figclass: card\n:target: {notebook.name}.html\n"
        f":alt: picture of the notebook {notebook.title}\n\n{text}\n```"
    )


def write(notebook: Notebook, folder: Path) -> None:
    """Write the pictures and the Jupyter notebook."""
    import nbformat

    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(jupyter_of(notebook), folder / f"{notebook.name}.ipynb")
    pictures = [picture for cell in notebook.cells for picture in cell.pictures]
    for number, picture in enumerate(pictures, 1):
        (folder / f"{notebook.name}-{number}.png").write_bytes(picture)


def main(folder: Path) -> dict[str, str]:
    """Run all notebooks and write what pages link to; returns the pages' texts with outputs, by name."""
    seen = f"../{folder.parent.name}/{folder.name}"
    pages, cards = {}, []
    for path in sources():
        notebook = read(path)
        run_once(notebook, path)
        write(notebook, folder)
        pages[notebook.name] = page_of(notebook, seen)
        cards.append(card_of(notebook, seen))
    gallery = "````{container} cards\n" + "\n\n".join(cards) + "\n````\n"
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    pages["index"] = index.replace("<!-- the gallery -->", gallery)
    return pages
