"""Problems by name: what the master sends instead of a problem, and what a node may make of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from importlib import import_module
from typing import Any

from fdro_core.engines.flower_ import codec
from fdro_core.errors import InvalidProblem, InvalidSetting, MalformedMessage
from fdro_core.protocol.engine import WorkerFactory
from fdro_core.protocol.problem import Problem, ProblemFrom

NODE = "node_config"


class NamedProblem:
    """A problem that is made where its data is, by a named function: `NamedProblem("package.module:load")`.

    Only the name and the arguments are sent; the module need not be importable at the master. On Flower, a
    function with a parameter `node_config` gets what the node was started with (`--node-config`), so each
    node knows where its own data is; an argument of that name counts on other engines only.

    Args:
        name: "module:function".
        arguments: of the function, plain values: numbers, texts, lists, dicts.

    >>> NamedProblem("fdro_core.problems:LeastSquares", X=[[1.0]], y=[2.0], intercept=False)().dimension
    1
    """

    __slots__ = ("arguments", "name")

    def __init__(self, name: str, /, **arguments: Any) -> None:
        if not isinstance(name, str) or not all(
            part.replace(".", "_").isidentifier() for part in _halves(name)
        ):
            raise InvalidProblem(
                f'NamedProblem needs a name like "package.module:function", got {name!r:.80}'
            )
        try:
            codec.dump_plain(arguments)
        except TypeError as error:
            raise InvalidProblem(
                f"NamedProblem({name!r}) has {error} among its arguments: give plain values, such as the "
                "path of a file at the node"
            ) from None
        self.name = name
        self.arguments = arguments

    def __call__(self) -> Problem:
        """Make the problem in this process, as every other engine does."""
        problem: Problem = make(function_at(self.name), self.arguments, self.arguments.get(NODE, {}))
        return problem

    def __repr__(self) -> str:
        inside = [repr(self.name), *(f"{name}={value!r}" for name, value in self.arguments.items())]
        return f"NamedProblem({', '.join(inside)})"


def named(source: Any, worker: int) -> NamedProblem:
    """Return a problem's source by name: a `NamedProblem`, or a `ProblemFrom` of a function in a module."""
    if isinstance(source, NamedProblem):
        return source
    if isinstance(source, ProblemFrom) and not source.arguments:
        return NamedProblem(name_of(source.make, f"problems[{worker}]"), **source.named)
    raise InvalidProblem(
        f"problems[{worker}] is {source!r:.80}: Flower carries no pickles, so a node makes its problem: "
        'give NamedProblem("package.module:function", name=value, ...), with arguments by name'
    )


def name_of(function: Any, what: str) -> str:
    """Return "module:function" of a function that can be imported."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    try:
        if function_at(f"{module}:{name}") is function:
            return f"{module}:{name}"
    except (ImportError, AttributeError, ValueError):
        pass  # a lambda, a function in a function, or one of a session
    raise InvalidProblem(f"{what}: {function!r:.80} is no function of a module, so a node cannot import it")


def function_at(name: str) -> Callable[..., Any]:
    """Import a function by "module:function"."""
    module, attribute = _halves(name)
    found: Any = import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]  # called, and what it returns is checked


def make(function: Callable[..., Any], arguments: Mapping[str, Any], node_config: Mapping[str, Any]) -> Any:
    """Call a factory; its parameter `node_config`, if it has one, is what the node was started with."""
    given = dict(arguments)
    if NODE in inspect.signature(function).parameters:
        given[NODE] = dict(node_config)  # never the master's
    return function(**given)


class Allowed:
    """The factories that a node lets the master name.

    Args:
        functions: functions of modules, or names of them, which are imported when first used.
    """

    def __init__(self, functions: Iterable[Callable[..., Any] | str]) -> None:
        self._functions = {
            each if isinstance(each, str) else name_of(each, "client_app"): each for each in functions
        }

    def make(self, name: str, arguments: Mapping[str, Any], node_config: Mapping[str, Any]) -> Any:
        """Make the problem of an allowed factory."""
        if name not in self._functions:
            raise InvalidProblem(
                f"this node makes no problems with {name!r:.80}; its client_app allows "
                f"{', '.join(sorted(self._functions)) or 'none'}"
            )
        found = self._functions[name]
        return make(function_at(found) if isinstance(found, str) else found, arguments, node_config)


def _halves(name: str) -> tuple[str, str]:
    module, _, attribute = name.partition(":")
    return module, attribute


# -- descriptions --------------------------------------------------------------------------------------
# A worker's factory is `partial(function, index, source, algorithm)`. The master sends the class and the
# fields of the algorithm instead, and the node asks the same algorithm for the same factory.


OWN = "fdro_core"  # whose algorithms every node may run


def describe(worker: int, factory: WorkerFactory) -> dict[str, str]:
    """Return what `factory_of` makes the same worker from.

    >>> from fdro_core import AspireModels
    >>> from fdro_core.engines.flower_.problem import NamedProblem
    >>> described = describe(0, AspireModels().worker(0, NamedProblem("hospital.data:load", l2=0.1)))
    >>> described["algorithm"], described["problem"]
    ('fdro_core.aspire.models.algorithm:AspireModels', 'hospital.data:load')
    """
    given = factory.args if isinstance(factory, partial) else ()
    algorithm = next((each for each in given if is_dataclass(each) and hasattr(each, "worker")), None)
    if algorithm is None or len(given) != 3 or given[0] != worker:
        raise InvalidSetting(
            "FlowerEngine describes a worker by its algorithm: `worker(index, source)` must return "
            "partial(function, index, source, self) of an algorithm that is a dataclass"
        )
    source = named(given[1], worker)
    try:
        settings = codec.dump_plain(_settings(algorithm))
    except TypeError as error:
        raise InvalidSetting(f"{type(algorithm).__name__} cannot be sent: it holds {error}") from None
    return {
        "algorithm": f"{type(algorithm).__module__}:{type(algorithm).__qualname__}",
        "settings": settings,
        "problem": source.name,
        "arguments": codec.dump_plain(source.arguments),
    }


def factory_of(
    description: Mapping[str, Any],
    worker: int,
    allowed: Allowed,
    node_config: Mapping[str, Any],
    packages: Iterable[str] = (),
) -> WorkerFactory:
    """Return the factory of a described worker; algorithms of fdro and of these packages are allowed."""
    name, settings, problem, arguments = (
        description.get(key) for key in ("algorithm", "settings", "problem", "arguments")
    )
    if not all(isinstance(each, str) for each in (name, settings, problem, arguments)):
        raise MalformedMessage("the description of the worker is incomplete")
    algorithm = _algorithm(str(name), _loaded(settings), (OWN, *packages))
    if not hasattr(algorithm, "worker"):
        raise MalformedMessage(f"{name!r:.80} is no algorithm")
    given = _loaded(arguments)
    factory: WorkerFactory = algorithm.worker(worker, lambda: allowed.make(str(problem), given, node_config))
    return factory


def _settings(algorithm: Any) -> dict[str, Any]:
    """Return the fields of a dataclass; one that is a dataclass itself comes with its name."""
    found = {}
    for field in fields(algorithm):
        value = getattr(algorithm, field.name)
        if is_dataclass(value):
            cls = type(value)
            value = {"/class": f"{cls.__module__}:{cls.__qualname__}", **_settings(value)}
        found[field.name] = value
    return found


def _algorithm(name: str, settings: Mapping[str, Any], packages: tuple[str, ...]) -> Any:
    """Make a dataclass of an allowed package; every other name is refused before it is imported."""
    top = name.partition(":")[0].partition(".")[0]
    if top not in packages:
        raise MalformedMessage(
            f"the algorithm {name!r:.80} is not from {' or '.join(packages)}; client_app(algorithms=[...]) "
            "allows further packages"
        )
    try:
        cls: Any = function_at(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise MalformedMessage(f"no algorithm {name!r:.80} here: {error!s:.200}") from None
    if not (isinstance(cls, type) and is_dataclass(cls)):
        raise MalformedMessage(f"{name!r:.80} is no dataclass of settings")
    given = {}
    for key, value in settings.items():
        nested = isinstance(value, Mapping) and "/class" in value
        inside = {k: v for k, v in value.items() if k != "/class"} if nested else {}
        given[str(key)] = _algorithm(str(value["/class"]), inside, packages) if nested else value
    try:
        return cls(**given)
    except TypeError as error:
        raise MalformedMessage(f"{name!r:.80} does not take these settings: {error!s:.200}") from None


def _loaded(text: Any) -> dict[str, Any]:
    try:
        found = codec.load_plain(text)
    except ValueError as error:
        raise MalformedMessage(f"settings that cannot be read: {error!s:.200}") from None
    if not isinstance(found, dict):
        raise MalformedMessage("settings that are no dict")
    return found
