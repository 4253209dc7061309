"""A command in sections: those named are run, or all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.console import Console


def run(sections: Mapping[str, Callable[[], None]], names: list[str], console: Console) -> int:
    """Run the sections named, each under its docstring; return 2 if a name is unknown."""
    unknown = [name for name in names if name not in sections]
    if unknown:
        print(f"no section {', '.join(unknown)}; there are: {', '.join(sections)}")
        return 2
    for name in names or sections:
        console.rule(f"{name}: {sections[name].__doc__}", align="left")
        sections[name]()
    return 0
