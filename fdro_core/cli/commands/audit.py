"""`fdro audit`: how far the world may move before a model fails, from a table of its losses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdro_core.cli.command import command
from fdro_core.cli.output import AsJson, Output, Quiet
from fdro_core.cli.written import set_names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fdro_core.cli.reading import Table
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.audit.audit import Audit
    from uncertainty_sets.audit.comparing import Comparison
    from uncertainty_sets.audit.report import Report

USUAL = ("loss", "losses", "error", "errors", "wrong")
"""Columns that are losses without being asked for."""

WORDS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}


@command(
    "Sets and worst cases",
    "fdro audit losses.csv --by region --threshold 0.12",
    "fdro audit evals.jsonl --column correct --higher-is-better --by category --threshold 0.2 --html a.html",
    "fdro audit both.csv --column old --column new --by region --threshold 0.12",
    place=25,
)
def audit(  # noqa: PLR0913, PLR0917 - typer makes an option of each
    file: Annotated[
        str,
        typer.Argument(
            help="CSV or JSON lines, a row for each case that the model was not trained on; - for stdin."
        ),
    ],
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column", "-c", help="The loss, larger is worse: an error as 1 or true. Several compare models."
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", "-b", help="A column of groups, whose mix may shift. Several overlap."),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", "-t", help="The mean loss that counts as failure.")
    ] = None,
    radius: Annotated[
        float | None, typer.Option(help="Also the worst case within this radius; there is no default.")
    ] = None,
    kind: Annotated[
        str, typer.Option("--set", "-s", help="In which shifts are measured.", autocompletion=set_names)
    ] = "kl",
    covariates: Annotated[
        str | None, typer.Option(help="Columns that may tell where the model is bad: age,weight.")
    ] = None,
    clusters: Annotated[
        str | None, typer.Option(help="A column whose rows depend on each other: patient, user, day.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="A column of sample weights.")] = None,
    bounds: Annotated[
        str, typer.Option(help="The least and largest loss that are possible; none: unknown.")
    ] = "0,1",
    higher_is_better: Annotated[
        bool,
        typer.Option(
            "--higher-is-better", help="The column is a score: the loss is the upper bound minus it."
        ),
    ] = False,
    confidence: Annotated[float, typer.Option(help="Of each statement about the population.")] = 0.95,
    html: Annotated[Path | None, typer.Option(help="Also write the report as one HTML file.")] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Ask how far the world may move before a model's mean loss reaches a threshold.

    Every number says what it rests on: proved in this sample, proved for the population, asymptotic, or a
    description. A shift is also said in words: as if a group went from 4.5 to 11.4 % of the cases.
    """
    from fdro_core.cli.reading import read_table
    from fdro_core.errors import InvalidSetting
    from uncertainty_sets.audit import Audit
    from uncertainty_sets.audit.comparing import compare

    table = read_table(file)
    limits = _bounds(bounds)
    names = column or [_usual(table)]
    losses = {name: _losses(table, name, limits, higher_is_better) for name in names}
    groups = _groups(table, by or [])
    chosen = [each.strip() for each in (covariates or "").split(",") if each.strip()]
    options: dict[str, Any] = {"bounds": limits, "confidence": confidence}
    if clusters is not None:
        options["clusters"] = table.labels(clusters)
    made = Audit(
        losses[names[0]],
        groups=groups,
        covariates={name: _covariate(table, name) for name in chosen} or None,
        sample_weight=None if weights is None else table.numbers(weights),
        **options,
    )
    output = Output(quiet=quiet, as_json=as_json)
    if threshold is None:
        raise InvalidSetting(
            f"--threshold is needed, the mean loss that counts as failure; now it is {made.mean:.4g}"
        )
    report = made.report(threshold, kind=kind, radius=radius)
    comparison = None
    if len(losses) > 1:
        if weights is not None:
            raise InvalidSetting("several columns are compared without --weights")
        comparison = compare(losses, kind, groups=groups, **options)
    used = {*names, *(by or []), *chosen, weights, clusters}
    asked = [] if clusters is not None else _dependent(table, used)
    asked += [] if by else _groupable(table, used)
    report.notes.extend(asked)
    output.data(_as_data(made, report, comparison))
    output.only_quiet(f"{report.failure.radius!r}")
    output.say(str(report))
    if comparison is not None:
        output.say(f"\n{comparison}")
    for line in asked:
        output.warn(line)
    if html is not None:
        _write(
            html, Path(file).stem if file != "-" else "losses", report, comparison, " ".join(names), output
        )


def _write(
    path: Path, name: str, report: Report, comparison: Comparison | None, columns: str, output: Output
) -> None:
    from fdro_core.cli.report.audited import page
    from fdro_core.errors import InvalidSetting
    from fdro_core.files import naming_full_disk

    title = f"{name}: audit of {columns.partition(' ')[0] if comparison is not None else columns}"
    try:
        with naming_full_disk(path):
            path.write_text(page(title, report, comparison), encoding="utf-8")
    except OSError as error:
        raise InvalidSetting(f"{path} cannot be written: {error.strerror}") from error
    output.say(f"\nwritten: {path}")


def _usual(table: Table) -> str:
    from fdro_core.errors import InvalidSetting

    found = next((name for name in USUAL if name in table.names()), None)
    if found is None:
        raise InvalidSetting(
            f"--column is needed, the column with the losses: {table.origin} has {', '.join(table.names())}"
        )
    return found


def _bounds(text: str) -> tuple[float, float] | None:
    from fdro_core.cli.reading import read_value
    from fdro_core.errors import InvalidSetting

    if text.strip().lower() == "none":
        return None
    found = read_value(text, origin="--bounds")
    if not isinstance(found, list) or len(found) != 2 or any(isinstance(each, list) for each in found):
        raise InvalidSetting(f"--bounds must be two numbers such as 0,1, or none, got {text!r}")
    return float(found[0]), float(found[1])


def _losses(table: Table, name: str, bounds: tuple[float, float] | None, higher_is_better: bool) -> Array:
    import numpy as np

    from fdro_core.errors import InvalidSetting

    cells = [cell.lower() for cell in table.text(name)]
    if set(cells) <= set(WORDS):
        values = np.array([WORDS[cell] for cell in cells])
    else:
        values = table.finite(name, "; a loss must be a number, or true and false")
    if not higher_is_better:
        return values
    if bounds is None:
        raise InvalidSetting("--higher-is-better needs --bounds: the loss is the upper bound minus the score")
    return np.asarray(bounds[0] + bounds[1] - values)


def _groups(table: Table, by: list[str]) -> NDArray[Any] | dict[str, NDArray[Any]] | None:
    import numpy as np

    columns = {name: np.array(table.text(name)) for name in by}
    columns = {name: np.where(cells == "", "(empty)", cells) for name, cells in columns.items()}
    if len(columns) == 1:
        return columns[by[0]]
    found = {
        f"{name} = {label}": cells == label
        for name, cells in columns.items()
        for label in np.unique(cells).tolist()
    }
    return found or None


def _covariate(table: Table, name: str) -> NDArray[Any]:
    import numpy as np

    return table.finite(name) if table.is_numeric(name) else np.array(table.text(name), dtype=object)


def _dependent(table: Table, used: set[str | None]) -> list[str]:
    """Questions about columns whose labels come back: their rows may depend on each other."""
    found = []
    n = len(table.rows)
    for name in table.names():
        if name in used:
            continue
        cells = table.text(name)
        kinds = len(set(cells))
        if n / 20 < kinds < 0.9 * n and not any("." in cell for cell in cells):
            found.append(
                f"Column {name!r} has {kinds:,} values in {n:,} rows: if rows of one value depend on each "
                f"other, add --clusters {name}."
            )
    return found


def _groupable(table: Table, used: set[str | None]) -> list[str]:
    """A hint if no groups are named and some column could be them."""
    found = []
    for name in table.names():
        kinds = set(table.text(name)) if name not in used else set()
        if 2 <= len(kinds) <= min(30, len(table.rows) / 50) and not any("." in cell for cell in kinds):
            found.append(name)
    return [f"Columns that could be groups: {', '.join(found)}; for one of them add --by."] if found else []


def _as_data(made: Audit, report: Report, comparison: Comparison | None) -> dict[str, Any]:
    """The numbers, for `--json`."""
    failure = report.failure
    content: dict[str, Any] = {
        "rows": made.n,
        "mean": made.mean,
        "mean_at_most": made.mean_at_most(),
        "threshold": report.threshold,
        "set": failure.kind,
        "confidence": made.confidence,
        "radius": failure.radius,
        "radius_certified": failure.certified,
        "radius_at_least": failure.at_least,
        "radius_interval": failure.interval,
        "shares": [each._asdict() for each in failure.shares],
        "statements": [
            {"about": title, "text": each.text, "holds": str(each.holds)}
            for title, statements in [("headline", report.headline), *report.sections]
            for each in statements
        ],
        "groups": [row._asdict() for row in report.groups],
        "curve": {
            "radii": report.curve.radii, "values": report.curve.values, "at_most": report.curve.at_most,
        },
        "notes": report.notes,
    }  # fmt: skip
    if comparison is not None:
        content["models"] = {
            "radii": comparison.radii,
            "curves": comparison.curves,
            "statements": [{"text": each.text, "holds": str(each.holds)} for each in comparison.statements()],
        }
    return content
