"""Kernels on disk: nothing depends on them, whatever happened to their files.

Most tests run processes with a package of two tiny kernels in two files, which compile in a moment.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import fdro_core
import uncertainty_sets

PACKAGES = [Path(module.__file__).parent for module in (uncertainty_sets, fdro_core)]
ROOT = PACKAGES[0].parent
NOWHERE = {"HOME": "/nonexistent/home", "XDG_CACHE_HOME": "/dev/null/cache"}

STEP = """
from uncertainty_sets.kernels.jit import kernel


@kernel
def step(x):
    return x + 1.0
"""
TWICE = """
from tiny.kernels.first import step
from uncertainty_sets.kernels.jit import kernel


@kernel
def twice(x):
    return step(step(x))
"""
ASK = "from tiny.kernels.second import twice; print(twice(1.0), 'hits', sum(twice.stats.cache_hits.values()))"


def command(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def environment(*folders: Path, **more: str) -> dict[str, str]:
    """Nothing of this process's environment but the search paths; kernels by numba, compiled or not."""
    path = os.pathsep.join(map(str, folders))
    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "FDRO_JIT": "1"}
    return kept | more


def run(folder: Path, code: str = ASK, code_of_exit: int = 0, **more: str) -> str:
    """What a process prints that finds packages in `folder` and in the checkout."""
    done = subprocess.run(
        command(code),
        env=environment(folder, ROOT, **more),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code_of_exit, done.stderr
    return done.stdout.strip()


@pytest.fixture
def tiny(tmp_path):
    """A folder with the package of tiny kernels."""
    kernels = tmp_path / "code" / "tiny" / "kernels"
    kernels.mkdir(parents=True)
    for name, text in {"__init__": "", "first": STEP, "second": TWICE}.items():
        (kernels / f"{name}.py").write_text(text)
    (kernels.parent / "__init__.py").write_text("")
    return tmp_path / "code"


@pytest.fixture
def elsewhere(tmp_path):
    """The setting that puts compiled kernels into a folder of their own."""
    return {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}


def compiled_files(where: dict[str, str]) -> list[Path]:
    return sorted(Path(where["NUMBA_CACHE_DIR"]).rglob("*.nbc"))


def read_only(folder: Path) -> None:
    """Take the right to write from every folder; as root, put files where numba would make its folders."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            if not (path / "__pycache__").exists():
                (path / "__pycache__").write_text("")
            path.chmod(stat.S_IRUSR | stat.S_IXUSR)


def edit(folder: Path, old: str = "x + 1.0", new: str = "x + 2.0") -> None:
    """Change the callee's file to another of the same size and time, as a copy that keeps times may."""
    path = folder / "tiny" / "kernels" / "first.py"
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    os.utime(path, ns=times)


def test_a_read_only_package_and_no_home(tmp_path):
    for package in PACKAGES:
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    read_only(tmp_path)
    ask = (
        "from fdro_core import solve; from uncertainty_sets import Box; import uncertainty_sets as package; "
        "print(Box([0, 0], [0.75, 0.75]).worst_case([1.0, 2.0]).value, package.__file__)"
    )
    assert run(tmp_path, ask, **NOWHERE) == f"1.75 {tmp_path / 'uncertainty_sets' / '__init__.py'}"


def test_a_folder_named_for_the_cache_is_used(tiny, elsewhere):
    read_only(tiny)
    assert run(tiny, **NOWHERE, **elsewhere) == "3.0 hits 0"
    assert compiled_files(elsewhere)
    assert run(tiny, **NOWHERE, **elsewhere) == "3.0 hits 1"


@pytest.mark.parametrize("beside", [True, False])
def test_an_edit_in_a_callees_file_is_seen(tiny, elsewhere, beside):
    where = {} if beside else elsewhere
    assert run(tiny, **where) == "3.0 hits 0"
    edit(tiny)
    assert run(tiny, **where) == "5.0 hits 0"


def test_two_versions_share_one_cache(tiny, elsewhere):
    """Each finds its own kernels again, as after an upgrade that was taken back."""
    assert run(tiny, **elsewhere) == "3.0 hits 0"
    edit(tiny)
    assert run(tiny, **elsewhere) == "5.0 hits 0"
    edit(tiny, "x + 2.0", "x + 1.0")
    assert run(tiny, **elsewhere) == "3.0 hits 1"


def test_a_version_that_is_replaced_while_it_runs_leaves_no_kernel_for_the_next(tiny, elsewhere):
    """It compiles what it imported, after its files have become others."""
    replaced = f"""
import tiny.kernels.second
from pathlib import Path
path = Path({str(tiny / "tiny" / "kernels" / "first.py")!r})
path.write_text(path.read_text().replace("x + 1.0", "x + 2.0"))
print(tiny.kernels.second.twice(1.0))
"""
    assert run(tiny, replaced, **elsewhere) == "3.0"
    assert run(tiny, **elsewhere) == "5.0 hits 0"


def test_sixteen_processes_start_cold_on_one_cache(tiny, elsewhere):
    settings = {"env": environment(tiny, ROOT, **elsewhere), "cwd": tiny, "text": True}
    started = [
        subprocess.Popen(command(ASK), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings)
        for _ in range(16)
    ]
    for process in started:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out.startswith("3.0 hits"), out
    assert run(tiny, **elsewhere) == "3.0 hits 1"


@pytest.mark.parametrize("moment", ["replace", "write"])
def test_a_process_killed_while_it_writes(tiny, elsewhere, moment):
    """Before the file has its name, or with half of it written; the next process compiles, and the one after
    finds what that one wrote."""
    kill = """
import builtins, os, signal
def replace(source, target):
    os.kill(os.getpid(), signal.SIGKILL)
class Half:
    def __init__(self, file): self.file = file
    def __enter__(self): return self
    def __exit__(self, *error): self.file.close()
    def write(self, data):
        self.file.write(data[: len(data) // 2]); self.file.flush(); os.kill(os.getpid(), signal.SIGKILL)
real = builtins.open
def halved(name, *rest, **more):
    file = real(name, *rest, **more)
    return Half(file) if ".nbc" in str(name) and "wb" in rest else file
"""
    kill += "os.replace = replace\n" if moment == "replace" else "builtins.open = halved\n"
    run(tiny, kill + ASK, -9, **elsewhere)
    left = [path for path in Path(elsewhere["NUMBA_CACHE_DIR"]).rglob("*.nbc*") if path.is_file()]
    assert left, "the process ended before it wrote anything"
    assert run(tiny, **elsewhere) == "3.0 hits 0"
    assert run(tiny, **elsewhere) == "3.0 hits 1"


def test_damaged_files_are_compiled_again(tiny, elsewhere):
    assert run(tiny, **elsewhere) == "3.0 hits 0"
    files = compiled_files(elsewhere)
    assert len(files) == 2
    good = [path.read_bytes() for path in files]
    flipped = [data[:-9] + bytes([data[-9] ^ 1]) + data[-8:] for data in good]
    for damaged in (
        [data[: len(data) // 2] for data in good],
        [b"" for _ in good],
        flipped,
        good[::-1],  # each with the other's contents
    ):
        for path, data in zip(files, damaged, strict=True):
            path.write_bytes(data)
        assert run(tiny, **elsewhere) == "3.0 hits 0"
    assert run(tiny, **elsewhere) == "3.0 hits 1", "not written again"


def test_a_cache_that_can_no_longer_be_written(tiny, elsewhere):
    """A full disk, or a folder that is taken away between import and first call."""
    taken = """
import shutil, os, tiny.kernels.second
folder = os.environ["NUMBA_CACHE_DIR"]
shutil.rmtree(folder)
open(folder, "w").close()
"""
    assert run(tiny, taken + ASK, **elsewhere) == "3.0 hits 0"


def test_files_of_old_versions_are_deleted(tiny, elsewhere):
    from uncertainty_sets.kernels.cache import KEPT

    assert run(tiny, **elsewhere) == "3.0 hits 0"
    (recent,) = (path for path in compiled_files(elsewhere) if path.name.startswith("second.twice-"))
    for k in range(2 * KEPT):
        old = recent.with_name(f"second.twice-{k + 99}.py311.{k}.nbc")
        old.write_bytes(b"")
        os.utime(old, (k, k))
    edit(tiny)
    assert run(tiny, **elsewhere) == "5.0 hits 0"
    left = [path for path in compiled_files(elsewhere) if path.name.startswith("second.twice-")]
    assert len(left) == KEPT
    assert recent in left
    edit(tiny, "x + 2.0", "x + 1.0")
    assert run(tiny, **elsewhere) == "3.0 hits 1"


def test_kernels_in_a_zip_file_are_compiled_without_a_cache(tiny, elsewhere):
    archive = shutil.make_archive(str(tiny.parent / "zipped"), "zip", tiny)
    shutil.rmtree(tiny / "tiny")
    assert run(Path(archive).parent, f"import sys; sys.path.insert(0, {archive!r}); {ASK}", **elsewhere) == (
        "3.0 hits 0"
    )
