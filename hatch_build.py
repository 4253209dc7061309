"""Put the kernels, compiled ahead of time, into a wheel; hatchling calls this.

| FDRO_KERNELS | does |
|---|---|
| not set | compiles them if possible; otherwise the wheel has none, and numba compiles them when first used |
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
    """Compile the kernels before the wheel's files are collected; an editable install has `make kernels`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add a library per package and name the platform, or leave the wheel as it is."""
        wanted = os.environ.get("FDRO_KERNELS", "")
        if wanted not in CHOICES:
            raise ValueError(f"FDRO_KERNELS must be require, skip or not set, got {wanted!r}")
        if version == "editable" or wanted == "skip":
            return
        sys.path.insert(0, self.root)
        from build_kernels.library import CannotBuild, build

        self._made = tempfile.TemporaryDirectory(prefix="fdro-wheel-")
        try:
            libraries = build(Path(self._made.name))
        except CannotBuild as error:
            if wanted == "require":
                raise
            self.app.display_warning(f"A wheel without compiled kernels, which numba compiles later: {error}")
            return
        for package, file in libraries.items():
            build_data["force_include"][str(file)] = f"{package}/{file.name}"
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the libraries, which are in the wheel now."""
        if hasattr(self, "_made"):
            self._made.cleanup()
