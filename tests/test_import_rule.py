"""The dependency rule, read from the source: uncertainty_sets <- fdro_core <- bench, tests.

No modules import each other in a circle; imports inside functions count, those for the type checker do not.
Third-party solvers and ray have one home each. The package is also imported in a process of its own,
because what is loaded at run time is what users wait for.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent

TREES = ("uncertainty_sets", "fdro_core", "bench", "tests")

NEVER = {
    "uncertainty_sets": {"fdro_core", "bench", "tests"},
    "fdro_core": {"bench", "tests"},
}
"""Which packages a tree must not know."""

HOME = {
    "clarabel": "uncertainty_sets/backends/clarabel_.py",
    "highspy": "uncertainty_sets/backends/highs_.py",
    "scs": "uncertainty_sets/backends/scs_.py",
    "dp_accounting": "fdro_core/privacy/accounting.py",
    "ray": "fdro_core/engines/ray_/cluster.py",
    "flwr": "fdro_core/engines/flower_/ bench/driver/flower.py tests/fdro_core/flower_loopback.py",
}
"""The only files, or folders, that may import each of these."""

COMMAND = PurePosixPath("fdro_core/cli")
"""The `fdro` command: it uses everything else, and no other package uses it."""

LAZY = ("cvxpy", "numba", "scipy", "ot", "clarabel", "highspy", "scs", "torch", "matplotlib")
"""What `import uncertainty_sets` leaves for later."""

COMMAND_LINE = ("typer", "rich")
"""What only the `fdro` command needs."""


def imported(source: str, path: PurePosixPath) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that a file imports, wherever in the file it does.

    Relative names are made absolute from the file's path; `importlib.import_module("x")` and
    `__import__("x")` count where the name is written out.
    """
    for node in ast.walk(ast.parse(source, filename=str(path))):
        if isinstance(node, ast.ImportFrom):
            module = absolute(node, path)
            # `from .. import x` that climbs to the root: x is a top-level package
            for name in [module] if module else [alias.name for alias in node.names]:
                yield node.lineno, name
        else:
            for name in plain_imports(node):
                yield node.lineno, name  # type: ignore[attr-defined]  # an import or a call has a line


def absolute(node: ast.ImportFrom, path: PurePosixPath) -> str:
    """The module of a `from` import, made absolute."""
    package = path.parts[: len(path.parts) - node.level] if node.level else ()
    return ".".join([*package, *([node.module] if node.module else [])])


def plain_imports(node: ast.AST) -> list[str]:
    """The names of `import a, b`, and of `import_module("a")`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        function, name = node.func, node.args[0].value
        called = getattr(function, "attr", getattr(function, "id", ""))
        if called in {"import_module", "__import__"} and isinstance(name, str):
            return [name]
    return []


def breaches(root: Path) -> list[str]:
    """Every import under root that breaks the rule, as "file:line imports name: reason"."""
    found = []
    for tree in TREES:
        for file in sorted((root / tree).rglob("*.py")):
            path = PurePosixPath(file.relative_to(root).as_posix())
            for line, name in imported(file.read_text(encoding="utf-8"), path):
                top = name.partition(".")[0]
                if top in NEVER.get(tree, ()):
                    found.append(f"{path}:{line} imports {name}: {tree} must not know {top}")
                elif top in HOME and not at_home(str(path), HOME[top]):
                    found.append(f"{path}:{line} imports {name}: only {HOME[top]} may")
    return found


def at_home(path: str, home: str) -> bool:
    """Whether a file is a home of a package, or in a folder that is."""
    return any(path.startswith(each) if each.endswith("/") else path == each for each in home.split())


def imports_of_the_command(root: Path) -> list[str]:
    """Every import of `fdro_core.cli` from outside it; tests may import it, to test it."""
    found = []
    for tree in TREES[:-1]:
        for file in sorted((root / tree).rglob("*.py")):
            path = PurePosixPath(file.relative_to(root).as_posix())
            if path.is_relative_to(COMMAND):
                continue
            source = file.read_text(encoding="utf-8")
            names = list(imported(source, path))
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.ImportFrom) and node.module == "fdro_core":
                    names += [(node.lineno, f"fdro_core.{alias.name}") for alias in node.names]
            command = ".".join(COMMAND.parts)
            found += [f"{path}:{line}" for line, name in names if f"{name}.".startswith(f"{command}.")]
    return found


def modules(root: Path, trees: tuple[str, ...]) -> dict[str, PurePosixPath]:
    """The modules under root by dotted name, with their paths."""
    found = {}
    for tree in trees:
        for file in sorted((root / tree).rglob("*.py")):
            path = PurePosixPath(file.relative_to(root).as_posix())
            parts = path.parent.parts if path.name == "__init__.py" else (*path.parent.parts, path.stem)
            found[".".join(parts)] = path
    return found


def imported_modules(source: str, path: PurePosixPath, known: Collection[str]) -> set[str]:
    """The known modules that a file imports; `from a import b` is a.b if that is a module, else a.

    That importing a.b also runs a/__init__.py does not count: it does so for every module of a package.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source, filename=str(path))):
        if isinstance(node, ast.ImportFrom):
            module = absolute(node, path)
            names = [f"{module}.{alias.name}" if module else alias.name for alias in node.names]
            found |= {name if name in known else module for name in names}
        else:
            found |= set(plain_imports(node))
    return found & set(known)


def cycles(
    root: Path, trees: tuple[str, ...] = ("uncertainty_sets", "fdro_core", "bench")
) -> list[list[str]]:
    """Every group of modules that import each other in a circle."""
    known = modules(root, trees)
    graph = {
        name: imported_modules(at_run_time((root / path).read_text(encoding="utf-8")), path, known) - {name}
        for name, path in known.items()
    }
    reached = {name: _reachable(name, graph) for name in graph}
    groups = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph
        if name in reached[name]
    }
    return sorted(sorted(group) for group in groups)


def at_run_time(source: str) -> str:
    """A module without what it imports for the type checker alone."""
    tree = ast.parse(source)
    tree.body = [
        each
        for each in tree.body
        if not (isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING")
    ]
    return ast.unparse(tree)


def _reachable(name: str, graph: dict[str, set[str]]) -> set[str]:
    """The modules that one imports, directly or not; itself only by way of others."""
    seen: set[str] = set()
    waiting = [*graph[name]]
    while waiting:
        each = waiting.pop()
        if each not in seen:
            seen.add(each)
            waiting += graph[each]
    return seen


def loaded_by(statement: str, root: Path) -> set[str]:
    """The top-level modules in sys.modules after a statement in a fresh interpreter."""
    script = f"import sys; sys.path.insert(0, {str(root)!r}); {statement}; print(*sys.modules, sep='\\n')"
    answer = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return {name.partition(".")[0] for name in answer.stdout.split()}


def write(root: Path, path: str, source: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")


def test_the_rule_holds() -> None:
    assert breaches(ROOT) == []


def test_nobody_imports_the_command() -> None:
    assert (ROOT / COMMAND / "app.py").exists()
    assert imports_of_the_command(ROOT) == []


def test_an_import_of_the_command_is_seen(tmp_path: Path) -> None:
    write(tmp_path, "fdro_core/result.py", "def f():\n    from fdro_core.cli.reading import tables\n")
    write(tmp_path, "fdro_core/a.py", "from fdro_core import cli\n")
    write(tmp_path, "fdro_core/b.py", "from .cli.app import app\n")
    write(tmp_path, "bench/a.py", "import os\nimport fdro_core.cli.app\n")
    write(tmp_path, "fdro_core/cli/app.py", "import fdro_core.cli.runs\n")
    write(tmp_path, "fdro_core/climbing.py", "import fdro_core.climb\n")
    found = imports_of_the_command(tmp_path)
    assert found == ["fdro_core/a.py:1", "fdro_core/b.py:1", "fdro_core/result.py:2", "bench/a.py:2"]


def test_nothing_imports_in_a_circle() -> None:
    assert cycles(ROOT) == []


@pytest.mark.parametrize(
    "back",
    [
        "from uncertainty_sets.a import x\n",
        "from uncertainty_sets import a\n",
        "import uncertainty_sets.a\n",
        "from . import a\n",
        "from .a import x\n",
        "def f():\n    from uncertainty_sets import a\n",
        "import importlib\nimportlib.import_module('uncertainty_sets.a')\n",
    ],
)
def test_a_circle_is_seen(tmp_path: Path, back: str) -> None:
    write(tmp_path, "uncertainty_sets/__init__.py", "from uncertainty_sets.c import y\n")
    write(tmp_path, "uncertainty_sets/a.py", "from uncertainty_sets.b import x\n")
    write(tmp_path, "uncertainty_sets/b.py", back)
    write(tmp_path, "uncertainty_sets/c.py", "from uncertainty_sets import a\n")
    assert cycles(tmp_path) == [["uncertainty_sets.a", "uncertainty_sets.b"]]


def test_an_import_for_the_type_checker_closes_no_circle(tmp_path: Path) -> None:
    write(tmp_path, "uncertainty_sets/a.py", "from uncertainty_sets.b import x\n")
    write(tmp_path, "uncertainty_sets/b.py", "if TYPE_CHECKING:\n    from uncertainty_sets.a import x\n")
    assert cycles(tmp_path) == []


def test_a_package_that_its_own_modules_import_is_a_circle(tmp_path: Path) -> None:
    write(tmp_path, "bench/__init__.py", "from bench.a import x\n")
    write(tmp_path, "bench/a.py", "def f():\n    import bench as package\n")
    assert cycles(tmp_path) == [["bench", "bench.a"]]


def test_the_rule_looks_at_real_files() -> None:
    """A moved folder must not make the test above pass on nothing."""
    for tree in ("uncertainty_sets", "tests"):
        assert any((ROOT / tree).rglob("*.py"))
    for home in " ".join(HOME.values()).split():
        assert (ROOT / home).exists(), f"{home} has moved"


def test_import_is_light() -> None:
    loaded = loaded_by("import uncertainty_sets", ROOT)
    assert "uncertainty_sets" in loaded
    assert loaded.isdisjoint(LAZY), f"import uncertainty_sets also loads {sorted(loaded.intersection(LAZY))}"


def test_import_of_the_driver_is_light() -> None:
    loaded = loaded_by("import fdro_core", ROOT)
    assert "fdro_core" in loaded
    assert loaded.isdisjoint({*LAZY, *COMMAND_LINE})
    loaded = loaded_by("from fdro_core import *; solve", ROOT)
    jit = {"numba", "scipy"} if "numba" in loaded else set()  # kernels not compiled; numba imports scipy
    assert loaded.isdisjoint({*LAZY, *COMMAND_LINE} - jit)


def test_help_of_the_command_waits_for_nothing() -> None:
    ask = "from typer.testing import CliRunner; from fdro_core.cli.app import app; "
    loaded = loaded_by(ask + "assert CliRunner().invoke(app, ['--help']).exit_code == 0", ROOT)
    assert "typer" in loaded
    assert loaded.isdisjoint({*LAZY, "numpy", "ray", "sklearn"})


@pytest.mark.parametrize(("engine", "package"), [("RayEngine", "ray"), ("FlowerEngine", "flwr")])
def test_import_of_the_driver_leaves_engines_packages_for_later(engine: str, package: str) -> None:
    assert package not in loaded_by(f"from fdro_core import {engine}; {engine}()", ROOT)


@pytest.mark.parametrize(
    ("path", "source", "line", "name"),
    [
        ("uncertainty_sets/a.py", "import fdro_core\n", 1, "fdro_core"),
        (
            "uncertainty_sets/sets/a.py",
            "import numpy\nfrom fdro_core.aspire.admm.master import Master\n",
            2,
            "fdro_core.aspire.admm.master",
        ),
        ("uncertainty_sets/a.py", "def f():\n    import bench.demo\n", 2, "bench.demo"),
        ("uncertainty_sets/a.py", "if TYPE_CHECKING:\n    from tests import reference\n", 2, "tests"),
        ("uncertainty_sets/sets/a.py", "from ...fdro_core import driver\n", 1, "fdro_core"),
        ("uncertainty_sets/a.py", "from .. import tests\n", 1, "tests"),
        ("uncertainty_sets/a.py", "import importlib\nimportlib.import_module('bench')\n", 2, "bench"),
        ("fdro_core/a.py", "import os, tests.tolerances\n", 1, "tests.tolerances"),
        ("fdro_core/engines/a.py", "try:\n    import bench\nexcept ImportError:\n    pass\n", 2, "bench"),
        ("fdro_core/engines/a.py", "def f():\n    import ray\n", 2, "ray"),
        ("fdro_core/a.py", "from clarabel import DefaultSolver\n", 1, "clarabel"),
        ("uncertainty_sets/conic.py", "import clarabel as c\n", 1, "clarabel"),
        ("uncertainty_sets/backends/clarabel_.py", "import scs\n", 1, "scs"),
        ("uncertainty_sets/sets/highs_.py", "from highspy import Highs\n", 1, "highspy"),
        ("bench/a.py", "__import__('scs')\n", 1, "scs"),
        ("tests/a.py", "import ray.util\n", 1, "ray.util"),
        ("fdro_core/engines/flower.py", "from flwr.app import Message\n", 1, "flwr.app"),
    ],
)
def test_a_breach_is_seen(tmp_path: Path, path: str, source: str, line: int, name: str) -> None:
    write(tmp_path, path, source)
    assert [breach.partition(": ")[0] for breach in breaches(tmp_path)] == [f"{path}:{line} imports {name}"]


def test_what_is_allowed_is_not_a_breach(tmp_path: Path) -> None:
    for package, home in HOME.items():
        for each in home.split():
            file = f"{each}a.py" if each.endswith("/") else each
            write(tmp_path, file, f"import {package}\nfrom {package} import anything\n")
    write(tmp_path, "uncertainty_sets/sets/a.py", "from ..errors import X\nfrom . import b\nimport cvxpy\n")
    write(tmp_path, "fdro_core/a.py", "import uncertainty_sets\nfrom .engines import base\n")
    write(tmp_path, "bench/a.py", "import fdro_core, uncertainty_sets.sets.kl\n")
    write(tmp_path, "tests/a.py", "import bench, fdro_core\n'import ray'  # import clarabel\n")
    write(tmp_path, "elsewhere/a.py", "import ray\n")
    assert breaches(tmp_path) == []


def test_a_heavy_import_is_seen(tmp_path: Path) -> None:
    write(tmp_path, "heavy/__init__.py", "import scipy.special\n")
    assert "scipy" in loaded_by("import heavy", tmp_path)
    write(tmp_path, "light/__init__.py", "def later():\n    import scipy\n")
    assert "scipy" not in loaded_by("import light", tmp_path)
