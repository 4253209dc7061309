"""What `check_set` found, as data that prints as a table."""

from __future__ import annotations

from dataclasses import dataclass

SHOWN = 3  # findings per property in the table; `findings` has all


@dataclass(frozen=True, repr=False)
class SetReport:
    """What `check_set` tried; prints as a table.

    Attributes:
        subject: the set, as it prints itself.
        size: N.
        findings: for each tested property, what is wrong; empty if it holds. If the oracle gives no answer at
            all, most properties are not tested.
        promises: every property in one line, including those that were not tested.
        losses: the kinds of losses that it was tried on.
        backends: those that answered.
    """

    subject: str
    size: int
    findings: dict[str, tuple[str, ...]]
    promises: dict[str, str]
    losses: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()

    @property
    def broken(self) -> list[str]:
        """The properties that do not hold."""
        return [name for name, found in self.findings.items() if found]

    def __str__(self) -> str:
        width = max(map(len, self.promises))
        lines = [f"{self.subject}, N = {self.size}"]
        for name, promise in self.promises.items():
            found = self.findings.get(name, ())
            outcome = "not tried" if name not in self.findings else "BROKEN" if found else "holds"
            lines.append(f"{name:{width}}  {outcome:9}  {promise}")
            lines += [f"{'':{width}}    {each}" for each in found[:SHOWN]]
            if len(found) > SHOWN:
                lines.append(f"{'':{width}}    … and {len(found) - SHOWN} more")
        lines.append(f"tried on {len(self.losses)} loss vectors: {', '.join(self.losses)}")
        lines.append(f"answered by {', '.join(self.backends) or 'no backend'}")
        return "\n".join(lines)

    __repr__ = __str__  # so that a notebook shows what was checked
