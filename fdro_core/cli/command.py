"""What makes a function a command of `fdro`: a place in the help, examples, and exit codes for its errors.

A file in `commands` whose function has the decorator `command` is a command; nothing else is to be edited.

====  =============================================================================================
code  meaning
====  =============================================================================================
0     done
1     it ran and failed: a solver gave no answer, no worker is left, not proved, the disk is full
2     invalid input: arguments, files, fields of a run file
3     a package is missing; the message says what to install
130   interrupted; a training run has left a checkpoint
====  =============================================================================================
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import typer

from fdro_core.outside import visible

FAILED, UNUSABLE, MISSING, INTERRUPTED = 1, 2, 3, 130

Function = TypeVar("Function", bound=Callable[..., None])


@dataclass(frozen=True)
class Command:
    """A command, or a group of commands, and where `fdro --help` lists it.

    Attributes:
        run: what it does; typer reads its signature.
        panel: the title that it is listed under.
        place: panels and commands are in the order of these numbers.
        examples: lines under its own help.
        set_options: whether words that are no options of its own are left to it, as parameters of a set.
    """

    run: Callable[..., None] | typer.Typer
    panel: str
    place: int
    examples: tuple[str, ...] = ()
    set_options: bool = False


COMMANDS: list[Command] = []
"""The commands of the files that have been imported."""


def command(
    panel: str, *examples: str, place: int = 100, set_options: bool = False
) -> Callable[[Function], Function]:
    """Make a function a command, whose name it has; the arguments are those of `Command`."""

    def register(function: Function) -> Function:
        run = guarded(function)
        COMMANDS.append(Command(run, panel, place, examples, set_options))
        return run

    return register


def group(commands: typer.Typer, panel: str, *, place: int = 100) -> None:
    """Make commands of two words, such as `fdro flower new`; their functions are `guarded`."""
    COMMANDS.append(Command(commands, panel, place))


def under_help(examples: tuple[str, ...]) -> str:
    """Examples as typer shows them under the help."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"  {line}" for line in examples)])


def exit_code(error: BaseException) -> int | None:
    """The exit code for an exception; None for a bug, which is shown with its traceback.

    >>> exit_code(FileNotFoundError("no data")), exit_code(KeyError("x"))
    (2, None)
    """
    from fdro_core.files import FULL
    from uncertainty_sets.errors import BackendMissing, BackendUnsuitable, FdroError, InvalidInput

    if isinstance(error, BackendMissing):
        return MISSING
    if isinstance(error, InvalidInput | BackendUnsuitable):
        return UNUSABLE
    if isinstance(error, FdroError):
        return FAILED
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        return FAILED if error.errno in FULL else UNUSABLE
    return None


def guarded(function: Function) -> Function:
    """Wrap a command so that expected errors become one message on stderr and an exit code."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            with _visible_warnings():
                function(*arguments, **options)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            code = exit_code(error)
            if code is None:
                raise
            as_json = bool(options.get("as_json"))
            kind, message, before = explain(error)
            complain(message, code, kind=kind, as_json=as_json, before=before)
            raise typer.Exit(code) from error

    return run  # type: ignore[return-value]  # the same signature, by `wraps`


@contextmanager
def _visible_warnings() -> Iterator[None]:
    """Print warnings with their text made visible: it may quote names and errors of workers."""
    before = warnings.formatwarning

    def form(message: Any, *place: Any, **more: Any) -> str:
        return visible(before(message, *place, **more))

    warnings.formatwarning = form
    try:
        yield
    finally:
        warnings.formatwarning = before


def explain(error: Exception) -> tuple[str, str, str]:
    """The kind of an expected error, its message, and the traceback to show before it.

    A run that ended because of an exception in the user's code has that traceback; other errors have none.
    """
    from fdro_core.errors import DriverError
    from fdro_core.files import FULL
    from fdro_core.protocol.failures import traceback_of

    kind, message, before = type(error).__name__, str(error), ""
    cause = error.__cause__ if isinstance(error, DriverError) else None
    unwritten = _unwritten(cause)
    if unwritten:  # by the run's own observers, which are no news to the reader
        kind, message = type(unwritten[0]).__name__, "; ".join(map(str, unwritten))
        message = f"{message}. The run was ended"
    elif cause is not None:
        before = traceback_of(cause)
    elif isinstance(error, OSError) and error.errno in FULL and error.filename is None:
        message = f"standard output could not be written ({error.strerror})"
    return kind, ". ".join([message, *getattr(error, "__notes__", [])]), before


def _unwritten(cause: BaseException | None) -> list[BaseException]:
    """The files that could not be written, if that is all that happened."""
    from fdro_core.errors import FileNotWritten

    all_causes = cause.exceptions if isinstance(cause, BaseExceptionGroup) else (cause,)
    found = [each for each in all_causes if isinstance(each, FileNotWritten)]
    return list(found) if len(found) == len(all_causes) else []


def complain(message: str, code: int, *, kind: str, as_json: bool, before: str = "") -> None:
    """Print an error on stderr, after its traceback if there is one: as text, or as a JSON object."""
    if as_json:
        content = {"error": message, "kind": kind, "exit_code": code}
        typer.echo(json.dumps(content | ({"traceback": before} if before else {})), err=True)
    else:
        typer.echo(visible(before), nl=False, err=True)
        typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
        typer.echo(visible(message), err=True)
