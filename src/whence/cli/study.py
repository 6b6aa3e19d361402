"""`whence study`: one sub-command for each registered study, imported when it is called."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from whence.cli.console import AsJson
from whence.studies import registry
from whence.studies.base import Cell, StudyResult, Table
from whence.studies.verdicts import Judged

EXIT_DIFFERS = 1
REPORT_FILE = "report.html"


class StudyGroup(TyperGroup):
    """The studies of the registry as sub-commands; the list is cheap, the study itself is not."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for name, text in registry.lines().items():
            self.add_command(TyperCommand(name=name, help=text))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """A study is about to run: import it and make its command."""
        if args and args[0] in registry.lines():
            self.commands[args[0]] = _study_command(args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(cls=StudyGroup, no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def _group() -> None:
    """Run a study: a grid of simulations, its measures, expected numbers, one report page."""


@app.command("list")
def list_studies(
    json: AsJson = False,
) -> None:
    """Show the studies there are, with their scales."""
    from whence.cli import console

    studies = [registry.lookup(name) for name in registry.names()]
    if json:
        keys = ("name", "title", "paper", "summary")
        console.print_json(
            [{key: getattr(one, key) for key in keys} | {"scales": dict(one.scales)} for one in studies]
        )
        return
    rows = [
        [one.name if at == 0 else "", one.title if at == 0 else "", scale, text]
        for one in studies
        for at, (scale, text) in enumerate(one.scales.items())
    ]
    console.out.print(console.table(None, ["study", "what it shows", "scale", "runs"], rows))
    console.out.print("Run one with: whence study NAME [--scale SCALE]")


def _study_command(name: str) -> Any:
    study = registry.lookup(name)
    scales = "; ".join(f"{scale}: {text}" for scale, text in study.scales.items())
    default = next(iter(study.scales))

    # Defaults, not annotations: typer reads annotations as text, outside this function.
    def command(
        scale: str = typer.Option(default, help=f"How much to run. {scales}."),
        out: Path = typer.Option(Path("out") / f"study-{name}", help="Folder for traces and report."),
        master: str | None = typer.Option(
            None, help="Spark master, as spark://host:7077; without it, all cores of this machine."
        ),
        open_page: bool = typer.Option(False, "--open/--no-open", help="Open the report in the browser."),
        json: bool = typer.Option(False, "--json", help="Print one JSON document."),
    ) -> None:
        run(name, scale, out, master, open_page=open_page, json=json)

    made = typer.Typer(add_completion=False, rich_markup_mode="rich")
    made.command(name, help=f"{study.title}.\n\n{study.summary}")(command)
    return typer.main.get_command(made)


def run(name: str, scale: str, out: Path, master: str | None, *, open_page: bool, json: bool) -> None:
    """Run one study from the session to the page; exit 1 if an invariant or a regression does not hold."""
    from whence.cli import console
    from whence.report import html
    from whence.report.views import write_views
    from whence.studies import save
    from whence.studies.environment import version
    from whence.studies.run import TRACES, run_study, session_settings

    study = registry.lookup(name)
    registry.check_scale(study, scale)
    began = time.monotonic()
    with console.progress("start Spark"):
        from whence.spark.session import get_session

        settings = session_settings(study, scale)
        spark = get_session(f"whence study {name}", master=master, conf=settings)
    started_s = time.monotonic() - began
    repeat = ["whence", "study", name, "--scale", scale, "--out", str(out)]
    repeat += ["--master", master] if master else []
    result = run_study(spark, study, scale, out, watch=console.progress, command=shlex.join(repeat))
    result = replace(result, seconds={"start Spark": started_s, **result.seconds})
    with console.progress("report"):
        save.save(result, out)
        date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        views = write_views(result.results.rows, out / TRACES, out, version=version())
        page = html.write(result, out / REPORT_FILE, date=date, links=save.LINKS, views=views).resolve()
    if json:
        console.print_json(
            {"report": page, "seconds_total": time.monotonic() - began} | save.as_document(result)
        )
    else:
        _show(result, page, time.monotonic() - began)
    if open_page:
        typer.launch(page.as_uri())
    if not result.holds:
        raise typer.Exit(EXIT_DIFFERS)


def _text(cell: Cell) -> str:
    """A table's cell on a terminal."""
    from whence.report.format import cell as plain
    from whence.report.format import with_interval
    from whence.studies.results import Estimate

    if not isinstance(cell, Estimate):
        return plain(cell)
    mean, half = with_interval(cell.mean, cell.half)
    return f"{mean} ± {half}" if half else mean


def _numeric(table: Table, at: int) -> bool:
    return not all(isinstance(row[at], str) for row in table.rows)


def _style(one: Judged) -> str:
    from whence.studies.verdicts import Verdict

    if one.failed:
        return "bold red"
    return {Verdict.AGREES: "green", Verdict.NEAR: "green", Verdict.NOT_JUDGED: "dim"}.get(
        one.verdict, "yellow"
    )


def _claim_row(one: Judged) -> list[Any]:
    from rich.text import Text

    from whence.report.format import number, with_interval

    claim = one.claim
    expected = claim.published if claim.is_printed else one.expected
    mean, half = with_interval(one.measured, one.half) if one.measured is not None else (number(None), "")
    return [
        claim.text,
        f"{claim.relation.value} {number(expected)} {claim.unit}".rstrip() if expected is not None else "",
        f"{mean} ± {half}" if half else mean,
        Text(one.verdict.value, style=_style(one)),
    ]


def _show(result: StudyResult, page: Path, seconds: float) -> None:
    from whence.cli import console

    console.out.print()
    if result.headline:
        table = result.headline
        numbers = [column for at, column in enumerate(table.columns) if _numeric(table, at)]
        cells = [[_text(cell) for cell in row] for row in table.rows]
        console.out.print(console.table(table.title, table.columns, cells, right=numbers))
    measured = [one for one in result.judged if one.claim.is_printed and one.measured is not None]
    asked = [one for one in result.judged if one.demanded]
    for title, head, shown in (
        ("Claims of the paper that the runs speak of", "printed", measured),
        ("What is demanded: invariants, limits, regressions", "expected", asked),
    ):
        if shown:
            rows = [_claim_row(one) for one in shown]
            console.out.print(console.table(title, ["claim", head, "measured", "verdict"], rows))
    for finding in result.findings:
        console.out.print(f"• {finding}", markup=False)
    for failure in result.failures:
        labels = ", ".join(f"{name} {value}" for name, value in failure.labels.items())
        reason = failure.error.strip().splitlines()[-1]
        console.err.print(f"failed: {failure.run} ({labels}): {reason}", style="red", markup=False)
    console.out.print()
    console.out.print(f"{len(result.results.rows)} runs in {seconds:.0f} s", markup=False)
    console.out.print(f"Report: {page}", soft_wrap=True, markup=False)
    # The last line says what the page says at its top.
    console.out.print(
        result.tally.text(), style="green" if result.holds else "red", soft_wrap=True, markup=False
    )
