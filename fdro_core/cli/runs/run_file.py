"""From a run file (TOML) to the objects it describes: workers, set, algorithm, engine, stopping rules."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fdro_core.cli.reading import read_value
from fdro_core.cli.runs.fields import Section, Source, read_source, with_algorithm
from fdro_core.cli.runs.workers import Workers, load_data, make_workers
from fdro_core.cli.written import load_reference, set_class, written_set
from fdro_core.engines import delays
from fdro_core.engines.delays import Crash, Straggler
from fdro_core.errors import InvalidSetting
from fdro_core.master.settings import Adaptive
from fdro_core.observers import StopAfter, StopAtLoss, StopWhenStationary
from fdro_core.privacy.settings import Privacy
from fdro_core.protocol.algorithm import ALGORITHMS
from fdro_core.protocol.engine import ENGINES
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.errors import UnknownName
from uncertainty_sets.registry import Registry, is_reference, join_names

USUAL_ALGORITHM, FOLDER = "aspire-models", "run"
"""The algorithm and the output folder if a run file names none."""

STOPS = {"stationary": StopWhenStationary, "loss": StopAtLoss, "seconds": StopAfter}


@dataclass(frozen=True)
class RunSetup:
    """What a run file describes.

    Attributes:
        source: the file's text and lines.
        folder: the folder that its paths are relative to.
        output: the folder to write the run to.
        checkpoint_every: reports between two checkpoints.
    """

    source: Source
    folder: Path
    workers: Workers
    set_name: str
    uncertainty_set: Any
    algorithm_name: str
    algorithm: Any
    engine_name: str
    engine: Any
    stops: list[Any]
    output: Path
    checkpoint_every: int


def load(path: Path, folder: Path | None = None, algorithm_instead: str | None = None) -> RunSetup:
    """Read a run file; every error names line and field.

    Args:
        path: the file.
        folder: the folder that its paths are relative to; the file's own by default.
        algorithm_instead: the name of an algorithm that replaces the file's, with its default settings.
    """
    source = read_source(path)
    if algorithm_instead is not None:
        source = with_algorithm(source, algorithm_instead)
    base = path.resolve().parent if folder is None else folder
    values = source.values
    if isinstance(values.get("set"), str):  # set = "module:Class", for a set that needs no parameters
        values = values | {"set": {"name": values["set"]}}
    top = Section(source, values)
    parts = {
        name: top.section(name) for name in ("data", "model", "set", "algorithm", "engine", "stop", "output")
    }
    top.finish()
    output = parts["output"]
    wanted = base / output.read("folder", str, FOLDER)
    every = output.read("checkpoint_every", int, 100)
    if every < 1:
        raise output.error(f"must be at least 1, got {every}", "checkpoint_every")
    output.finish()
    algorithm_name, algorithm = _algorithm(
        parts["algorithm"], base
    )  # before reading data, which takes longer
    engine_name, engine = _engine(parts["engine"], base)
    stops = _stops(parts["stop"])
    set_section = parts["set"]
    set_name = set_section.read("name", str)
    with set_section.at("name"):
        chosen = set_class(set_name, base)
    workers = make_workers(parts["model"], load_data(parts["data"], base), base)
    uncertainty_set = _set(set_section, chosen, workers, base)
    _check_faults(parts["engine"], len(workers.problems))
    with parts["algorithm"].locating_errors():
        algorithm.check(len(workers.problems), uncertainty_set)
    return RunSetup(
        source=source,
        folder=base,
        workers=workers,
        set_name=set_name,
        uncertainty_set=uncertainty_set,
        algorithm_name=algorithm_name,
        algorithm=algorithm,
        engine_name=engine_name,
        engine=engine,
        stops=stops,
        output=wanted,
        checkpoint_every=every,
    )


def _set(section: Section, cls: type[UncertaintySet], workers: Workers, folder: Path) -> Any:
    given = section.rest()
    for field, value in given.items():
        if isinstance(value, str):
            with section.at(field):
                given[field] = read_value(value, folder)
    count, samples = len(workers.problems), workers.samples
    with section.locating_errors():
        made = written_set(cls, given, count, samples if np.isfinite(samples).all() else None)
    if made.size not in {None, count}:
        raise section.error(f"the set has {made.size} entries, and there are {count} workers", "center")
    return made


def _algorithm(section: Section, folder: Path) -> tuple[str, Any]:
    name = section.read("name", str, USUAL_ALGORITHM)
    with section.at("name"):
        name, cls = find_class(ALGORITHMS, name, folder)
    given: dict[str, Any] = {}
    _check_method(section, name, cls)
    known = set(section.values) & set(inspect.signature(cls).parameters)
    if "adaptive" in known:
        given["adaptive"] = section.section("adaptive").make(Adaptive)
    if "privacy" in known:
        given["privacy"] = section.section("privacy").make(Privacy)
    return name, section.make(cls, **given)


def _check_method(section: Section, name: str, cls: type[Any]) -> None:
    """Raise if a field is another algorithm's: the nearest name would mislead, since the field is right."""
    for field in set(section.rest()) - set(inspect.signature(cls).parameters):
        owners = [
            each
            for each, other in ALGORITHMS.classes().items()
            if field in inspect.signature(other).parameters
        ]
        if owners:
            raise section.error(
                f'name = "{name}" has no `{field}`, which is a field of {join_names(owners)}: take the line '
                "out, or change the name",
                field,
            )


def _engine(section: Section, folder: Path) -> tuple[str, Any]:
    name = section.read("name", str, "virtual")
    with section.at("name"):
        name, cls = find_class(ENGINES, name, folder)
    known = inspect.signature(cls).parameters
    given: dict[str, Any] = {}
    if "delays" in known and "delays" in section.values:
        value = section.values["delays"]
        laws = section.sections("delays") if isinstance(value, list) else [section.section("delays")]
        made = [_delay(law) for law in laws]
        given["delays"] = made if isinstance(value, list) else made[0]
    for field, fault in (("stragglers", Straggler), ("crashes", Crash)):
        if field in known and field in section.values:
            given[field] = [each.make(fault) for each in section.sections(field)]
    return name, section.make(cls, **given)


def _check_faults(section: Section, workers: int) -> None:
    """Check that stragglers and crashes name workers that exist."""
    for field in ("stragglers", "crashes"):
        for number, each in enumerate(section.values.get(field, [])):
            if not 0 <= each["worker"] < workers:
                message = f"there are workers 0 to {workers - 1}, got {each['worker']}"
                raise section.error(message, field, number, "worker")


def _delay(section: Section) -> Any:
    laws = delay_laws()
    return section.make(laws[section.choice("law", sorted(laws))])


def _stops(section: Section) -> list[Any]:
    found = []
    for field, rule in STOPS.items():
        value = section.read(field, float, None)
        if value is not None:
            with section.at(field):
                found.append(rule(value))
    section.finish()
    return found


def delay_laws() -> dict[str, type[Any]]:
    """Every delay law by its name in run files; it is a dataclass, whose fields are its numbers there.

    >>> delay_laws()["log-normal"].__name__
    'LogNormal'
    """
    found = [cls for cls in vars(delays).values() if isinstance(cls, type) and hasattr(cls, "draw")]
    return {kebab(cls.__name__): cls for cls in found if is_dataclass(cls)}


def kebab(name: str) -> str:
    """A class's name as run files spell it.

    >>> kebab("AspireEase"), kebab("FedAvg"), kebab("AFL"), kebab("DRFAProx")
    ('aspire-ease', 'fed-avg', 'afl', 'drfa-prox')
    """
    parts = []
    for place, letter in enumerate(name):
        after = name[place + 1 : place + 2]
        starts = letter.isupper() and place and (name[place - 1].islower() or after.islower())
        parts.append(f"-{letter}" if starts else letter)
    return "".join(parts).lower().replace("_", "-")


def find_class(registry: Registry[Any], name: str, folder: Path | None = None) -> tuple[str, type[Any]]:
    """The name of an algorithm or engine as its class has it, and the class.

    Hyphens and capitals do not matter. "module:Class" is a name too, of a module in `folder`, which is the
    current one by default, or of an installed package.

    >>> from fdro_core.protocol.engine import ENGINES
    >>> find_class(ENGINES, "Virtual")
    ('virtual', <class 'fdro_core.engines.virtual.VirtualEngine'>)
    """
    if is_reference(name):
        load_reference(name, Path.cwd() if folder is None else folder, "class")
    try:
        found = registry.get(name, exact=False)
    except UnknownName as error:
        raise InvalidSetting(str(error)) from error.__cause__
    return vars(found).get("name") or name, found
