"""Which worker a node shall make, in plain values: its algorithm by name, the settings, and its problem.

A worker's factory is `partial(function, index, source, algorithm)`. The master sends the class and the fields
of the algorithm instead, and the node asks the same algorithm for the same factory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

from fdro_core.engines.flower_ import plain
from fdro_core.engines.flower_.problem import Allowed, function_at, named
from fdro_core.errors import InvalidSetting, MalformedMessage
from fdro_core.protocol.engine import WorkerFactory

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
        settings = plain.dump(_settings(algorithm))
    except TypeError as error:
        raise InvalidSetting(f"{type(algorithm).__name__} cannot be sent: it holds {error}") from None
    return {
        "algorithm": f"{type(algorithm).__module__}:{type(algorithm).__qualname__}",
        "settings": settings,
        "problem": source.name,
        "arguments": plain.dump(source.arguments),
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
        found = plain.load(text)
    except ValueError as error:
        raise MalformedMessage(f"settings that cannot be read: {error!s:.200}") from None
    if not isinstance(found, dict):
        raise MalformedMessage("settings that are no dict")
    return found
