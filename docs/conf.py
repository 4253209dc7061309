"""Sphinx configuration: MyST pages, docstrings by autodoc, furo as the theme.

Every code block of the pages is a doctest that pytest runs. What is executed here are the pictures (draw.py)
and the notebooks (run_notebooks.py).
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # documents this source tree, whatever version is installed

_meta = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = _meta["name"]
author = _meta["authors"][0]["name"]
project_copyright = author
release = version = _meta["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
sys.path.insert(0, str(Path(__file__).parent))
intersphinx_mapping = importlib.import_module("elsewhere").main(
    Path(__file__).parent / "generated" / "elsewhere"
)
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "generated/*.md", "generated/notebooks"]

html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["_static"]
html_css_files = ["columns.css", "formulas.css", "notebooks.css"]
html_math_renderer = "mathml"  # browsers set MathML themselves: pages need no script from elsewhere
pygments_style = "default"
pygments_dark_style = "monokai"
highlight_language = "pycon"

# The copy button takes the lines with a prompt, without the prompt, and leaves out their output.
copybutton_prompt_text = r">>> |\.\.\. ?|\$ "
copybutton_prompt_is_regexp = True
copybutton_selector = (
    "div:not(.output) > div.highlight > pre"  # what a notebook's cell printed is not for copying
)
copybutton_line_continuation_character = "\\"

myst_heading_anchors = 3  # pages link to each other's sections by their titles
myst_enable_extensions = ["dollarmath"]  # $…$ in running text, as code hosts set it
myst_fence_as_directive = ["math"]  # ```math is what code hosts set as a formula too

default_role = "code"  # docstrings write `name`, as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"ArrayLike": "ArrayLike", "Array": "Array"}
napoleon_numpy_docstring = False
napoleon_use_rtype = False


def write_index_for_machines(app: Any, error: Exception | None) -> None:
    """`llms.txt`: every page with its first words, by the four kinds of the index, for programs."""
    if error or app.builder.format != "html":
        return
    sources = Path(__file__).parent
    lines = [f"# {project}\n\n> {_meta['description']}\n"]
    for kind in app.env.get_doctree("index").findall(addnodes.toctree):
        lines.append(f"\n## {kind['caption']}\n")
        for _, name in kind["entries"]:
            page = (sources / f"{name}.md").read_text(encoding="utf-8")
            link = f"- [{app.env.titles[name].astext()}](_sources/{name}.md.txt)"
            lines.append(f"{link}: {words}" if (words := first_words(page)) else link)
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def first_words(page: str) -> str:
    """The first sentence of a page's first paragraph, without links."""
    for paragraph in page.split("\n\n"):
        if not paragraph.startswith(("#", "<", "```", "![", "|", "(", "**", "- ")):
            plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(paragraph.split()))
            return re.split(r"(?<=[.]) ", plain)[0].rstrip(":")
    return ""


_BAR = re.compile(r"(``.*?``|`[^`]*`)|\|")


def escape_bars(*event: Any) -> None:
    """Escape |p - q| in docstrings, which reStructuredText would take for a substitution.

    Doctests (up to the blank line that ends them) and literal blocks (as long as they are indented)
    are left as they are.
    """
    lines: list[str] = event[-1]  # after app, what, name, obj and options, none of which matter here
    doctest, literal = False, -1
    for number, line in enumerate(lines):
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        doctest = bool(text) and (doctest or text.startswith(">>>"))
        if text and literal >= 0 and indent <= literal:
            literal = -1
        if not doctest and literal < 0:
            lines[number] = _BAR.sub(lambda match: match[1] or r"\|", line)
            if text.endswith("::"):
                literal = indent


def draw_pictures(app: Any) -> None:
    """The gallery's pictures, drawn anew for every build."""
    sys.path.insert(0, str(Path(__file__).parent))
    draw = importlib.import_module("draw")
    draw.main(Path(__file__).parent / "generated")


def run_notebooks(app: Any) -> None:
    """The notebooks, run anew for every build; their pages with outputs wait for `show_outputs`."""
    notebooks = importlib.import_module("run_notebooks")
    app.notebooks = {
        f"notebooks/{name}": page
        for name, page in notebooks.main(Path(__file__).parent / "generated" / "notebooks").items()
    }


def show_outputs(app: Any, name: str, source: list[str]) -> None:
    """Read a notebook's page with its outputs instead of the page as it is written."""
    source[0] = app.notebooks.get(name, source[0])


RESULTS = ROOT / "bench" / "results"
RESULT_PAGES = Path(__file__).parent / "generated" / "results"
TO_RESULT = re.compile(r"\]\(\.\./bench/results/([^)\s]+\.md)")


def copy_results(app: Any) -> None:
    """The result files that pages link to, as pages of their own; a code host shows the files themselves."""
    shutil.rmtree(RESULT_PAGES, ignore_errors=True)
    for source in RESULTS.rglob("*.md"):
        target = RESULT_PAGES / source.relative_to(RESULTS)
        text = re.sub(r"^### ", "## ", source.read_text(encoding="utf-8"), flags=re.MULTILINE)
        if not text.startswith("# "):
            text = f"# Results: {source.relative_to(RESULTS).parent}\n\n{text}"
        pictures = Path(os.path.relpath(source.parent, target.parent)).as_posix()
        text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{pictures}/", text)
        text = re.sub(r"\]\(((?:\.\./)+)docs/", r"](\1", text)  # as far up as here, where docs is above all
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"---\norphan: true\n---\n\n{text}", encoding="utf-8")


def link_results(app: Any, name: str, source: list[str]) -> None:
    """Let links to result files lead to their pages."""
    source[0] = TO_RESULT.sub(r"](generated/results/\1", source[0])


def write_settings(app: Any) -> None:
    """The tables of settings: those of both algorithms, and those of each alone."""
    from fdro_core import AspireEase, AspireModels
    from fdro_core.protocol.settings import settings_table

    folder = Path(__file__).parent / "generated"
    tables = {kind.__name__: settings_table(kind).splitlines() for kind in (AspireModels, AspireEase)}
    shared = [line for line in tables["AspireModels"] if line in tables["AspireEase"]]
    head = shared[:2]
    (folder / "settings-of-both.md").write_text("\n".join(shared) + "\n", encoding="utf-8")
    for name, lines in tables.items():
        own = [*head, *(line for line in lines if line not in shared)]
        (folder / f"settings-{name}.md").write_text("\n".join(own) + "\n", encoding="utf-8")


def outdated(app: Any, *event: Any) -> list[str]:
    """Pages of notebooks are written in every build: their outputs may differ though the text does not."""
    return list(app.notebooks)


def trim_blocks(app: Any, doctree: nodes.document) -> None:
    """Take the empty line off the end of sessions, which only doctest needs."""
    for block in doctree.findall(nodes.literal_block):
        text = block.astext().rstrip("\n")
        block.rawsource, block.children = text, []
        block.append(nodes.Text(text))


def write_formula(translator: Any, node: nodes.Element) -> None:
    """Write a formula as MathML; a command that docutils does not know fails the build."""
    block = isinstance(node, nodes.math_block)
    formula = tex2mathml(node.astext(), as_block=block)
    translator.body.append(f'<div class="formula">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def setup(app: Any) -> None:
    """Run after napoleon, which has turned the sections into reStructuredText by then."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("build-finished", write_index_for_machines)
    app.connect("autodoc-process-docstring", escape_bars, priority=900)
    app.connect("doctree-read", trim_blocks)
    app.connect("builder-inited", draw_pictures)
    app.connect("builder-inited", run_notebooks)  # after draw_pictures, which sets the path
    app.connect("builder-inited", copy_results)
    app.connect("builder-inited", write_settings)
    app.connect("env-get-outdated", outdated)
    app.connect("source-read", show_outputs)
    app.connect("source-read", link_results)
