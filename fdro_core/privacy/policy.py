"""What the owner of a machine's data allows: a policy that is read where the data is, never sent.

A policy is a TOML file at the worker::

    epsilon = 2.0  # the most that all runs together may spend
    delta = 1e-5
    unit = "sample"
    ledger = "/var/lib/ward/ledger.jsonl"

It is in force where the environment variable FDRO_PRIVACY names the file. A node of Flower may be told by its
`--node-config` instead, or by its `client_app`. Then every worker that is made there is private, counts in
that ledger, and asks for no more than the policy has; anything else is refused.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from fdro_core.errors import InvalidSetting
from fdro_core.privacy.gate import Gate
from fdro_core.privacy.settings import CLIENT, SAMPLE, Privacy
from fdro_core.protocol.engine import WorkerFactory, WorkerMachine
from fdro_core.protocol.settings import (
    REQUIRED,
    FilePath,
    Number,
    OneOf,
    Share,
    check_settings,
    documented,
    setting,
)

LOG = logging.getLogger("fdro.privacy")
VARIABLE = "FDRO_PRIVACY"
LARGEST_FILE = 1 << 16
PLACE = "{worker}"  # in a ledger's path: the worker's number


@documented
@dataclass(frozen=True, kw_only=True)
class PrivacyPolicy:
    """What may leave a machine at most.

    >>> policy = PrivacyPolicy(epsilon=2.0, ledger="ledger.jsonl")
    >>> policy.objection(None)
    'its owner allows private runs only: AspireModels(privacy=Privacy(epsilon=2, delta=1e-05, ...'
    >>> policy.objection(Privacy(epsilon=2.0, noise=30.0, bound=1.0, loss_bound=2.0))
    ''
    """

    epsilon: float = setting(REQUIRED, Number(), "the most of ε, over all runs that the ledger knows")
    ledger: str = setting(
        REQUIRED,
        FilePath(),
        "the file in which the machine counts its releases. "
        '"{worker}" in it stands for the worker\'s number, '
        "for machines with several data sets",
    )
    delta: float = setting(1e-5, Share(whole=False), "the most of δ")
    unit: str = setting(SAMPLE, OneOf(SAMPLE, CLIENT), "what must be protected")

    def check(self) -> None:
        """Raise `InvalidSetting` for a value that cannot be meant."""
        check_settings(self, 0, "PrivacyPolicy")

    def objection(self, asked: Any) -> str:
        """Why a request is outside the policy; "" if it is not."""
        if not isinstance(asked, Privacy):
            return (
                "its owner allows private runs only: AspireModels(privacy=Privacy("
                f'epsilon={self.epsilon:g}, delta={self.delta:g}, unit="{self.unit}", ...))'
            )
        asked.check()
        for name in ("epsilon", "delta"):
            if getattr(asked, name) > getattr(self, name):
                return (
                    f"its owner allows {name} = {getattr(self, name):g} at most, and the run asks for "
                    f"{getattr(asked, name):g}"
                )
        if asked.unit != self.unit:
            return f'its owner wants unit="{self.unit}", and the run asks for "{asked.unit}"'
        if asked.noise_seed is not None:
            return "its owner wants noise that nobody knows, and the run asks for noise_seed"
        return ""

    def ledger_of(self, worker: int) -> Path:
        """The file of a worker."""
        return Path(str(self.ledger).replace(PLACE, str(worker)))


def read(path: str | Path) -> PrivacyPolicy:
    """Read a policy; `InvalidSetting` for a file that is none."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(LARGEST_FILE).decode("utf-8")
        given = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidSetting(f"the privacy policy {path} cannot be read: {error!s:.200}") from error
    known = {field.name for field in fields(PrivacyPolicy)}
    if not set(given) <= known or not {"epsilon", "ledger"} <= set(given):
        raise InvalidSetting(
            f"the privacy policy {path} must have epsilon and ledger, and may have delta and unit; got "
            f"{', '.join(sorted(given)) or 'nothing'}"[:400]
        )
    policy = PrivacyPolicy(**given)
    policy.check()
    return policy


def policy_at_worker(path: str | None = None) -> PrivacyPolicy | None:
    """The policy of this process's machine: of this file, else of the one that the environment names, if any.

    A policy that cannot be read allows nothing. Why is for the machine's own log.
    """
    path = os.environ.get(VARIABLE) or None if path is None else path
    if path is None:
        return None
    try:
        return read(path)
    except InvalidSetting as error:
        LOG.warning("fdro makes no worker: %s", error)
    raise InvalidSetting("refused at the worker: its privacy policy cannot be read; its log says why")


_in_force: ContextVar[tuple[PrivacyPolicy, int | None] | None] = ContextVar("policy", default=None)


def ledger_in_force(worker: int) -> tuple[PrivacyPolicy, Path] | None:
    """The policy under which this worker is being made, and its ledger's file; None without a policy."""
    found = _in_force.get()
    if found is None:
        return None
    policy, number = found
    return policy, policy.ledger_of(worker if number is None else number)


def admitted(factory: WorkerFactory) -> WorkerMachine:
    """Make a worker if the policy of this machine allows it; every engine makes its workers by this."""
    return make_under(policy_at_worker(), factory)


def make_under(
    policy: PrivacyPolicy | None, factory: WorkerFactory, number: int | None = None
) -> WorkerMachine:
    """Make a worker under a policy; `number` is the machine's own, if it has one."""
    if policy is None:
        return factory()
    objection = policy.objection(asked_for(factory))
    if objection:
        raise refused(objection)
    with _force(policy, number):
        made = factory()
    if not isinstance(made, Gate):
        raise refused("its owner allows private workers only, and the algorithm makes others")
    return made


def asked_for(factory: WorkerFactory) -> Any:
    """The privacy that a factory's algorithm asks for, None if it asks for none.

    An algorithm's factory is `partial(function, index, source, algorithm)`.
    """
    for given in factory.args if isinstance(factory, partial) else ():
        if isinstance(found := getattr(given, "privacy", None), Privacy):
            return found
    return None


def refused(objection: str) -> InvalidSetting:
    """The error of a request outside the policy; the machine's own log has it, too."""
    LOG.warning("fdro refused to make a worker: %s", objection)
    return InvalidSetting(f"refused at the worker: {objection}", parameter="privacy")


@contextmanager
def _force(policy: PrivacyPolicy, number: int | None) -> Iterator[None]:
    token = _in_force.set((policy, number))
    try:
        yield
    finally:
        _in_force.reset(token)
