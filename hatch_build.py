"""Put the kernels, compiled ahead of time, into a wheel; hatchling calls this.

| FDRO_KERNELS | does |
|---|---|
| not set | compiles them if possible; otherwise the wheel has none, and they are made when first used |
| `require` | fails if they cannot be compiled |
| `skip` | does not try |
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CHOICES = ("", "require", "skip")


class KernelsHook(BuildHookInterface[Any]):
    """Compile the kernels before the wheel's files are collected; an editable install needs none."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the libraries and name the platform, or leave the wheel as it is."""
        wanted = os.environ.get("FDRO_KERNELS", "")
        if wanted not in CHOICES:
            raise ValueError(f"FDRO_KERNELS must be require, skip or not set, got {wanted!r}")
        if version == "editable" or wanted == "skip":
            return
        sys.path.insert(0, self.root)
        from uncertainty_sets.kernels.native.build import CannotBuild, build
        from uncertainty_sets.kernels.native.sources import kernel_files

        self._made = tempfile.TemporaryDirectory(prefix="fdro-wheel-")
        root, into = Path(self.root).resolve(), Path(self._made.name)
        files = {**kernel_files("uncertainty_sets", root), **kernel_files("fdro_core", root)}
        try:
            libraries = build(files, into, os.cpu_count() or 1, self.app.display_info)
        except CannotBuild as error:
            if wanted == "require":
                raise
            self.app.display_warning(f"A wheel without compiled kernels, which are made later: {error}")
            return
        for file in libraries.values():
            build_data["force_include"][str(file)] = file.relative_to(into).as_posix()
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the libraries, which are in the wheel now."""
        if hasattr(self, "_made"):
            self._made.cleanup()
