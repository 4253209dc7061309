"""Turn exceptions into messages and exit codes.

====  ==========================================================================================
code  meaning
====  ==========================================================================================
0     done
1     it ran and failed: a solver gave no answer, no worker is left, an answer is not proved
2     invalid input: arguments, files, fields of a run file
3     a package is missing; the message says what to install
130   interrupted; a training run has left a checkpoint
====  ==========================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import typer

FAILED, UNUSABLE, MISSING, INTERRUPTED = 1, 2, 3, 130

Command = TypeVar("Command", bound=Callable[..., None])


def exit_code(error: BaseException) -> int | None:
    """The exit code for an exception; None for a bug, which is shown with its traceback.

    >>> exit_code(FileNotFoundError("no data")), exit_code(KeyError("x"))
    (2, None)
    """
    from uncertainty_sets.errors import BackendMissing, BackendUnsuitable, FdroError, InvalidInput

    if isinstance(error, BackendMissing):
        return MISSING
    if isinstance(error, InvalidInput | BackendUnsuitable):
        return UNUSABLE
    if isinstance(error, FdroError):
        return FAILED
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        return UNUSABLE
    return None


def guarded(command: Command) -> Command:
    """Wrap a command so that expected errors become one message on stderr and an exit code."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            code = exit_code(error)
            if code is None:
                raise
            message = ". ".join([str(error), *getattr(error, "__notes__", [])])
            as_json = bool(options.get("as_json"))
            complain(
                message, code, kind=type(error).__name__, as_json=as_json, before=_raised_by_a_worker(error)
            )
            raise typer.Exit(code) from error

    return run  # type: ignore[return-value]  # the same signature, by `wraps`


def _raised_by_a_worker(error: Exception) -> str:
    """The traceback of the exception that ended a run, which lies in the user's code; "" if there is none."""
    from fdro_core.contracts.failures import traceback_of
    from fdro_core.errors import DriverError

    cause = error.__cause__ if isinstance(error, DriverError) else None
    return "" if cause is None else traceback_of(cause)


def complain(message: str, code: int, *, kind: str, as_json: bool, before: str = "") -> None:
    """Print an error on stderr, after its traceback if there is one: as text, or as a JSON object."""
    if as_json:
        content = {"error": message, "kind": kind, "exit_code": code}
        typer.echo(json.dumps(content | ({"traceback": before} if before else {})), err=True)
    else:
        typer.echo(before, nl=False, err=True)
        typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
        typer.echo(message, err=True)
