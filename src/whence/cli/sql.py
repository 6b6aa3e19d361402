"""`whence sql`: a question to the tables of a sweep (`whence sweep --tables`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from whence.cli.console import AsJson
from whence.errors import MisuseError, missing_extra

WIDE = 12  # columns that a terminal shows side by side


def command(
    query: Annotated[str, typer.Argument(help='SQL, as "select protocol, count(*) from runs group by 1".')],
    in_: Annotated[Path, typer.Option("--in", help="Folder or URL that the sweep wrote to.")] = Path(),
    save: Annotated[
        str | None,
        typer.Option(help="Write the result: parquet:FILE, delta:FOLDER or iceberg:WAREHOUSE/NAME."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask the tables runs, measures, verdicts, findings, summaries and segments (DuckDB's SQL).

    Only what is committed is read: a killed task leaves nothing that a query would see.
    """
    from whence.cli import console

    if save is not None:
        from whence.trace.lake import save_as

        found = answer_to(query, str(in_)).to_arrow_table()
        save_as(found, save)
        console.out.print(f"{found.num_rows:,} rows saved as {save}", markup=False)
        return
    names, rows = ask(query, str(in_))
    if as_json:
        console.print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif len(names) > WIDE and len(rows) == 1:  # one row of many columns reads better downwards
        pairs = [[name, _cell(value)] for name, value in zip(names, rows[0], strict=True)]
        console.out.print(console.table(None, ["column", "value"], pairs))
    else:
        console.out.print(console.table(None, names, [[_cell(value) for value in row] for row in rows]))


def ask(query: str, root: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns and rows that a query returns."""
    answer = answer_to(query, root)
    return [each[0] for each in answer.description or []], answer.fetchall()


def answer_to(query: str, root: str) -> Any:
    """DuckDB's answer, to be fetched."""
    try:
        import duckdb
    except ImportError as error:
        raise missing_extra("whence sql", "duckdb", "sql") from error
    from whence.trace.dataset import TABLES, Dataset

    dataset = Dataset(root)
    if not dataset.exists:
        raise MisuseError(
            f"--in {root}", "there are no tables", "Give the place that 'whence sweep --tables' wrote to"
        )
    base = duckdb.connect()
    for table in TABLES:
        found = dataset.arrow_dataset(table)
        if found is not None:
            base.register(table, found)
    try:
        return base.execute(query)
    except duckdb.Error as error:
        there = ", ".join(table for table in TABLES if dataset.files(table))
        raise MisuseError("the query", str(error).strip(), f"Tables that are there: {there}") from error


def _cell(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else "" if value is None else str(value)
