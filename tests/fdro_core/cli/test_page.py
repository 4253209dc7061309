"""docs/cli.md and docs/run-file.md, run as printed: files written, commands in order, outputs compared."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fdro_core.cli.app import app
from fdro_core.cli.runs.workers import kinds

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = [DOCS / "cli.md", DOCS / "run-file.md"]

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROUGHLY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def steps(block: str) -> Iterator[tuple[str, str]]:
    """(command, what is printed under it)."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def run(command: str) -> str:
    """A line as the shell would run it: `echo … |` in front is the input, `> file` takes the output."""
    if command.startswith("python "):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(Path(command.removeprefix("python ")).read_text(), command, "exec"), {})
        return printed.getvalue()
    command, _, file = command.partition(" > ")
    words, given = command, None
    if "|" in command:
        echo, _, words = command.partition("|")
        given = echo.removeprefix("echo ").strip() + "\n"
    arguments = shlex.split(words)
    assert arguments.pop(0) == "fdro"
    answer = CliRunner().invoke(app, arguments, input=given)
    assert answer.exit_code in ({2} if "wrong" in command else {0}), answer.output
    if file:
        Path(file).write_text(answer.stdout, encoding="utf-8")
        return ""
    return answer.output if answer.exit_code else answer.stdout


@pytest.mark.thorough
def test_the_pages_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    seen = []
    for block in BLOCK.findall("\n".join(page.read_text(encoding="utf-8") for page in PAGES)):
        for command, expected in steps(block):
            if command.startswith("cat "):
                Path(command.removeprefix("cat ")).write_text(expected, encoding="utf-8")
                continue
            got = run(command)
            seen.extend(re.findall(r"fdro (\w+)", command))
            assert doctest.OutputChecker().check_output(expected.strip(), got.strip(), ROUGHLY), (
                command,
                got,
            )
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    commands |= {group.typer_instance.info.name for group in app.registered_groups}
    assert set(seen) == commands  # every command has an example


def test_the_table_of_fields_is_complete():
    """Each field that the code takes by name stands in the table, and the other way round."""
    folder = DOCS.parent / "fdro_core" / "cli" / "runs"
    taken = set()
    for file in ("data.py", "workers.py", "run_file.py"):
        text = (folder / file).read_text(encoding="utf-8")
        taken |= set(re.findall(r'(?:read|choice|section|sections)\(\s*"(\w+)"', text))
    taken |= {"stragglers", "crashes", "stationary", "loss", "seconds"}  # taken in loops over these names
    for problem in kinds().values():  # whose arguments are fields of [model]
        taken |= set(inspect.signature(problem).parameters) - {"X", "y", "classes"}
    written = set(re.findall(r"^\| `\w+\.(\w+)`", PAGES[1].read_text(encoding="utf-8"), re.MULTILINE))
    assert written == taken - {"law"}  # a delay's own field, told with `engine.delays`
