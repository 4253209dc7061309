"""The command as a process in trouble: a full disk, and Ctrl-C before anything has begun."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fdro_core.errors import FileNotWritten
from fdro_core.files import naming_full_disk
from tests.fdro_core.command import ROOT, fdro

pytestmark = [
    pytest.mark.usefixtures("place"),
    pytest.mark.skipif(os.name == "nt", reason="limits, signals and /dev/full"),
]

START = "import sys; from fdro_core.cli.__main__ import main; sys.argv[0] = 'fdro'; main()"

LIMITED = f"""
import resource, sys
size = int(sys.argv.pop(1))
sys.dont_write_bytecode = True  # Python 3.11 would keep the part of a file that the limit lets through
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
{START}
"""

PRESSED = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background may have it ignored
module = sys.argv.pop(1)

class Press:
    def find_spec(name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Press)
{START}
"""


def run(script, *arguments, output=subprocess.PIPE):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", script, *arguments]
    return subprocess.run(
        line, env=environment, stdout=output, stderr=subprocess.PIPE, text=True, check=False
    )


@pytest.mark.parametrize(("size", "file"), [(100, "run/run.toml"), (700, "run/history.jsonl")])
@pytest.mark.few(1)
def test_a_full_disk_is_reported_with_the_path(size, file):
    """A limit on the size of files, which fails as a full disk does."""
    fdro("train", "run.toml", "-o", "first", "-q")  # compiles and caches what the limit would not let it
    answer = run(LIMITED, str(size), "train", "run.toml", "-q")
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    lines = [line for line in answer.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, answer.stderr
    assert f"{file} could not be " in lines[0]
    assert "(File too large)" in lines[0]
    told = run(LIMITED, str(size), "train", "run.toml", "--force", "--json").stderr
    assert json.loads(told.splitlines()[-1])["kind"] == "FileNotWritten"


@pytest.mark.parametrize("arguments", [("train", "--example"), ("sets", "-q"), ("sets", "--help")])
@pytest.mark.few(1)
def test_standard_output_on_a_full_disk(arguments):
    with Path("/dev/full").open("w") as full:
        answer = run(START, *arguments, output=full)
    told = "error: standard output could not be written (No space left on device)\n"
    assert (answer.returncode, answer.stderr) == (1, told)


def test_a_report_on_a_full_disk():
    assert run(START, "train", "run.toml", "-q").returncode == 0
    answer = run(START, "report", "run", "--output", "/dev/full")
    told = "error: /dev/full could not be written (No space left on device)\n"
    assert (answer.returncode, answer.stderr) == (1, told)


def test_naming_full_disk_leaves_other_errors_alone():
    with pytest.raises(FileNotWritten, match="here could not be written"), naming_full_disk("here"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(PermissionError), naming_full_disk("here"):
        raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize("module", ["typer", "numpy", "fdro_core.solving"])
def test_ctrl_c_during_imports_has_no_traceback(module):
    """A real SIGINT while that module is imported: by the entry point, or later by the command."""
    answer = run(PRESSED, module, "train", "run.toml", "-q")
    assert (answer.returncode, answer.stdout, answer.stderr) == (130, "", "")
    assert not Path("run/result.json").exists()
