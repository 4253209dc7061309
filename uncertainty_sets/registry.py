"""Finding classes by name: the files of a folder, other packages' entry points, and any class with a name.

There is one `Registry` for each kind of extension: sets, backends, algorithms, engines. A class reaches it
in one of three ways, none of which edits a list:

- a file in the registry's folder, unless its name begins with an underscore;
- an entry point of another package, in the group that is called as the folder is;
- a class that sets `name` itself, from the moment that it is defined.

A name belongs to one class. A second class of that name is refused, unless it says ``replace=True``; the same
definition run again (a notebook's cell, a reloaded module) takes the place of the first.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from uncertainty_sets.errors import NameTaken, UnknownName

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

T = TypeVar("T")

LIKE = 0.8
"""How much a group must look like one of ours to be taken for a misspelling of it (difflib's ratio)."""


class _Held(NamedTuple):
    """A class under its name, and the one that it replaced."""

    name: str
    cls: Any
    origin: tuple[str, str]
    under: _Held | None


class _Published(NamedTuple):
    """An entry point and the package that it is of."""

    point: EntryPoint
    package: str

    def __str__(self) -> str:
        return f"the entry point {self.point.name!r} of the package {self.package} ({self.point.value})"


class Registry(Generic[T]):
    """The classes of one kind, by their names.

    Args:
        kind: what they are, for messages: "uncertainty set".
        base: what each of them derives from.
        folders: packages whose files define them; the first is also the group of entry points.
        needs: methods without which a published class is refused.
        reserved: names that mean something else.
    """

    groups: ClassVar[list[str]] = []
    _told: ClassVar[set[tuple[str, str]]] = set()  # misspelt groups: several registries may notice one

    def __init__(
        self,
        kind: str,
        base: type[Any],
        folders: Sequence[str],
        *,
        needs: Sequence[str] = (),
        reserved: Sequence[str] = (),
    ) -> None:
        self.kind, self.base, self.folders, self.group = kind, base, tuple(folders), folders[0]
        self.needs, self.reserved = tuple(needs), tuple(reserved)
        self._held: dict[str, _Held] = {}
        self._pending: dict[str, _Published] = {}  # entry points that are not loaded yet
        self._failed: dict[str, tuple[str, BaseException]] = {}  # what is wrong with a name, and the cause
        self._seen: set[tuple[str, str, str]] = set()
        self._loading: set[tuple[int, str]] = set()
        self._walked = False
        self._lock = threading.Lock()  # never held during an import, which has locks of its own
        self.groups.append(self.group)

    # -- look-up ---------------------------------------------------------------------------------------------

    def classes(self) -> dict[str, type[T]]:
        """Every class by its name, sorted."""
        self._open()
        for key in list(self._pending):
            self._load(key)
        return {name: cls for name, cls, *_ in sorted(self._held.copy().values(), key=lambda held: held.name)}

    def defined(self) -> list[type[T]]:
        """The classes so far, for a package that is in the middle of its import."""
        return [held.cls for held in self._held.copy().values()]

    def find(self, name: Any, *, exact: bool = True) -> type[T] | None:
        """The class of that name, or of "module:Class"; None if there is none.

        Of the other packages that publish something, only that with this name is loaded. If not `exact`,
        capitals, hyphens and underscores do not matter.
        """
        if not isinstance(name, str):
            return None
        if is_reference(name):
            return self._refer(name)
        self._open()
        self._load(_bare(name))
        held = self._held.get(_bare(name))
        if held is None:
            self._read_entry_points()  # of what was installed in the meantime
            self.classes()  # a published module may define more than its entry points say
            held = self._held.get(_bare(name))
        return held.cls if held is not None and (held.name == name or not exact) else None

    def get(self, name: Any, *, exact: bool = True) -> type[T]:
        """The class of that name; `UnknownName` if there is none, from what its entry point raised."""
        found = self.find(name, exact=exact)
        if found is None:
            raise self.unknown(name)
        return found

    def unknown(self, name: Any, more: str = "", parameter: str = "name") -> UnknownName:
        """The error for a name that no class has, with its cause; `more` ends the list of names."""
        failure = self._failed.get(_bare(name)) if isinstance(name, str) else None
        if failure is not None:
            error = UnknownName(failure[0], parameter=parameter, value=name)
            error.__cause__ = failure[1]
            return error
        known = sorted([*self.classes(), *self.reserved])
        text = f"no {self.kind} is called {name!r}{instead(name, known)}{more}"
        return UnknownName(text, parameter=parameter, value=name)

    # -- definition ------------------------------------------------------------------------------------------

    def define(self, cls: type[Any], *, replace: bool = False) -> None:
        """Take up a class if it sets `name` itself; called from `__init_subclass__`."""
        name = vars(cls).get("name", "")
        if not isinstance(name, str):
            raise TypeError(f"{cls.__name__}.name must be a string, got {name!r}")
        if not name:
            return
        self._check_name(cls, name)
        if not cls.__module__.startswith(tuple(f"{folder}." for folder in self.folders)):
            # Our own names and those of installed packages come first, so that a clash shows here.
            self._open()
            published = self._pending.get(_bare(name))
            if published is not None and not _is_of(published.point, cls):
                if not replace:
                    raise self._taken(cls, name, str(published))
                self._load(_bare(name))
        self._hold(cls, name, replace)

    def forget(self, name: str) -> None:
        """Take a name back, in a notebook or a test; a class that was replaced has it again."""
        with self._lock:
            held = self._held.pop(_bare(name))
            if held.under is not None:
                self._held[_bare(name)] = held.under

    def _hold(self, cls: type[Any], name: str, replace: bool) -> None:
        key, new = _bare(name), _origin(cls)
        with self._lock:
            held = self._held.get(key)
            if held is None or held.origin == new:
                self._held[key] = _Held(name, cls, new, held.under if held else None)
                return
            if replace:
                self._held[key] = _Held(name, cls, new, held)
                return
        below = held.under
        while below is not None:
            if below.origin == new:  # what was replaced is loaded again
                return
            below = below.under
        raise self._taken(cls, name, _where(held.cls), held.name)

    def _check_name(self, cls: type[Any], name: str) -> None:
        if _bare(name) in map(_bare, self.reserved):
            raise NameTaken(f"{_where(cls)} cannot be called {name!r}, which means something else: rename it")
        if not re.fullmatch(r"\w[\w.+-]*", name):
            raise NameTaken(
                f"{_where(cls)} cannot be called {name!r}: a name consists of letters, digits, hyphens and "
                "dots, since command lines and files have it"
            )

    def _taken(self, cls: type[Any], name: str, holder: str, held: str = "") -> NameTaken:
        as_held = f" (as {held!r})" if held not in {"", name} else ""
        base = cls.__mro__[1].__name__
        return NameTaken(
            f"two {self.kind}s are called {name!r}: {holder} has the name{as_held}, and {_where(cls)} wants "
            "it. Choose another name; or, to replace that one everywhere, define yours as "
            f"`class {cls.__name__}({base}, replace=True)`"
        )

    # -- discovery -------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Import the folder's files, and read which names other packages publish, without loading them."""
        if self._walked:
            return
        for folder in self.folders:
            package = importlib.import_module(folder)
            for module in pkgutil.iter_modules(package.__path__):
                if not module.name.startswith("_"):  # what several files of the folder share
                    importlib.import_module(f"{folder}.{module.name}")
        self._read_entry_points()
        self._walked = True

    def _read_entry_points(self) -> None:
        """Note every entry point of the group that was not seen before."""
        by_name: dict[str, list[_Published]] = {}
        for each in self._published():
            by_name.setdefault(_bare(each.point.name), []).append(each)
        twice = {}
        with self._lock:
            for key, several in by_name.items():
                seen = {(each.package, each.point.name, each.point.value) for each in several}
                if seen <= self._seen:
                    continue
                self._seen |= seen
                if len({each.point.value for each in several}) == 1:
                    self._pending[key] = several[0]
                else:
                    self._pending.pop(key, None)
                    twice[key] = several
        for key, several in twice.items():
            self._fail(
                key,
                f"the {self.kind} {several[0].point.name!r} is published more than once, and none of "
                f"these is used: {' and '.join(map(str, several))}. Uninstall one, or use the class itself",
            )

    def _published(self) -> Iterator[_Published]:
        """The group's entry points; of a package that is found twice on the path, those of the first."""
        from importlib import metadata

        packages: set[str] = set()
        for each in metadata.distributions():
            try:
                points = [point for point in each.entry_points if self._concerns(point.group)]
            except Exception as error:  # a file that cannot be read: of another package, or of one of ours
                if self.group in (each.read_text("entry_points.txt") or ""):
                    self._warn(f"the entry points of the package {_name(each)} cannot be read", error)
                continue
            if not points or (package := _name(each)) in packages:
                continue
            packages.add(package)
            for point in points:
                if point.group == self.group:
                    yield _Published(point, package)
                elif (package, point.group) not in self._told:
                    self._told.add((package, point.group))
                    close = nearest(point.group, self.groups)
                    self._warn(
                        f"the package {package} has an entry point {point.name!r} in the group "
                        f"{point.group!r}, which nothing reads{close}"
                    )

    def _concerns(self, group: str) -> bool:
        """Whether a group is this one, or a misspelling of it."""
        if group == self.group:
            return True
        top = self.group.partition(".")[0]
        alike = group.startswith(f"{top}.") or bool(get_close_matches(group, [self.group], 1, LIKE))
        return alike and group not in self.groups and not _is_folder(group)

    def _load(self, key: str) -> None:
        """Load an entry point, if one waits; what is wrong with it must not take other names with it."""
        published = self._pending.get(key)
        running = (threading.get_ident(), key)
        if published is None or running in self._loading:  # its own module asks for it while it is imported
            return
        self._loading.add(running)
        try:
            cls = published.point.load()
            self._check_class(cls, published.point.value)
            if not vars(cls).get("name"):
                self._check_name(cls, published.point.name)
                cls.name = published.point.name
            if cls.name != published.point.name:
                raise TypeError(f"its class is called {cls.name!r}: the entry point must have the same name")
            self._hold(cls, cls.name, replace=False)
        except (Exception, SystemExit) as error:  # another package's code may raise anything
            what = f"the {self.kind} {published.point.name!r} of the package {published.package}"
            self._fail(key, f"{what} cannot be loaded: {type(error).__name__}: {error}", error)
        finally:
            self._loading.discard(running)
            self._pending.pop(key, None)

    def _check_class(self, cls: Any, text: str) -> None:
        """Raise for what was named and is not of this kind, or not complete."""
        if not isinstance(cls, type) or not issubclass(cls, self.base):
            wanted = "a class" if self.base is object else f"a subclass of {_where(self.base)}"
            raise TypeError(f"{text} is not {wanted}")
        lacking = [name for name in self.needs if not callable(getattr(cls, name, None))]
        if inspect.isabstract(cls):
            lacking += sorted(getattr(cls, "__abstractmethods__", ()))
        if lacking:
            raise TypeError(f"{text} lacks the method {', '.join(dict.fromkeys(lacking))}")

    def _refer(self, text: str) -> type[T]:
        """The class of "module:Class"."""
        module, _, name = text.partition(":")
        try:
            found = importlib.import_module(module)
            if not hasattr(found, name):
                alike = [key for key, value in vars(found).items() if isinstance(value, type)]
                raise AttributeError(f"{module} has no class {name}{nearest(name, alike)}")
            cls: type[T] = getattr(found, name)
            self._check_class(cls, text)
        except (Exception, SystemExit) as error:  # the module's code may raise anything
            raise UnknownName(
                f"the {self.kind} {text!r} cannot be loaded: {type(error).__name__}: {error}",
                parameter="name",
                value=text,
            ) from error
        return cls

    def _fail(self, key: str, text: str, cause: BaseException | None = None) -> None:
        with self._lock:
            if key in self._failed:
                return
            self._failed[key] = (text, cause or NameTaken(text))
        self._warn(text)

    def _warn(self, text: str, error: BaseException | None = None) -> None:
        warnings.warn(f"{text}: {error}" if error else text, RuntimeWarning, stacklevel=2)


def is_reference(text: str) -> bool:
    """Whether a text is "module:name".

    >>> is_reference("hospital.data:load"), is_reference("digits")
    (True, False)
    """
    module, colon, name = text.partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _bare(name: str) -> str:
    """A name without what does not tell two names apart: capitals, hyphens, underscores."""
    return name.lower().replace("-", "").replace("_", "")


def _origin(cls: type[Any]) -> tuple[str, str]:
    """Where a class is defined: the same file run as a script and imported is one place."""
    module = sys.modules.get(cls.__module__)
    return getattr(module, "__file__", None) or cls.__module__, cls.__qualname__


def _where(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _is_of(point: EntryPoint, cls: type[Any]) -> bool:
    """Whether an entry point means that class."""
    module, _, name = point.value.partition("[")[0].strip().partition(":")
    if name.strip() != cls.__qualname__:
        return False
    try:
        spec = find_spec(module.strip())
    except (ImportError, ValueError):
        return False
    return module.strip() == cls.__module__ or (spec is not None and spec.origin == _origin(cls)[0])


def _is_folder(group: str) -> bool:
    """Whether a group is called as a package is: it may be that of a registry that is not imported yet."""
    try:
        return "." in group and find_spec(group) is not None
    except (ImportError, ValueError):
        return False


def _name(distribution: Distribution) -> str:
    """A package's name as it is normalised."""
    try:
        return re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
    except Exception:  # metadata without a name, or none
        return "without a name"


# -- names in messages ---------------------------------------------------------------------------------------


SHOWN = 20  # names in a message; more are cut short


def nearest(name: object, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" if one of the known names is close, else "".

    >>> nearest("radus", ["radius", "center"])
    "; did you mean 'radius'?"
    >>> nearest("Kl", ["Box", "KL"])
    "; did you mean 'KL'?"
    """
    written = {each.lower(): each for each in known}
    close = get_close_matches(str(name).lower(), written, n=1, cutoff=0.4)
    return f"; did you mean {written[close[0]]!r}?" if close else ""


def instead(name: object, known: Iterable[str], lead: str = "There are") -> str:
    """Finish a message about an unknown name: the nearest known one, then all of them.

    >>> instead("radus", ["radius", "center"], "It takes")
    "; did you mean 'radius'? It takes: radius, center"
    """
    known = list(known)
    shown = [*known[:SHOWN], "…"] if len(known) > SHOWN else known
    return f"{nearest(name, known) or '.'} {lead}: {', '.join(shown) or 'none'}"


def join_names(names: Sequence[str]) -> str:
    """Join names with commas and "and".

    >>> join_names(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
