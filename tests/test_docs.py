"""The pages: every example runs.

pytest itself runs what is written as a session (`>>>`), page by page. Here is the rest: blocks marked
`python`, and what a reader would copy from console and TOML blocks.
"""

from __future__ import annotations

import doctest
import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

from bench.__main__ import commands

ROOT = Path(__file__).resolve().parent.parent
SKIPPED_FOLDERS = {"_build", "generated"}
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + [
    page for page in sorted((ROOT / "docs").rglob("*.md")) if not SKIPPED_FOLDERS & set(page.parts)
]
FENCE = re.compile(r"^```(?P<kind>[^\n`]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
# py: a file, see below
KNOWN = {"pycon", "python", "py", "console", "text", "math", "toml", "json", "csv", "bibtex"}

PATH = re.compile(r"`((?:uncertainty_sets|fdro_core|bench|tests|docs|\.ci)/[^`\s]*|[\w.-]+/[^`\s]*\.py)`")
DOTTED = re.compile(r"`((?:uncertainty_sets|fdro_core|bench)(?:\.\w+)+)\b")


def blocks(text: str) -> list[tuple[str, str]]:
    """Kind and content of every fenced block; MyST directives and their content are left out."""
    found = ((match["kind"].strip(), match["code"]) for match in FENCE.finditer(text))
    return [(kind, code) for kind, code in found if not kind.startswith("{")]


def run(text: str) -> dict[str, object]:
    """The Python of a page, in one namespace; sessions run unchecked, for the names they make."""
    names: dict[str, object] = {"__name__": "page"}
    for kind, code in blocks(text):
        if kind == "pycon":
            for example in doctest.DocTestParser().get_examples(code):
                exec(compile(example.source, "<page>", "single"), names)
        elif kind == "python":
            exec(compile(code, "<page>", "exec"), names)
    return names


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def docs_conftest():
    spec = importlib.util.spec_from_file_location("docs_conftest", ROOT / "docs" / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_has_only_code_that_is_run(page):
    for kind, code in blocks(page.read_text(encoding="utf-8")):
        assert kind in KNOWN, (
            f"a block of kind {kind!r}: one of {sorted(KNOWN)}, so that it is run or known not to be"
        )
        if kind == "pycon":
            assert code.lstrip().startswith(">>>"), f"a session starts with >>>: {code[:60]!r}"
            assert code.endswith("\n\n"), f"doctest takes the closing fence for output: {code[-60:]!r}"
        elif ">>>" in code:
            assert kind == "text", f"a session in a block of kind {kind!r}"


def test_python_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if page.parent.name == "notebooks":  # tests/test_notebooks.py runs these, cell by cell
            continue
        if "\n```python\n" in text and not docs_conftest().missing(page):
            try:
                run(text)
            except Exception as error:
                raise AssertionError(f"{name(page)}: a python block raised") from error


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_settings_that_pages_show_exist(page):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    extras = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "optional-dependencies"
        ]
    )
    text = page.read_text(encoding="utf-8")
    for kind, code in blocks(text):
        if kind == "toml":
            tomllib.loads(code)
        for target in re.findall(r"^\$ make ([a-z]+)", code, re.MULTILINE) if kind == "console" else ():
            assert target in targets, f"make {target}"
        for command in re.findall(r"python -m bench ([a-z_]+)", code) if kind == "console" else ():
            assert command in commands(), f"python -m bench {command}"
    for wanted in re.findall(r"fdro\[([\w,]+)\]", text):
        assert set(wanted.split(",")) <= extras, f"fdro[{wanted}]"


def test_whole_files_that_pages_show_are_run_elsewhere():
    """A block of kind `py` begins with its file's name, and some test takes it from the page by that name."""
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for page in PAGES:
        for kind, code in blocks(page.read_text(encoding="utf-8")):
            if kind == "py":
                assert f'file_of("{page.name}", "{code.split()[1]}")' in tests


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{name(page)} links to {target}"


def test_links_of_the_results_lead_somewhere():
    """The results that pages link to are pages too; each that a command wrote is in their list."""
    results = ROOT / "bench" / "results"
    listed = (results / "README.md").read_text(encoding="utf-8")
    for page in results.rglob("*.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"
        place = page.relative_to(results).as_posix()
        assert place == "README.md" or f"({place})" in listed, f"{place} is not listed"


def missing_paths(text: str) -> list[str]:
    """Repository paths that a page names between backticks and that do not exist."""
    prose = FENCE.sub("", text)
    return [path for path in PATH.findall(prose) if not (ROOT / path).exists()]


def missing_names(text: str) -> list[str]:
    """Dotted names of our packages between backticks whose module, or whose name in it, does not exist."""
    prose = FENCE.sub("", text)
    return [dotted for dotted in DOTTED.findall(prose) if not is_defined(dotted.split("."))]


def is_defined(parts: list[str]) -> bool:
    """Whether a dotted name is a module, or a word in the source of the module that would hold it.

    Nothing is imported: some modules need packages that are not installed everywhere.
    """
    folder = ROOT
    for place, part in enumerate(parts):
        if (folder / part).is_dir():
            folder /= part
            continue
        file, rest = folder / f"{part}.py", parts[place + 1 :]
        if not file.exists():
            file, rest = folder / "__init__.py", parts[place:]
        return not rest or re.search(rf"\b{rest[0]}\b", file.read_text(encoding="utf-8")) is not None
    return True


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_paths_and_names_that_pages_mention_exist(page):
    text = page.read_text(encoding="utf-8")
    assert missing_paths(text) == []
    assert missing_names(text) == []


def test_the_tree_in_contributing_exists():
    """Every folder of the tree under its package: `sets/` under `uncertainty_sets/`."""
    [tree] = [
        code
        for kind, code in blocks((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
        if kind == "text" and code.startswith("uncertainty_sets/")
    ]
    package = ""
    shown: dict[str, set[str]] = {}
    for line in tree.splitlines():
        for folder in re.findall(r"(?<!\S)(\w+)/(?!\S)", line):
            if line.startswith(folder):
                package = folder
                shown[package] = set()
            else:
                shown[package].add(folder)
            assert (ROOT / package / folder if folder != package else ROOT / package).is_dir(), folder
    for each in ("uncertainty_sets", "fdro_core"):
        there = {path.parent.name for path in (ROOT / each).glob("*/__init__.py")}
        assert shown[each] == there, f"the tree of {each} in CONTRIBUTING.md"


def test_a_stale_path_would_be_seen():
    assert missing_paths("`bench/nowhere.py`, `bench/`, `fdro_core/engines`") == ["bench/nowhere.py"]
    stale = ["fdro_core.nowhere", "fdro_core.aspire.theory.nothing"]
    assert (
        missing_names("`fdro_core.aspire.theory.gamma`, " + ", ".join(f"`{each}`" for each in stale)) == stale
    )


def test_a_broken_example_would_be_seen():
    with pytest.raises(NameError):
        run("```python\nundefined\n```\n")
    with pytest.raises(ZeroDivisionError):
        run("```pycon\n>>> x = 0\n\n```\ntext\n```python\n1 / x\n```\n")
    assert run("```{image} a.svg\n```\n```text\nnot python\n```\n")["__name__"] == "page"
    assert len(PAGES) > 10, "the pages have moved"


def test_formulas_can_be_set():
    """The built pages have them as MathML, by docutils, which does not know every command of LaTeX."""
    latex2mathml = pytest.importorskip("docutils.utils.math.latex2mathml")
    formulas = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for formula in inline_formulas(text):
            assert "<math" in latex2mathml.tex2mathml(formula), f"{name(page)}: {formula}"
        for kind, code in blocks(text):
            if kind == "math":
                assert not re.search(r"\\d?frac[^{]", code), f"docutils needs \\frac{{1}}{{2}}: {code}"
                assert "<math" in latex2mathml.tex2mathml(code.strip(), as_block=True), (
                    f"{name(page)}: {code}"
                )
                formulas += 1
    assert formulas > 20, "the formulas have moved"


def inline_formulas(text: str) -> list[str]:
    """What stands between dollars in running text, outside code."""
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
    return [formula.replace("\\|", "|") for formula in re.findall(r"\$([^$\n]+)\$", prose)]


def test_inline_formulas_are_found():
    text = "for $\\eta > 0$ and `$ pip`, `$x$`\n\n```console\n$ make\n```\n| $\\Vert z \\Vert$ | 1 |\n"
    assert inline_formulas(text) == ["\\eta > 0", "\\Vert z \\Vert"]
    assert sum(len(inline_formulas(page.read_text(encoding="utf-8"))) for page in PAGES) > 100


def copied(code: str) -> str:
    """What the copy button of the built pages gives: lines with a prompt, without it, if there are any."""
    conf = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    [prompt] = re.findall(r'^copybutton_prompt_text = r"(.*)"$', conf, re.MULTILINE)
    lines = [re.match(rf"(?:{prompt})(.*)", line) for line in code.splitlines()]
    return "\n".join(line[1] for line in lines if line) if any(lines) else code


def test_the_copy_button_gives_code_that_runs():
    assert copied("$ pip install -e .\nSuccess\n$ fdro demo") == "pip install -e .\nfdro demo"
    assert copied("x = 1\n") == "x = 1\n"
    for page in PAGES:
        for kind, code in blocks(page.read_text(encoding="utf-8")):
            if kind == "pycon":
                sources = [example.source for example in doctest.DocTestParser().get_examples(code)]
                lines = copied(code).splitlines()
                code_lines = [line for line in lines if not line.startswith("#")]  # no example for doctest
                assert "\n".join(code_lines).rstrip("\n") == "".join(sources).rstrip("\n"), name(page)


def test_install_lines_name_a_file_or_an_extra():
    """fdro is on no package index: pip can take a clone, a wheel, or an extra of the installed fdro."""
    for page in PAGES:
        for kind, code in blocks(page.read_text(encoding="utf-8")):
            for words in (
                re.findall(r"^\$ pip install (.*)$", code, re.MULTILINE) if kind == "console" else ()
            ):
                assert not re.search(r"(?<![\w/\"])fdro(?![\w\[-])", words), (
                    f"{name(page)}: pip install {words}"
                )


def test_pages_that_need_a_package_say_so(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n<!-- needs: numpy, no_such_package -->\n", encoding="utf-8")
    assert docs_conftest().missing(page) == ["no_such_package"]
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if re.search(r"^(>>> |\.\.\. )?(import|from) torch\b", text, re.MULTILINE):
            assert re.search(r"<!-- (this section )?needs: torch -->", text), f"{name(page)} imports torch"


def test_a_section_that_needs_a_package_is_left_out_alone():
    page = "# One\n\n>>> 1\n\n## Two\n\n<!-- this section needs: {} -->\n\n>>> 2\n\n## Three\n\n>>> 3\n"
    assert docs_conftest().unavailable(page.format("no_such_package")) == [range(6, 10)]
    assert docs_conftest().unavailable(page.format("numpy")) == []


def test_the_index_for_machines_has_a_sentence_of_every_page():
    pytest.importorskip("sphinx")
    spec = importlib.util.spec_from_file_location("docs_conf", ROOT / "docs" / "conf.py")
    conf = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conf)
    page = "# Title\n\n<!-- x -->\n\n![A picture.](a.png)\n\nSee [a\npage](b.md): it is. More.\n"
    assert conf.first_words(page) == "See a page: it is."
    assert conf.first_words("# Only a title\n") == ""
    listed = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for name in re.findall(r"^[a-z][\w/-]+$", listed, re.MULTILINE):
        page = ROOT / "docs" / f"{name}.md"
        if name not in {"api", "changelog"}:  # made of directives
            assert conf.first_words(page.read_text(encoding="utf-8")), name


def test_every_set_of_fdro_has_an_example_in_which_its_shape_is_seen():
    pytest.importorskip("matplotlib")
    from docs import draw
    from uncertainty_sets import available_sets, get_set

    ours = [name for name in available_sets() if get_set(name).__module__.startswith("uncertainty_sets.")]
    assert sorted(draw.EXAMPLES) == sorted(ours)
    for name, (make, shape) in draw.EXAMPLES.items():
        example = make()
        assert type(example) is get_set(name)
        assert example.with_size(3).worst_case(draw.LOSSES).p.shape == (3,)
        assert shape.endswith(".")
    assert set(draw.SHEET) < set(draw.EXAMPLES)


@pytest.mark.thorough
def test_the_page_of_sites_in_a_shell(tmp_path, monkeypatch):
    """As a reader does it: the first block copied into sites.py, the run file beside it, two commands."""
    pytest.importorskip("torch")
    from typer.testing import CliRunner

    from fdro_core.cli.app import app

    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "have-sites.md").read_text(encoding="utf-8")
    kinds = dict(reversed(blocks(text)))  # the first of each kind
    Path("sites.py").write_text(copied(kinds["pycon"]), encoding="utf-8")
    Path("run.toml").write_text(kinds["toml"].replace("seconds = 600", "seconds = 30"), encoding="utf-8")
    commands = re.findall(r"^\$ (?:OMP_NUM_THREADS=1 )?fdro (.*)$", kinds["console"], re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["train", "report"]
    for command in commands:
        answer = CliRunner().invoke(app, command.split())
        assert answer.exit_code == 0, answer.output
    assert Path("side-by-side.html").exists()
