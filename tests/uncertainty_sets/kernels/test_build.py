"""Libraries of tiny kernels: made from their sources when they are needed, kept, and never out of date."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.uncertainty_sets.kernels import tiny
from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels.native import library, sources
from uncertainty_sets.kernels.native.shim import UnsuitableEntry, parameters, results

needs_compiler = pytest.mark.skipif(bool(library.obstacle()), reason=library.obstacle())

CALL = """
import sys
import numpy as np
from tiny.kernels.second import double, is_long, pick, twice
out = np.empty((2, 3))
double(np.arange(6.0).reshape(2, 3), out)
print(out.tolist(), pick(np.arange(8.0).reshape(2, 2, 2), np.array([1, 0]), 3.0, True))
print(is_long(np.ones(3), 2), is_long(np.ones(0), 2), twice(1.0), "numba" in sys.modules)
"""
WANTED = "[[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]] (-3.0, 2)\nTrue False 3.0"
NOTE = "fdro compiles kernels.second, once for these sources; `make kernels` compiles all"
NOWHERE = {"HOME": "/nonexistent/home", "XDG_CACHE_HOME": "/dev/null/cache"}


@pytest.fixture
def code(tmp_path):
    """A folder with the package of tiny kernels."""
    return tiny.package(tmp_path / "code")


@pytest.fixture
def kept(tmp_path):
    """The setting that puts libraries into a folder of their own."""
    return {"FDRO_CACHE": str(tmp_path / "cache")}


def libraries(where: dict[str, str]) -> list[Path]:
    return sorted(Path(where["FDRO_CACHE"]).rglob("*.so"))


@needs_compiler
def test_a_library_is_made_at_the_first_call_and_found_by_the_next_process(code, kept):
    """In the second process, and in a copy elsewhere, nothing is compiled and numba is not imported."""
    assert tiny.run(code, CALL, **kept) == (f"{WANTED} False", NOTE)
    assert tiny.run(code, CALL, **kept) == (f"{WANTED} False", "")
    copy = shutil.copytree(code, code.parent / "copy")
    assert tiny.run(copy, CALL, **kept) == (f"{WANTED} False", "")
    assert tiny.run(code, CALL, **kept, FDRO_JIT="1") == (f"{WANTED} True", "")


@needs_compiler
def test_an_edit_of_a_callee_is_seen_and_taken_back_for_nothing(code, kept):
    assert tiny.run(code, **kept)[0] == "3.0"
    tiny.edit(code)
    assert tiny.run(code, **kept) == ("5.0", NOTE)
    tiny.edit(code, "x + 2.0", "x + 1.0")
    assert tiny.run(code, **kept) == ("3.0", "")


@needs_compiler
@pytest.mark.thorough
def test_sources_that_are_replaced_while_a_process_runs(code, kept):
    """It runs what it imported, by numba, and leaves no library of it for the next."""
    first = code / "tiny" / "kernels" / "first.py"
    replaced = f"""
import tiny.kernels.second
from pathlib import Path
path = Path({str(first)!r})
path.write_text(path.read_text().replace("x + 1.0", "x + 2.0"))
print(tiny.kernels.second.twice(1.0))
"""
    assert tiny.run(code, replaced, **kept)[0] == "3.0"
    assert tiny.run(code, **kept)[0] == "5.0"


@needs_compiler
@pytest.mark.parametrize("level", ["v2", "v3"])
@pytest.mark.thorough
def test_older_processors_have_code_of_their_own(code, kept, level):
    if level not in library._levels():
        pytest.skip("levels are for x86-64")
    assert tiny.run(code, CALL, **kept, FDRO_CPU_LEVEL=level)[0] == f"{WANTED} False"
    [made] = libraries(kept)
    assert f"-{level}." in made.name


@needs_compiler
def test_a_kernel_that_a_factory_makes_is_in_its_owners_library(code, kept):
    program = "import sys; from tiny.kernels.second import forth; print(forth(1.0), 'numba' in sys.modules)"
    assert tiny.run(code, program, **kept) == ("4.0 False", NOTE)
    assert tiny.run(code, program, **kept) == ("4.0 False", "")
    tiny.edit(code)
    assert tiny.run(code, program, **kept) == ("7.0 False", NOTE)


@needs_compiler
def test_damaged_libraries_are_made_again(code, kept):
    assert tiny.run(code, **kept)[0] == "3.0"
    [made] = libraries(kept)
    good = made.read_bytes()
    for damaged in (good[: len(good) // 2], b"", good[:-9] + bytes([good[-9] ^ 1]) + good[-8:]):
        made.write_bytes(damaged)
        assert tiny.run(code, **kept) == ("3.0", NOTE)
        assert made.read_bytes()[-32:] != damaged[-32:] or len(damaged) == len(good)
    assert tiny.run(code, **kept) == ("3.0", ""), "not written again"


@needs_compiler
def test_without_a_folder_to_write_to_every_process_compiles(code):
    for path in [code, *code.rglob("*")]:
        if path.is_dir():
            path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert tiny.run(code, **NOWHERE) == ("3.0", NOTE)


@needs_compiler
@pytest.mark.thorough
def test_sixteen_processes_start_cold_on_one_cache(code, kept):
    started = [
        subprocess.Popen(
            tiny.command(tiny.ASK),
            env=tiny.environment(code, **kept),
            cwd=code,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(16)
    ]
    for process in started:
        out, err = process.communicate(timeout=300)
        assert (process.returncode, out.strip()) == (0, "3.0"), err
    assert len(libraries(kept)) == 1
    assert not list(Path(kept["FDRO_CACHE"]).rglob(".new-*"))
    assert tiny.run(code, **kept) == ("3.0", "")


@needs_compiler
def test_a_kernel_that_needs_numba_at_run_time_is_named_and_still_runs(tmp_path, kept):
    text = tiny.TWICE.replace("best.sum() if turn else best.sum()", "best.max() if turn else best @ best")
    code = tiny.package(tmp_path / "code", text)
    out, told = tiny.run(code, **kept)
    assert out == "3.0"
    assert "could not make the library of tiny.kernels.second; numba compiles its kernels" in told
    assert "tiny.kernels.second calls " in told
    assert "Usual causes" in told


def test_without_a_compiler_numba_compiles(code, kept):
    assert tiny.run(code, **kept, CC="no-such-compiler") == ("3.0", "")
    assert not libraries(kept)
    ask = "from uncertainty_sets.kernels.native.library import status; print(status())"
    told, _ = tiny.run(code, ask, **kept, CC="no-such-compiler")
    assert "by numba: there is no no-such-compiler; install a C compiler or set CC" in told


@needs_compiler
def test_a_compiler_that_fails_is_told(code, kept, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho out of ideas >&2; exit 1\n")
    broken.chmod(0o700)
    out, told = tiny.run(code, **kept, CC=str(broken))
    assert out == "3.0"
    assert told.splitlines()[-1].endswith(f"slowly: {broken} failed: out of ideas")


def test_the_files_that_a_kernel_depends_on(code):
    second = code / "tiny" / "kernels" / "second.py"
    found = sources.files("tiny.kernels.second", second)
    assert set(found) == {
        "tiny.kernels.second",
        "tiny.kernels.first",
        "uncertainty_sets.arrays",
        "uncertainty_sets.kernels.jit",
    }


def test_every_file_of_kernels_depends_on_what_it_imports():
    """What a file finds by its text is what Python's own parser finds."""
    import ast

    for package in ("uncertainty_sets", "fdro_core"):
        for module, file in sources.kernel_files(package, tiny.ROOT).items():
            found = sources.files(module, file)
            for name, each in found.items():
                if name == sources.JIT:
                    continue
                for node in ast.walk(ast.parse(each.read_text())):
                    if isinstance(node, ast.ImportFrom) and node.level:
                        pytest.fail(f"{name} imports relatively, which sources.py does not follow")
                    if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == package:
                        of = tiny.ROOT.joinpath(*node.module.split("."))
                        wanted = [node.module] if of.with_suffix(".py").is_file() else []
                        wanted += [
                            f"{node.module}.{one.name}"
                            for one in node.names
                            if (of / f"{one.name}.py").is_file()
                        ]
                        assert set(wanted) <= set(found), (module, name, wanted)


def test_parameters_come_from_annotations():
    def entry(F: Matrix, radius: Vector, limit: float, most: int, out: Matrix) -> None: ...

    found = parameters("entry", entry, ("out",))
    types = ["float64[:, ::1]", "float64[::1]", "float64", "int64", "float64[:, ::1]"]
    assert [each.numba for each in found] == types
    assert [each.written for each in found] == [False] * 4 + [True]


def test_a_parameter_without_dimensions_is_refused():
    def entry(F: Array) -> None: ...

    with pytest.raises(UnsuitableEntry, match=r"entry: parameter F .* takes Vector, Matrix"):
        parameters("entry", entry, ())


def test_a_written_parameter_must_exist():
    def entry(F: Matrix) -> None: ...

    with pytest.raises(UnsuitableEntry, match="entry names P, not among its parameters"):
        parameters("entry", entry, ("P",))


def test_a_result_must_be_numbers():
    assert results("entry", "float64") == "float64"
    with pytest.raises(UnsuitableEntry, match="entry returns array"):
        results("entry", "array(float64, 1d, C)")


@needs_compiler
@pytest.mark.thorough
def test_a_process_killed_while_it_makes_a_library(code, kept):
    """The next one makes it, though the lock of the one that was killed is still there."""
    process = subprocess.Popen(
        tiny.command(tiny.ASK),
        env=tiny.environment(code, **kept),
        cwd=code,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr.readline().strip() == NOTE
    os.killpg(process.pid, 9)
    process.communicate()
    assert not libraries(kept)
    assert tiny.run(code, **kept) == ("3.0", NOTE)
