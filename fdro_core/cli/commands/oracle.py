"""`fdro oracle`: which distribution in the set makes the expected loss largest, with its proof."""

from __future__ import annotations

import csv
import io
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdro_core.cli.command import FAILED, command
from fdro_core.cli.output import AsJson, Output, Quiet, number, table
from fdro_core.cli.written import Param, given_parameters, set_names
from fdro_core.outside import visible

if TYPE_CHECKING:
    from fdro_core.cli.reading import Losses
    from uncertainty_sets.answer import WorstCase
    from uncertainty_sets.base import UncertaintySet

SHOWN = 20
"""How many entries a table shows; CSV and JSON always have all."""

PROVED = 1e-4
"""A gap of at most this much of max f - min f counts as proved; closed forms reach 1e-9."""


class Form(StrEnum):
    """How the answer is written."""

    table = "table"
    csv = "csv"
    json = "json"


@command(
    "Sets and worst cases",
    "fdro oracle --set kl --losses 0.9,1.4,0.3,2 --radius 0.1",
    "fdro oracle --set cd-norm --losses losses.csv --center @q.npy --spread 0.1 --budget 2 --format csv",
    "python simulate.py | fdro oracle --set wasserstein-1 --losses - --radius 0.5 --json",
    place=20,
    set_options=True,
)
def oracle(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Option(
            "--set",
            "-s",
            help="Name of the set (`fdro sets` lists them), or module:Class.",
            autocompletion=set_names,
        ),
    ],
    losses: Annotated[
        str,
        typer.Option("--losses", "-l", help="A CSV, npy or JSON file, - for stdin, or numbers: 0.9,1.4,2."),
    ],
    param: Param = None,
    column: Annotated[
        str | None, typer.Option(help="The column with the losses, if a CSV file has several.")
    ] = None,
    backend: Annotated[str, typer.Option(help="auto, closed-form, or a solver: see `fdro sets`.")] = "auto",
    form: Annotated[Form, typer.Option("--format", "-f", help="How to write the answer.")] = Form.table,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compute the worst-case distribution of a set for given losses, with its certificate.

    Give the set's parameters by name: --radius 0.1, --center @q.npy, --budget 2. The default centre is
    uniform.
    """
    from fdro_core.cli.reading import read_losses
    from fdro_core.cli.written import set_class, written_set

    cls = set_class(name)  # a wrong name is reported before a missing file is
    parameters = given_parameters(context, name, cls, param or [], context.args)
    read = read_losses(losses, column)
    uncertainty_set = written_set(cls, parameters, read.values.shape[-1])
    answer = uncertainty_set.worst_case(read.values, backend=backend)
    output = Output(quiet=quiet, as_json=as_json or (form is Form.json and not quiet))
    output.data(as_data(name, read, answer))
    if answer.p.ndim == 2:
        output.only_quiet("\n".join(repr(float(value)) for value in answer.value))
    else:
        output.only_quiet(repr(float(answer.value)))
    if output.words and form is Form.csv:
        typer.echo(visible(as_csv(read, uncertainty_set, answer)), nl=False)
        typer.echo(visible(certificate_line(answer)), err=True)
    elif output.words:
        show(output, name, read, uncertainty_set, answer)
    if not proved(read, answer):
        output.warn("the gap is too large for a proof; try another --backend")
        raise typer.Exit(FAILED)


def proved(read: Losses, answer: WorstCase) -> bool:
    """Whether every gap is small beside its row's spread of losses."""
    import numpy as np

    f = 0.5 * read.values  # halves, since the spread of the largest numbers overflows
    limit = np.maximum(PROVED * (f.max(axis=-1) - f.min(axis=-1)), 1e-12 * np.abs(f).max(axis=-1))
    gap, violation = 0.5 * np.asarray(answer.gap), np.asarray(answer.violation)
    return bool(np.all(gap <= limit) and np.all(violation <= PROVED))


def certificate_line(answer: WorstCase) -> str:
    """The proof in one line, the weakest row of a batch."""
    import numpy as np

    if answer.p.ndim == 2:
        return (
            f"{len(answer.p)} rows, largest gap {np.max(answer.gap):.2g}, largest violation "
            f"{np.max(answer.violation):.2g}, {answer.backend}"
        )
    return (
        f"value {answer.value:.10g}, upper bound {answer.upper_bound:.10g}, gap {answer.gap:.2g}, "
        f"violation {answer.violation:.2g}, {answer.backend}"
    )


def as_data(name: str, read: Losses, answer: WorstCase) -> dict[str, Any]:
    """All of the answer, for `--json`."""
    fields = ("value", "upper_bound", "gap", "violation", "p", "dual", "iterations")
    content = {"set": name, **{field: getattr(answer, field) for field in fields}, "backend": answer.backend}
    return content if read.names is None else {**content, "names": read.names}


def rows_of(read: Losses, uncertainty_set: UncertaintySet, answer: WorstCase) -> list[tuple[Any, ...]]:
    """(entry, loss, centre or None, p) for one distribution."""
    center = getattr(uncertainty_set, "center", None)
    return [
        (
            j if read.names is None else read.names[j],
            float(read.values[j]),
            None if center is None else float(center[j]),
            float(answer.p[j]),
        )
        for j in range(len(answer.p))
    ]


def as_csv(read: Losses, uncertainty_set: UncertaintySet, answer: WorstCase) -> str:
    """entry,loss,center,p for one distribution; a row of p for each row of a batch."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if answer.p.ndim == 2:
        writer.writerow(read.names or [f"p{j}" for j in range(answer.p.shape[1])])
        writer.writerows(answer.p.tolist())
        return text.getvalue()
    rows = rows_of(read, uncertainty_set, answer)
    centred = rows[0][2] is not None
    writer.writerow(["entry", "loss", "center", "p"] if centred else ["entry", "loss", "p"])
    writer.writerows(row if centred else (row[0], row[1], row[3]) for row in rows)
    return text.getvalue()


def show(output: Output, name: str, read: Losses, uncertainty_set: UncertaintySet, answer: WorstCase) -> None:
    """A table of the entries that matter most, and the certificate under it."""
    if answer.p.ndim == 2:
        made = table("row", "value", "upper bound", "gap", "violation", "largest p")
        for b in range(min(len(answer.p), SHOWN)):
            top = int(answer.p[b].argmax())
            label = top if read.names is None else read.names[top]
            made.add_row(
                str(b), number(answer.value[b], 10), number(answer.upper_bound[b], 10),
                number(answer.gap[b], 2), number(answer.violation[b], 2),
                f"{answer.p[b, top]:.4f} at {label}",
            )  # fmt: skip
        output.say(made)
        if len(answer.p) > SHOWN:
            output.say(f"… {len(answer.p) - SHOWN} more rows; --format csv has every p")
        output.say(f"{name}: {certificate_line(answer)}")
        return
    rows = rows_of(read, uncertainty_set, answer)
    centred = rows[0][2] is not None
    most = sorted(sorted(range(len(rows)), key=lambda j: -rows[j][3])[:SHOWN])
    made = table("entry", "loss", *(["centre"] if centred else []), "p")
    for j in most:
        entry, loss, center, p = rows[j]
        made.add_row(str(entry), number(loss), *([number(center, 4)] if centred else []), f"{p:.6f}")
    output.say(made)
    if len(rows) > SHOWN:
        output.say(f"the {SHOWN} of {len(rows)} entries with the largest p; --format csv has all\n")
    output.say(f"worst expected loss   {answer.value:.10g}")
    output.say(f"proved upper bound    {answer.upper_bound:.10g}   (from the dual: {_dual(answer)})")
    output.say(f"gap                   {answer.gap:.2g}")
    output.say(f"violation of the set  {answer.violation:.2g}")
    output.say(f"solved by             {answer.backend}, {answer.iterations} iterations")


def _dual(answer: WorstCase) -> str:
    """The scalar multipliers by name, and how many there are of the others."""
    import numpy as np

    parts = [
        f"{key} = {float(value):.6g}" if np.ndim(value) == 0 else f"{key}: {np.size(value)} numbers"
        for key, value in answer.dual.items()
    ]
    return ", ".join(parts)
