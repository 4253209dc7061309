"""From a run file (TOML) to the objects it describes: workers, set, algorithm, engine, stopping rules."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fdro_core.cli.reading import read_value
from fdro_core.cli.runs.data import load_data
from fdro_core.cli.runs.fields import Section, Source, read_source, with_algorithm
from fdro_core.cli.runs.workers import Workers, make_workers
from fdro_core.cli.written import load_reference, set_class, written_set
from fdro_core.engines import delays
from fdro_core.engines.delays import Crash, Straggler
from fdro_core.errors import InvalidSetting
from fdro_core.master.settings import Adaptive
from fdro_core.observers import StopAfter, StopAtLoss, StopWhenStationary
from fdro_core.privacy.settings import Privacy
from fdro_core.protocol.algorithm import ALGORITHMS
from fdro_core.protocol.engine import ENGINES
from fdro_core.protocol.settings import check_settings
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.errors import UnknownName
from uncertainty_sets.registry import Registry, instead, is_reference, join_names

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


def load(
    path: Path, folder: Path | None = None, algorithm_instead: str | None = None, data: Path | None = None
) -> RunSetup:
    """Read a run file; the error names line and field of every mistake in it, and the cells in its data.

    Args:
        path: the file.
        folder: the folder that its paths are relative to; the file's own by default.
        algorithm_instead: the name of an algorithm that replaces the file's, with its default settings.
        data: the file with samples that replaces the file's.
    """
    source = read_source(path)
    if algorithm_instead is not None:
        source = with_algorithm(source, algorithm_instead)
    base = path.resolve().parent if folder is None else folder
    values = source.values
    if isinstance(values.get("set"), str):  # set = "module:Class", for a set that needs no parameters
        values = values | {"set": {"name": values["set"]}}
    if data is not None:
        values = values | {"data": values.get("data", {}) | {"source": str(data.resolve())}}
    top = Section(source, values)
    parts = {
        name: top.section(name) for name in ("data", "model", "set", "algorithm", "engine", "stop", "output")
    }
    top.finish()
    output = source.attempt(_output, parts["output"], base)
    algorithm = source.attempt(_algorithm, parts["algorithm"], base)
    stops = source.attempt(_stops, parts["stop"])
    chosen = source.attempt(_set_class, parts["set"], base)
    samples = source.attempt(load_data, parts["data"], base)
    workers = source.attempt(make_workers, parts["model"], samples, base)
    engine = source.attempt(_engine, parts["engine"], base, [] if workers is None else workers.names)
    made = None
    if workers is not None and chosen is not None:
        made = source.attempt(_set, parts["set"], chosen, workers, base)
    if workers is not None:
        _check_faults(parts["engine"], len(workers.problems))
    if algorithm and workers is not None:
        source.attempt(_check_algorithm, parts["algorithm"], algorithm[1], len(workers.problems), made)
    source.raise_mistakes()
    return RunSetup(
        source=source,
        folder=base,
        workers=workers,
        set_name=parts["set"].values["name"],
        uncertainty_set=made,
        algorithm_name=algorithm[0],
        algorithm=algorithm[1],
        engine_name=engine[0],
        engine=engine[1],
        stops=stops,
        output=output[0],
        checkpoint_every=output[1],
    )


def _output(section: Section, folder: Path) -> tuple[Path, int]:
    wanted = folder / section.read("folder", str, FOLDER)
    every = section.read("checkpoint_every", int, 100)
    if every < 1:
        section.source.note(section.error(f"must be at least 1, got {every}", "checkpoint_every"))
    section.finish()
    return wanted, every


def _set_class(section: Section, folder: Path) -> type[UncertaintySet]:
    name = section.read("name", str)
    with section.at("name"):
        return set_class(name, folder)


def _set(section: Section, cls: type[UncertaintySet], workers: Workers, folder: Path) -> Any:
    count, samples = len(workers.problems), workers.samples
    known = samples if np.isfinite(samples).all() else None

    def make(given: dict[str, Any]) -> UncertaintySet:
        read = dict(given)
        for field, value in given.items():
            if isinstance(value, str):
                with section.at(field):
                    read[field] = read_value(value, folder)
        return written_set(cls, read, count, known)

    made = section.make_of(make, section.rest())
    if made.size not in {None, count}:
        raise section.error(f"the set has {made.size} entries, and there are {count} workers", "center")
    return made


def _check_algorithm(section: Section, algorithm: Any, workers: int, uncertainty_set: Any) -> None:
    """Check the settings and, if there is one, the set; every setting at fault is noted."""
    defaults = {item.name: item.default for item in fields(algorithm)} if is_dataclass(algorithm) else {}

    def check(given: dict[str, Any]) -> None:
        spoilt = {name: defaults[name] for name in section.values if name in defaults and name not in given}
        sound = replace(algorithm, **spoilt) if spoilt else algorithm
        if uncertainty_set is not None:
            sound.check(workers, uncertainty_set)
        elif defaults:
            check_settings(sound, workers)

    section.make_of(check, section.values)


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
    """Note fields of other algorithms: the nearest name would mislead, since the field is right."""
    for field in set(section.rest()) - set(inspect.signature(cls).parameters):
        owners = [
            each
            for each, other in ALGORITHMS.classes().items()
            if field in inspect.signature(other).parameters
        ]
        if owners:
            message = (
                f'name = "{name}" has no `{field}`, which is a field of {join_names(owners)}: take the line '
                "out, or change the name"
            )
            section.source.note(section.error(message, field))


def _engine(section: Section, folder: Path, names: list[str]) -> tuple[str, Any]:
    """The engine; `names` are those of the workers, empty if the samples have mistakes."""
    name = section.read("name", str, "virtual")
    with section.at("name"):
        name, cls = find_class(ENGINES, name, folder)
    known = inspect.signature(cls).parameters
    given: dict[str, Any] = {}
    if "delays" in known and "delays" in section.values:
        value = section.values["delays"]
        laws = section.sections("delays") if isinstance(value, list) else [section.section("delays")]
        made = [section.source.attempt(_delay, law) for law in laws]
        if None not in made:
            given["delays"] = made if isinstance(value, list) else made[0]
    for field, fault in (("stragglers", Straggler), ("crashes", Crash)):
        if field in known and field in section.values:
            faults = [section.source.attempt(_fault, each, fault, names) for each in section.sections(field)]
            given |= {field: faults} if None not in faults else {}
    return name, section.make(cls, **given)


def _fault(section: Section, fault: type[Any], names: list[str]) -> Any:
    """A straggler or crash, of a worker by its number or its name."""
    given = section.values.get("worker")
    if not isinstance(given, str):
        return section.make(fault)
    name = section.read("worker", str)
    if names and name not in names:
        raise section.error(f"no worker is called {name!r}{instead(name, names, 'There are')}", "worker")
    if names.count(name) > 1:
        raise section.error(f"several workers are called {name!r}: write a number, from 0", "worker")
    return section.make(fault, worker=names.index(name) if names else 0)


def _check_faults(section: Section, workers: int) -> None:
    """Note stragglers and crashes of workers that do not exist."""
    for field in ("stragglers", "crashes"):
        given = section.values.get(field)
        for number, each in enumerate(given if isinstance(given, list) else []):
            place = each.get("worker") if isinstance(each, dict) else None
            if isinstance(place, int) and not 0 <= place < workers:
                message = f"there are workers 0 to {workers - 1}, got {place}"
                section.source.note(section.error(message, field, number, "worker"))


def _delay(section: Section) -> Any:
    laws = delay_laws()
    return section.make(laws[section.choice("law", sorted(laws))])


def _stops(section: Section) -> list[Any]:
    found = []
    for field, rule in STOPS.items():
        value = section.read(field, float, None)
        if value is not None:
            found.append(section.source.attempt(_stop, section, field, rule, value))
    section.finish()
    return found


def _stop(section: Section, field: str, rule: Any, value: float) -> Any:
    with section.at(field):
        return rule(value)


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
