"""Make the libraries of files of kernels: lower, emit, compile the C file and link.

| file | does |
|---|---|
| `sources` | says what a file of kernels depends on |
| `lower` | numba's part: from Python to bitcode |
| `emit` | LLVM's part: from bitcode to an object for one level of processors |
| `shim` | says which types an entry may have, and writes the C file through which Python calls the objects |
| `cache` | keeps bitcode, objects and libraries |
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from uncertainty_sets.kernels.native import cache, library, shim, sources

HERE = Path(__file__).resolve().parent


class CannotBuild(RuntimeError):
    """The kernels cannot be compiled ahead of time here; the message says why."""


def build(
    files: dict[str, Path], into: Path | None = None, workers: int = 1, say: Callable[[str], None] = print
) -> dict[str, Path]:
    """Make the library of each file of kernels; return them by dotted name.

    Args:
        files: the files, by dotted name (`sources.kernel_files`).
        into: a folder that gets libraries for all levels, laid out as in a wheel; by default they are made
            for this processor and kept in the cache, and what is there already is left alone.
        workers: processes.
        say: what to do with a line of progress.
    """
    if reason := library.obstacle():
        raise CannotBuild(reason)
    todo = dict(files)
    if into is None:
        todo = {name: file for name, file in files.items() if library.find(name, str(file)) is None}
    sizes = {
        name: sum(each.stat().st_size for each in sources.files(name, file).values())
        for name, file in todo.items()
    }
    todo = dict(sorted(todo.items(), key=lambda item: -sizes[item[0]]))  # no process is left with a large one
    made: dict[str, Path] = {}
    begun, left = time.monotonic(), sum(sizes.values())
    for name, path in _each(todo, into, workers):
        made[name] = path
        done = sum(sizes[each] for each in made)
        rest = (time.monotonic() - begun) * (left - done) / done
        say(f"[{len(made)}/{len(todo)}] {name.partition('.')[2]}, about {rest:.0f} s left")
    return made


def _each(todo: dict[str, Path], into: Path | None, workers: int) -> Iterator[tuple[str, Path]]:
    """Make them in processes of their own, which keep what they have lowered for the next file."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(1, min(workers, len(todo))), context, _prepare) as pool:
        waiting: dict[Future[Path], str] = {
            pool.submit(make, name, file, into): name for name, file in todo.items()
        }
        try:
            for each in as_completed(waiting):
                yield waiting[each], each.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _prepare() -> None:
    from uncertainty_sets.kernels.native import lower

    lower.prepare()


def make(module: str, file: Path, into: Path | None = None) -> Path:
    """Make one library, in a process that `lower.prepare` has set up.

    Args:
        module: the file's dotted name.
        file: where it is.
        into: the folder for a library of all levels; by default, one for this processor in the cache.
    """
    wanted = sources.key(module, file)  # before: sources may be edited meanwhile
    levels = library.LEVELS[platform.machine()]
    if into is None:
        chosen = os.environ.get("FDRO_CPU_LEVEL")
        level = chosen if chosen in levels else _best(levels)
        name = library.cache_name(module, wanted, level)
        with _alone(name):
            if (kept := cache.path(name)) is None:  # another process may just have made it
                cache.write(name, _linked(module, wanted, {level: levels[level]}))
                kept = cache.path(name)
        if kept is None:
            raise CannotBuild(f"{cache.folder()} cannot be written")
        return kept
    path = into / library.bundled_name(module)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_linked(module, wanted, levels))
    return path


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Let one process at a time make a library; those that wait find it made."""
    import fcntl

    file = cache.folder() / f"{name}.lock"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go when the process ends, however that happens
        yield
    with suppress(OSError):
        file.unlink()


def _best(levels: Iterable[str]) -> str:
    """The best level that this processor runs, by the features that LLVM finds."""
    import llvmlite.binding as llvm

    has = llvm.get_host_cpu_features()
    runs = [each for each in levels if all(has.get(name) for name in shim.X86_LEVELS.get(each, ()))]
    if not runs:
        raise CannotBuild("the kernels need a newer processor than this")
    return runs[0]


def _bitcode(module: str, wanted: str) -> tuple[bytes, dict[str, Any]]:
    """What `lower` makes of a file: from the cache if it is there."""
    versions = f"numba {version('numba')}, llvmlite {version('llvmlite')}, Python {sys.version_info[:2]}"
    name = f"bitcode/{module}.{_hash(wanted, versions)}.bc"
    kept = cache.read(name)
    if kept is None:
        from uncertainty_sets.kernels.native import lower

        bitcode, described = lower.lower(module)
        cache.write(name, zlib.compress(json.dumps(described).encode() + b"\n" + bitcode, 1))
        return bitcode, described
    head, _, bitcode = zlib.decompress(kept).partition(b"\n")
    return bitcode, json.loads(head)


def _object(module: str, bitcode: bytes, symbols: dict[str, str], cpu: str) -> bytes:
    """What `emit` makes of bitcode: from the cache if it is there."""
    name = f"objects/{module}-{cpu}.{_hash(sources.pipeline().hex(), bitcode)}.o"
    kept = cache.read(name)
    if kept is None:
        from uncertainty_sets.kernels.native.emit import emit

        kept = emit(module, bitcode, symbols, cpu)
        cache.write(name, kept)
    return kept


def _linked(module: str, wanted: str, levels: dict[str, str]) -> bytes:
    """The library of a file for these levels."""
    bitcode, described = _bitcode(module, wanted)
    with tempfile.TemporaryDirectory(prefix="fdro-link-") as folder:
        work = Path(folder)
        by_level: dict[str, dict[str, Any]] = {}
        for level, cpu in levels.items():
            names = {name: f"fdro_{name.replace('.', '_')}_{level}" for name in described}
            by_level[level] = {name: {**each, "symbol": names[name]} for name, each in described.items()}
            symbols = {each["symbol"]: names[name] for name, each in described.items()}
            (work / f"{level}.o").write_bytes(_object(module, bitcode, symbols, cpu))
        (work / "shim.c").write_text(shim.source(by_level, wanted))
        includes = [f"-I{sysconfig.get_path('include')}", f"-I{HERE}"]
        objects = [str(work / f"{level}.o") for level in levels]
        command = [
            *shlex.split(os.environ.get("CC", "cc")),
            "-O1",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-s",
        ]
        _run(
            [*command, "-Wall", *includes, str(work / "shim.c"), *objects, "-lm", "-o", str(work / "made.so")]
        )
        return (work / "made.so").read_bytes()


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotBuild(f"{command[0]} cannot be run ({error}); install a C compiler or set CC") from error
    if done.returncode:
        raise CannotBuild(f"{command[0]} failed: {done.stderr.strip()}")


def _hash(*parts: str | bytes) -> str:
    total = blake2b(digest_size=12)
    for each in parts:
        total.update(each.encode() if isinstance(each, str) else each)
    return total.hexdigest()
