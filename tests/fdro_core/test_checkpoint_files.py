"""Checkpoint files: replaced as a whole or not at all; what is no checkpoint, or damaged, is told apart."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import threading
import zipfile
from functools import partial

import numpy as np
import pytest

from fdro_core import AspireModels, ProblemFrom, resume, solve
from fdro_core.errors import CheckpointDamaged, FileNotWritten, InvalidSetting, ObserverFailed
from fdro_core.files import check_writable, replacing
from fdro_core.master import checkpoint as snapshots
from fdro_core.observers import Checkpoint, HistoryFile
from tests.fdro_core.engine_kinds import ROOT
from tests.fdro_core.helpers import middle_box, same, softmax_problems

N = 3


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The bytes of a real checkpoint."""
    path = tmp_path_factory.mktemp("made") / "run.npz"
    save(path)
    return path.read_bytes()


def save(path, iterations=6, observers=()):
    config = AspireModels(iterations=iterations, report_interval=2)
    return solve(
        softmax_problems(N), middle_box(N), algorithm=config, observers=[Checkpoint(path), *observers]
    )


def arrays_of(path):
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def tree(text):
    return np.frombuffer(text.encode(), dtype=np.uint8)


# -- reading --------------------------------------------------------------------------------------


def _npz(path, **arrays):
    np.savez(path, **arrays)


def _header(path, shape):
    """An npz whose `tree` claims a shape that it has not the numbers for."""
    head = json.dumps({"descr": "<f8", "fortran_order": False, "shape": shape}).replace("[", "(")
    head = head.replace("]", ",)").replace("false", "False").encode()
    head += b" " * (63 - (len(head) + 10) % 64) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tree.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)


def _bomb(path):
    """A gigabyte of zeros in a megabyte."""
    archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("tree.npy", "w", force_zip64=True) as part:
        for _ in range(1024):
            part.write(bytes(2**20))


NO_CHECKPOINTS = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("a checkpoint"),
    "npy": lambda path: path.write_bytes(_npy()),
    "pickle": lambda path: path.write_bytes(pickle.dumps({"format": 2})),
    "npz of something else": lambda path: _npz(path, w=np.ones(3)),
    "zip of something else": lambda path: zipfile.ZipFile(path, "w").writestr("tree.npy", b"hello"),
    "empty npz": _npz,
    "no JSON": lambda path: _npz(path, tree=tree("{]")),
    "no text": lambda path: _npz(path, tree=np.full(9, 200, dtype=np.uint8)),
    "a list": lambda path: _npz(path, tree=tree("[1, 2]")),
    "a number": lambda path: _npz(path, tree=tree("3")),
    "no format": lambda path: _npz(path, tree=tree('{"__dict__": []}')),
    "odd dict": lambda path: _npz(path, tree=tree('{"__dict__": [[1, 2, 3]]}')),
    "a dict as a key": lambda path: _npz(path, tree=tree('{"__dict__": [[{}, 2]]}')),
    "an array that is not there": lambda path: _npz(path, tree=tree('{"__array__": "a0"}')),
    "an array named by a list": lambda path: _npz(path, tree=tree('{"__array__": []}')),
    "deep nesting": lambda path: _npz(path, tree=tree("[" * 10**5 + "]" * 10**5)),
    "deep dicts": lambda path: _npz(path, tree=tree('{"__tuple__": [' * 900 + "]}" * 900)),
    "huge number": lambda path: _npz(path, tree=tree("9" * 10**5)),
    "objects": lambda path: _npz(path, tree=np.array([Ellipsis, 1], dtype=object)),
    "a bomb": _bomb,
    "a lie about its size": lambda path: _header(path, [10**13]),
    "a negative size": lambda path: _header(path, [-1]),
}  # fmt: skip


def _npy():
    import io

    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    return buffer.getvalue()


@pytest.mark.parametrize("kind", NO_CHECKPOINTS)
def test_what_is_no_checkpoint(kind, tmp_path):
    path = tmp_path / "run.npz"
    NO_CHECKPOINTS[kind](path)
    said = r"run\.npz is not a checkpoint of fdro, or is damaged: \S.*Resume from an older copy"
    with pytest.raises(CheckpointDamaged, match=said):
        resume(path, softmax_problems(N), middle_box(N))


def test_a_folder_and_nothing(tmp_path):
    with pytest.raises(InvalidSetting, match="is a folder"):
        snapshots.read(tmp_path)
    with pytest.raises(InvalidSetting, match="no checkpoint at"):
        snapshots.read(tmp_path / "run.npz")


def test_a_npy_file_is_called_that(tmp_path):
    path = tmp_path / "run.npz"
    path.write_bytes(_npy())
    with pytest.raises(CheckpointDamaged, match=r"\.npy"):
        snapshots.read(path)


def test_cut_short_anywhere(written, tmp_path):
    path = tmp_path / "run.npz"
    for length in range(0, len(written), 97):
        path.write_bytes(written[:length])
        with pytest.raises(CheckpointDamaged):
            snapshots.read(path)


@pytest.mark.thorough
def test_a_flipped_bit_anywhere_is_found_or_without_meaning(written, tmp_path):
    """The zip file has fields of no meaning, such as its time; everything else is under the digest."""
    path, rng = tmp_path / "run.npz", np.random.default_rng(0)
    path.write_bytes(written)
    good, refused = snapshots.read(path), 0
    for place in rng.choice(len(written), size=400, replace=False):
        damaged = bytearray(written)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            found = snapshots.read(path)
        except InvalidSetting:
            refused += 1
        else:
            arrays, others = {}, {}
            assert snapshots.pack(found, others, {}) == snapshots.pack(good, arrays, {})
            assert all(np.array_equal(arrays[name], others[name], equal_nan=True) for name in arrays)
    assert refused > 200


@pytest.mark.parametrize(
    "what", ["a number in an array", "a number in the tree", "another array", "no digest"]
)
def test_a_changed_file_is_found(what, written, tmp_path):
    path = tmp_path / "run.npz"
    path.write_bytes(written)
    arrays = arrays_of(path)
    name = next(name for name, array in arrays.items() if array.dtype == np.float64 and array.size > 1)
    if what == "a number in an array":
        arrays[name].ravel()[0] += 1e-12
    elif what == "a number in the tree":
        arrays["tree"] = tree(
            arrays["tree"].tobytes().decode().replace('["iteration", 6]', '["iteration", 7]')
        )
    elif what == "another array":
        arrays[name] = arrays[name].reshape(1, *arrays[name].shape)
    else:
        del arrays["digest"]
    np.savez(path, **arrays)
    with pytest.raises(CheckpointDamaged, match="digest"):
        snapshots.read(path)


def test_what_cannot_be_kept_is_refused_before_the_file_is_touched(tmp_path):
    path = tmp_path / "run.npz"
    snapshots.write(path, {"x": 1})
    before = path.read_bytes()
    for value in (np.array([Ellipsis]), {(1, 2): 3}, object()):
        with pytest.raises(TypeError, match="cannot hold"):
            snapshots.write(path, {"x": value})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.npz"]


# -- writing --------------------------------------------------------------------------------------


def full(*arguments, **named):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def half(file, **arrays):
    file.write(b"half of it")
    full()


def interrupted(file, **arrays):
    file.write(b"half of it")
    raise KeyboardInterrupt


@pytest.mark.parametrize(("module", "name", "mishap"), [(np, "savez", half), (os, "fsync", full)])
def test_a_full_disk_names_the_path_and_keeps_the_old_file(module, name, mishap, monkeypatch, tmp_path):
    path = tmp_path / "run.npz"
    snapshots.write(path, {"x": 1})
    monkeypatch.setattr(module, name, mishap)
    with pytest.raises(FileNotWritten, match=r"run\.npz.*No space left.*file is unchanged") as caught:
        snapshots.write(path, {"x": 2})
    monkeypatch.undo()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert snapshots.read(path)["x"] == 1
    assert os.listdir(tmp_path) == ["run.npz"]


def test_an_interrupt_in_the_midst_of_writing(monkeypatch, tmp_path):
    path = tmp_path / "run.npz"
    snapshots.write(path, {"x": 1})
    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        snapshots.write(path, {"x": 2})
    assert snapshots.read(path)["x"] == 1
    assert os.listdir(tmp_path) == ["run.npz"]


NO_ROOM = """
import sys
import numpy as np
from fdro_core.master import checkpoint as snapshot
from fdro_core.errors import FileNotWritten
path, parts, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
snapshot.write(path, {"x": 1})
if limit:
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    snapshot.write(path, {"x": [np.full(100_000 // parts, 2.0) for _ in range(parts)]})
except FileNotWritten as error:
    print(error)
import os
print(snapshot.read(path)["x"], os.listdir(os.path.dirname(path)))
"""


def child(before, script, *arguments):
    words = [*before, sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


def in_own_file_system(folder, option, script, *arguments):
    """Run a script with a file system of its own at the folder; it ends with the script."""
    shell = f'mount -t tmpfs -o {option} tmpfs {folder} && exec "$@"'
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", shell, "sh"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("this system does not let a test make a file system of its own")
    return child(alone, script, *arguments)


@pytest.mark.parametrize("parts", [1, 50])
def test_a_file_that_the_system_will_not_let_grow(parts, tmp_path):
    """The system's own error in the midst of a real write: no file of this process may pass 20 kB."""
    answer = child([], NO_ROOM, tmp_path / "run.npz", parts, 20_000)
    assert answer.returncode == 0, answer.stderr
    error, left = answer.stdout.splitlines()
    assert str(tmp_path / "run.npz") in error
    assert os.strerror(errno.EFBIG) in error
    assert left == "1 ['run.npz']"


@pytest.mark.parametrize("parts", [1, 50])
def test_a_disk_that_is_really_full(parts, tmp_path):
    """A file system of 64 kB."""
    answer = in_own_file_system(tmp_path, "size=64k", NO_ROOM, tmp_path / "run.npz", parts, 0)
    assert answer.returncode == 0, answer.stderr
    error, left = answer.stdout.splitlines()
    assert str(tmp_path / "run.npz") in error
    assert os.strerror(errno.ENOSPC) in error
    assert left == "1 ['run.npz']"


def test_file_and_folder_are_synchronised_in_that_order(monkeypatch, tmp_path):
    calls, fsync, replace = [], os.fsync, os.replace

    def sync(handle):
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def rename(*names, **settings):
        calls.append("replace")
        replace(*names, **settings)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    snapshots.write(tmp_path / "run.npz", {"x": 1})
    assert calls == ["file", "replace", "folder"]


def test_a_link_stays_and_devices_are_refused(tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "run.npz"
    link.symlink_to(tmp_path / "there" / "real.npz")
    for x in (1, 2):
        snapshots.write(link, {"x": x})
    assert link.is_symlink()
    assert snapshots.read(tmp_path / "there" / "real.npz")["x"] == 2
    os.mkfifo(tmp_path / "pipe")
    for name, kind in (("pipe", "device"), ("there", "folder")):
        with pytest.raises(FileNotWritten, match=kind):
            snapshots.write(tmp_path / name, {"x": 1})
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_the_file_has_the_usual_rights(tmp_path):
    before = os.umask(0o027)
    try:
        snapshots.write(tmp_path / "run.npz", {"x": 1})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "run.npz").stat().st_mode) == 0o640


def test_two_that_write_to_one_path_do_not_meet(tmp_path):
    path, errors = tmp_path / "run.npz", []
    states = [{"x": np.full(2000, float(i))} for i in range(3)]

    def write(state):
        try:
            for _ in range(30):
                snapshots.write(path, state)
                values = snapshots.read(path)["x"]
                assert (values == values[0]).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=[state]) for state in states]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert os.listdir(tmp_path) == ["run.npz"]


KILLED = """
import os, signal, sys
from fdro_core.files import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half of it")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    path = tmp_path / "run.npz"
    snapshots.write(path, {"x": 1})
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert snapshots.read(path)["x"] == 1
    assert len(os.listdir(tmp_path)) == 2
    with replacing(path) as file:  # somebody who is still at it is left alone
        file.write(b"whole")
        snapshots.write(path, {"x": 2})
        assert len([name for name in os.listdir(tmp_path) if name.endswith(".part")]) == 1
    assert os.listdir(tmp_path) == ["run.npz"]
    assert path.read_bytes() == b"whole"


# -- in a run -------------------------------------------------------------------------------------


def made(folder):
    """Notes that a worker was made."""
    (folder / "made").touch()
    return softmax_problems(1)[0]


@pytest.mark.parametrize("observer", [Checkpoint, HistoryFile])
def test_a_path_that_cannot_be_written_is_said_before_the_workers_are_made(observer, written, tmp_path):
    problems, config = [ProblemFrom(made, tmp_path)] * N, AspireModels(iterations=6)
    (tmp_path / "file").touch()
    (tmp_path / "run.npz").write_bytes(written)
    run = {"algorithm": config, "observers": [observer(tmp_path / "file" / "run.npz")]}
    for start in (solve, partial(resume, tmp_path / "run.npz")):
        with pytest.raises(FileNotWritten, match=r"run\.npz could not be written \("):
            start(problems, middle_box(N), **run)
    assert sorted(os.listdir(tmp_path)) == ["file", "run.npz"]


READ_ONLY = """
import sys
from fdro_core import solve
from fdro_core.observers import Checkpoint
from fdro_core.errors import FileNotWritten
from tests.fdro_core.helpers import middle_box, softmax_problems
def stop(run, entry):
    raise SystemExit("the run has begun")
try:
    solve(softmax_problems(2), middle_box(2), observers=[stop, Checkpoint(sys.argv[1])])
except FileNotWritten as error:
    print(error)
"""


def test_a_folder_that_is_read_only_is_said_before_the_run(tmp_path):
    answer = in_own_file_system(tmp_path, "ro", READ_ONLY, tmp_path / "run.npz")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == f"{tmp_path / 'run.npz'} could not be written ({os.strerror(errno.EROFS)})\n"


def test_a_path_that_is_tried_keeps_its_file(tmp_path):
    snapshots.write(tmp_path / "run.npz", {"x": 1})
    check_writable(tmp_path / "run.npz")
    check_writable(tmp_path / "new" / "run.npz")
    assert snapshots.read(tmp_path / "run.npz")["x"] == 1
    assert [os.listdir(tmp_path / "new"), sorted(os.listdir(tmp_path))] == [[], ["new", "run.npz"]]


def test_a_disk_that_fills_up_ends_the_run_and_the_old_file_goes_on(monkeypatch, tmp_path):
    path, config = tmp_path / "run.npz", AspireModels(iterations=60, report_interval=2)

    def fill(run, entry):
        if entry["iteration"] == 20:
            monkeypatch.setattr(np, "savez", half)

    problems, box = softmax_problems(N), middle_box(N)
    with pytest.raises(ObserverFailed, match=r"observers\[0\].*run\.npz could not be written") as caught:
        solve(problems, box, algorithm=config, observers=[Checkpoint(path, every=2), fill])
    monkeypatch.undo()
    assert caught.value.result.iterations == 24
    assert isinstance(caught.value.__cause__.exceptions[0], FileNotWritten)
    assert os.listdir(tmp_path) == ["run.npz"]
    assert snapshots.read(path)["master"]["iteration"] == 20
    same(solve(problems, box, algorithm=config), resume(path, problems, box, algorithm=config))
