"""`whence sweep`: simulate a grid of scenarios on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whence.lab.grid import GridPoint

if TYPE_CHECKING:
    from whence.lab.attempts import RunStatus


def command(
    grid: Annotated[
        Path, typer.Argument(help="Grid file: a scenario plus a table \\[grid] (docs/spark.md).")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the traces; what is finished there is kept.")],
    master: Annotated[
        str | None, typer.Option(help="Spark master (spark://..., sc://...); default: this machine.")
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="Few large files in place of a folder for each run.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Simulate every point of a grid, one run per Spark task.

    Stopped or failed half-way? The same command goes on where it was: a finished run is not run again.
    Exit code 1 if a run failed.
    """
    from whence.cli import console
    from whence.lab.grid import load_grid
    from whence.sim.files import run_id
    from whence.trace.dataset import is_url

    if tables or is_url(out):
        _into_tables(grid, out, master, as_json)
        return
    points = load_grid(grid)
    with console.progress("starting Spark"):
        from whence.spark.session import get_session
        from whence.spark.sweep import sweep

        session = get_session(f"whence sweep {grid.name}", master=master)
    with console.progress("simulating", total=len({run_id(point.scenario) for point in points})) as bar:
        scenarios = [point.scenario for point in points]
        statuses = sweep(session, scenarios, out, progress=lambda done, total: bar.update(done, total=total))
    ended = {status.run: status for status in statuses}
    rows = [(point, ended[run_id(point.scenario)]) for point in points]
    if as_json:
        console.print_json({"out": out.resolve(), "runs": [_plain(*row) for row in rows]})
    else:
        _show(rows, statuses, out)
    if any(status.status == "failed" for status in statuses):
        raise typer.Exit(1)


def _into_tables(grid: Path, out: Path, master: str | None, as_json: bool) -> None:
    """Sweep into tables: the driver does nothing for a single run, so it shows none."""
    from whence.cli import console
    from whence.lab.grid import read_grid
    from whence.report.format import plural
    from whence.trace.dataset import url_of

    data = read_grid(grid)
    with console.progress("starting Spark"):
        from whence.spark.datasets import sweep_tables
        from whence.spark.session import get_session

        session = get_session(f"whence sweep {grid.name}", master=master)
    where = url_of(out)
    with console.progress("simulating, tasks", total=0) as bar:
        totals = sweep_tables(
            session, data, where, progress=lambda done, total: bar.update(done, total=total)
        )
    if as_json:
        console.print_json({"out": where, **msgspec_plain(totals)})
    else:
        said = f"{plural(totals.runs, 'run')} in {where} ({plural(totals.events, 'event')}"
        console.out.print(f"{said}, {totals.failed} failed)", markup=False)
    if totals.failed:
        console.err.print(
            f"see them: whence sql \"select run, error from runs where status = 'failed'\" --in {where}",
            markup=False, soft_wrap=True,
        )  # fmt: skip
        raise typer.Exit(1)


def msgspec_plain(struct: Any) -> dict[str, Any]:
    """A struct as a dictionary."""
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(struct)
    return plain


def _plain(point: GridPoint, status: RunStatus) -> dict[str, Any]:
    return {"labels": point.labels, **msgspec_plain(status)}


def _show(rows: Sequence[tuple[GridPoint, RunStatus]], statuses: Sequence[RunStatus], out: Path) -> None:
    from whence.cli import console
    from whence.report.format import plural

    labels = list(rows[0][0].labels) if rows else []
    table = console.table(
        None,
        [*labels, "run", "status", "seconds", "events"],
        [
            [*map(_value, point.labels.values()), status.run, status.status, status.seconds, status.events]
            for point, status in rows
        ],
    )
    console.out.print(table)
    counts = {
        word: sum(status.status == word for status in statuses) for word in ("done", "skipped", "failed")
    }
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    console.out.print(f"{plural(len(statuses), 'run')} in {out} ({said})", markup=False)
    for point, status in rows:
        if status.error:
            reason = status.error.strip().splitlines()[-1]
            where = ", ".join(f"{key}={value}" for key, value in point.labels.items())
            console.err.print(f"failed: run {status.run} ({where}): {reason}", markup=False)
    if counts["failed"]:
        console.err.print(f"Parameters and tracebacks: {out / '_failed'}", markup=False)


def _value(value: Any) -> Any:
    """A label as a cell: plain values as they are, tables and lists as text."""
    return value if isinstance(value, int | float | str) else str(value)
