"""The history and the files of a run folder: whole lines, whole files, whatever the disk does."""

from __future__ import annotations

import json
import os
import threading

import numpy as np
import pytest

from fdro_core import AspireModels, resume
from fdro_core.cli.runs.folder import CHECKPOINT, RESULT, RunFolder
from fdro_core.errors import FileNotWritten, InvalidSetting, ObserverFailed
from fdro_core.observers import HistoryFile, read_history
from tests.fdro_core.helpers import middle_box, softmax_problems
from tests.fdro_core.test_checkpoint_files import N, arrays_of, full, half, save


def test_a_history_into_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read = []
    thread = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    thread.start()

    class Run:
        pass

    Run.history = [{"event": "report", "iteration": 1}]
    HistoryFile(tmp_path / "pipe")(Run, Run.history[0])
    thread.join()
    assert json.loads(read[0]) == Run.history[0]


def test_a_history_that_cannot_be_continued_keeps_whole_lines(monkeypatch, tmp_path):
    path = tmp_path / "history.jsonl"
    history = HistoryFile(path)

    class Run:
        pass

    Run.history = [{"event": "report", "iteration": 1}]
    history(Run, Run.history[0])
    before = path.read_bytes()
    Run.history.append({"event": "report", "iteration": 2})

    class Full:
        """The file, on a disk with room for five more bytes."""

        def __init__(self, file):
            self.file, self.room = file, 5

        def __getattr__(self, name):
            return getattr(self.file, name)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

        def write(self, data):
            if not self.room:
                full()
            written, self.room = self.file.write(data[: self.room]), 0
            return written

    with monkeypatch.context() as patch:
        usual = type(path).open
        patch.setattr(type(path), "open", lambda self, *mode, **named: Full(usual(self, *mode, **named)))
        with pytest.raises(FileNotWritten, match=r"history\.jsonl.*No space left"):
            history(Run, Run.history[1])
    assert path.read_bytes() == before
    history(Run, Run.history[1])
    assert read_history(path) == Run.history


def test_a_resumed_history_is_never_shorter_than_the_checkpoint(monkeypatch, tmp_path):
    """The old lines are replaced as a whole: a crash while they are written again leaves them."""
    path, lines = tmp_path / "run.npz", tmp_path / "history.jsonl"
    save(path, observers=[HistoryFile(lines)])
    before = lines.read_bytes()
    config = AspireModels(iterations=12, report_interval=2)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ObserverFailed, match="history"):
        resume(path, softmax_problems(N), middle_box(N), algorithm=config, observers=[HistoryFile(lines)])
    assert lines.read_bytes() == before


def test_a_run_folder_keeps_its_old_result_when_the_disk_is_full(monkeypatch, tmp_path):
    folder = RunFolder(tmp_path)
    content = {"objective": 1.0, "proved": True}
    folder.write(content, {"w": np.ones(2)})
    for module, name, mishap in ((np, "savez", half), (os, "fsync", full)):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, mishap)
            with pytest.raises(FileNotWritten, match="No space left"):
                folder.write({"objective": 2.0, "proved": True}, {"w": np.zeros(2)})
        assert json.loads((tmp_path / "result.json").read_text(encoding="utf-8")) == content
        assert np.array_equal(arrays_of(tmp_path / "result.npz")["w"], np.ones(2))
        assert sorted(os.listdir(tmp_path)) == ["result.json", "result.npz"]


def test_a_killed_run_is_continued_not_started_again(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(InvalidSetting, match=r"start again with .*--force"):
        folder.check(RESULT)
    (folder / CHECKPOINT).touch()
    with pytest.raises(InvalidSetting, match=r"continue with: fdro resume") as caught:
        folder.check(RESULT)
    assert "--force" not in str(caught.value)
    (folder / CHECKPOINT).unlink()
    with pytest.raises(InvalidSetting, match=r"start again with .*--force"):
        folder.check(CHECKPOINT)
