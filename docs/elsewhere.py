"""Links from the API's pages to the pages of Python, NumPy and others, without asking for them.

Sphinx resolves names of other projects by their inventories, which it would fetch at every build. Here are
inventories of the few names that our docstrings use, written by `main`; a name that is not listed stays text.
"""

from __future__ import annotations

import zlib
from pathlib import Path

CLASS, FUNCTION, LABEL, TERM = "py:class", "py:function", "std:label", "std:term"

PROJECTS: dict[str, tuple[str, dict[tuple[str, str], str]]] = {
    "python": (
        "https://docs.python.org/3",
        {
            (CLASS, "pathlib.Path"): "library/pathlib.html#pathlib.Path",
            (CLASS, "collections.abc.Callable"): "library/collections.abc.html#collections.abc.Callable",
            (CLASS, "collections.abc.Mapping"): "library/collections.abc.html#collections.abc.Mapping",
            (CLASS, "collections.abc.Sequence"): "library/collections.abc.html#collections.abc.Sequence",
            (CLASS, "typing.Any"): "library/typing.html#typing.Any",
            **{
                (CLASS, name): f"library/stdtypes.html#{name}"
                for name in ("int", "float", "bool", "str", "bytes", "list", "tuple", "dict")
            },
            **{
                (CLASS, name): f"library/exceptions.html#{name}"
                for name in ("ValueError", "TypeError", "LookupError", "RuntimeError", "OSError")
            },
        },
    ),
    "numpy": (
        "https://numpy.org/doc/stable",
        {
            (CLASS, "numpy.ndarray"): "reference/generated/numpy.ndarray.html#numpy.ndarray",
            (CLASS, "ArrayLike"): "reference/typing.html#numpy.typing.ArrayLike",
            (CLASS, "numpy.random.Generator"): "reference/random/generator.html#numpy.random.Generator",
            (CLASS, "numpy.random._generator.Generator"): "reference/random/generator.html",
        },
    ),
    "scikit-learn": (
        "https://scikit-learn.org/stable",
        {
            (LABEL, "metadata_routing"): "metadata_routing.html#metadata-routing",
            (TERM, "meta-estimator"): "glossary.html#term-meta-estimator",
        },
    ),
    "pytorch": (
        "https://docs.pytorch.org/docs/stable",
        {
            (CLASS, "torch.Tensor"): "tensors.html#torch.Tensor",
            (CLASS, "torch.nn.Module"): "generated/torch.nn.Module.html#torch.nn.Module",
        },
    ),
    "cvxpy": (
        "https://www.cvxpy.org",
        {(CLASS, "cvxpy.Expression"): "api_reference/cvxpy.expressions.html"},
    ),
}


def main(folder: Path) -> dict[str, tuple[str, str]]:
    """Write the inventories; return what `intersphinx_mapping` takes."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for project, (address, names) in PROJECTS.items():
        head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
        lines = "".join(f"{name} {role} 1 {place} -\n" for (role, name), place in names.items())
        packed = zlib.compress(lines.encode("utf-8"))
        file = folder / f"{project}.inv"
        file.write_bytes(f"{head}# The remainder of this file is compressed using zlib.\n".encode() + packed)
        mapping[project] = (address, str(file))
    return mapping
