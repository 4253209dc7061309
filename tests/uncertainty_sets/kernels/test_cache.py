"""What numba compiled, on disk: found again, never of other sources, and nothing depends on it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.uncertainty_sets.kernels import tiny
from uncertainty_sets.kernels.native import cache

ASK = "from tiny.kernels.second import twice; print(twice(1.0), sum(twice.stats.cache_hits.values()))"


@pytest.fixture
def code(tmp_path):
    """A folder with the package of tiny kernels."""
    return tiny.package(tmp_path / "code")


@pytest.fixture
def kept(tmp_path):
    """numba compiles, and keeps what it made in a folder of its own."""
    return {"FDRO_CACHE": str(tmp_path / "cache"), "FDRO_JIT": "1"}


def files(where: dict[str, str]) -> list[Path]:
    return sorted(Path(where["FDRO_CACHE"]).rglob("*.nbc"))


def ask(code: Path, program: str = ASK, exit_code: int = 0, **more: str) -> str:
    return tiny.run(code, program, exit_code, **more)[0]


def test_what_was_compiled_is_found_again_also_after_an_edit_that_is_taken_back(code, kept):
    assert ask(code, **kept) == "3.0 0"
    assert ask(code, **kept) == "3.0 1"
    tiny.edit(code)
    assert ask(code, **kept) == "5.0 0"
    tiny.edit(code, "x + 2.0", "x + 1.0")
    assert ask(code, **kept) == "3.0 1"


def test_kernels_of_one_factory_and_name_are_told_apart_in_every_process(code, kept):
    """By what they close over, and its text, which stands in the owner's file or is imported there."""
    program = (
        "from tiny.kernels.second import forth, moves; every = [forth, *moves]\n"
        "print([each(1.0) for each in every], [sum(each.stats.cache_hits.values()) for each in every])"
    )
    assert ask(code, program, **kept) == "[4.0, 2.0, 3.0, -1.0] [0, 0, 0, 0]"
    assert ask(code, program, **kept) == "[4.0, 2.0, 3.0, -1.0] [1, 1, 1, 1]"
    tiny.edit(code)
    assert ask(code, program, **kept) == "[7.0, 3.0, 5.0, -1.0] [0, 0, 0, 0]"


@pytest.mark.thorough
def test_a_version_that_is_replaced_while_it_runs_leaves_no_kernel_for_the_next(code, kept):
    """It compiles what it imported, after its files have become others."""
    replaced = f"""
import tiny.kernels.second
from pathlib import Path
path = Path({str(code / "tiny" / "kernels" / "first.py")!r})
path.write_text(path.read_text().replace("x + 1.0", "x + 2.0"))
print(tiny.kernels.second.twice(1.0))
"""
    assert ask(code, replaced, **kept) == "3.0"
    assert ask(code, **kept) == "5.0 0"


@pytest.mark.thorough
def test_sixteen_processes_start_cold_on_one_cache(code, kept):
    settings = {"env": tiny.environment(code, **kept), "cwd": code, "text": True}
    started = [
        subprocess.Popen(tiny.command(ASK), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings)
        for _ in range(16)
    ]
    for process in started:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out.startswith("3.0 "), out
    assert ask(code, **kept) == "3.0 1"


@pytest.mark.parametrize("moment", ["replace", pytest.param("write", marks=pytest.mark.thorough)])
def test_a_process_killed_while_it_writes(code, kept, moment):
    """Before the file has its name, or with half of it written; the next process compiles, and the one after
    finds what that one wrote."""
    kill = """
import os, signal, tempfile
from uncertainty_sets.kernels.native import cache
def replace(source, target):
    os.kill(os.getpid(), signal.SIGKILL)
class Half:
    def __init__(self, *rest, **more): self.file = real(*rest, **more)
    def __enter__(self): return self
    def __exit__(self, *error): self.file.close()
    def write(self, data):
        self.file.write(data[: len(data) // 2]); self.file.flush(); os.kill(os.getpid(), signal.SIGKILL)
real = tempfile.NamedTemporaryFile
"""
    kill += "os.replace = replace\n" if moment == "replace" else "tempfile.NamedTemporaryFile = Half\n"
    ask(code, kill + ASK, -9, **kept)
    left = [path for path in Path(kept["FDRO_CACHE"]).rglob(".new-*") if path.is_file()]
    assert left, "the process ended before it wrote anything"
    assert ask(code, **kept) == "3.0 0"
    assert ask(code, **kept) == "3.0 1"


def test_damaged_files_are_compiled_again(code, kept):
    assert ask(code, **kept) == "3.0 0"
    found = files(kept)
    assert len(found) == 2
    good = [path.read_bytes() for path in found]
    flipped = [data[:-9] + bytes([data[-9] ^ 1]) + data[-8:] for data in good]
    for damaged in ([data[: len(data) // 2] for data in good], [b"" for _ in good], flipped):
        for path, data in zip(found, damaged, strict=True):
            path.write_bytes(data)
        assert ask(code, **kept) == "3.0 0"
    assert ask(code, **kept) == "3.0 1", "not written again"


def test_a_cache_that_can_no_longer_be_written(code, kept):
    """A full disk, or a folder that is taken away between import and first call."""
    taken = """
import os, tiny.kernels.second
open(os.environ["FDRO_CACHE"], "w").close()
"""
    assert ask(code, taken + ASK, **kept) == "3.0 0"


def test_kernels_in_a_zip_file_are_compiled_without_a_cache(code, kept):
    archive = shutil.make_archive(str(code.parent / "zipped"), "zip", code)
    shutil.rmtree(code / "tiny")
    program = f"import sys; sys.path.insert(0, {archive!r}); {ASK}"
    assert ask(Path(archive).parent, program, **kept) == "3.0 0"
    assert not files(kept)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The cache of this process."""
    monkeypatch.setenv("FDRO_CACHE", str(tmp_path))
    return tmp_path


def test_what_is_written_is_read(folder):
    cache.write("a/b.1.x", b"data")
    assert cache.read("a/b.1.x") == b"data"
    assert cache.read("a/b.2.x") is None
    (folder / "a" / "b.1.x").write_bytes(b"short")
    assert cache.read("a/b.1.x") is None


def test_files_of_old_versions_are_deleted_and_others_are_not(folder):
    (folder / "a").mkdir()
    for k in range(2 * cache.KEPT):
        for name in (f"b.{k}.x", f"c.{k}.x", f"b.{k}.y"):
            (folder / "a" / name).write_bytes(b"")
            os.utime(folder / "a" / name, (k, k))
    cache.write("a/b.new.x", b"data")
    names = [path.name for path in (folder / "a").iterdir()]
    left = [name for name in names if name.startswith("b.") and name.endswith(".x")]
    assert len(left) == cache.KEPT
    assert {"b.new.x", f"b.{2 * cache.KEPT - 1}.x"} <= set(left)
    assert len(names) == cache.KEPT + 4 * cache.KEPT


def test_a_relative_or_missing_cache_home_is_not_used(monkeypatch):
    monkeypatch.delenv("FDRO_CACHE", raising=False)
    for value in ("", "relative/cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache.folder() == Path("~/.cache/fdro").expanduser()
