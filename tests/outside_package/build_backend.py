"""Make a wheel of this folder's package: what pip asks of a build backend (PEP 517), and no more."""

from __future__ import annotations

import base64
import hashlib
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def described():
    """The wheel's file name up to the tag, and its metadata by file."""
    document = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))
    project = document["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in each.items())
        for group, each in project["entry-points"].items()
    ]
    return stem, {
        "METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: here\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "\n".join(points),
    }


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Write the metadata folder alone."""
    stem, metadata = described()
    folder = Path(metadata_directory) / f"{stem}.dist-info"
    folder.mkdir()
    for name, text in metadata.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Write the wheel."""
    stem, metadata = described()
    files = {
        path.relative_to(HERE).as_posix(): path.read_bytes()
        for path in sorted(HERE.glob("outside_package/*.py"))
    }
    files |= {f"{stem}.dist-info/{name}": text.encode() for name, text in metadata.items()}
    rows = []
    wheel = f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(content)}")
        record = f"{stem}.dist-info/RECORD"
        archive.writestr(record, "\n".join([*rows, f"{record},,", ""]))
    return wheel
