"""`whence tour`: the first command to run. Five systems in their own environments, and one page."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from whence.cli.console import AsJson

EXIT_FAILS = 1
PAGE_FILE = "tour.html"


def command(
    out: Annotated[Path, typer.Option(help="Folder for traces and the page.")] = Path("out") / "tour",
    master: Annotated[
        str | None,
        typer.Option(help="Spark master, as spark://host:7077; without it, all cores of this machine."),
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show the five systems of the papers: simulate on Spark, verify, measure, set beside the paper.

    Ends with one line for each system and the path of the page; exit 1 if an invariant does not hold.
    """
    from whence.cli import console
    from whence.report import tour as report
    from whence.studies import save
    from whence.studies.run import BRIEF_SETTINGS, run_study
    from whence.studies.tour import page
    from whence.studies.tour.grid import TOUR

    began = time.monotonic()
    with console.progress("start Spark"):
        from whence.spark.session import get_session

        spark = get_session("whence tour", master=master, conf=dict(BRIEF_SETTINGS))
    started_s = time.monotonic() - began
    result = run_study(spark, TOUR, "tour", out, watch=console.progress, command="whence tour")
    result = replace(result, seconds={"start Spark": started_s, **result.seconds})
    with console.progress("page"):
        save.save(result, out)
        date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        written = report.write(result, out / PAGE_FILE, date=date).resolve()
    lines = [chapter.line for chapter in page.chapters(result.results)]
    if json:
        document = {"page": written, "holds": result.holds, "lines": lines}
        console.print_json(document | {"seconds_total": time.monotonic() - began})
    else:
        for failure in result.failures:
            reason = failure.error.strip().splitlines()[-1]
            console.err.print(f"failed: {failure.run}: {reason}", style="red", markup=False)
        console.out.print()
        for line in lines:
            console.out.print(line, soft_wrap=True, markup=False, highlight=False)
        console.out.print(f"Page: {written}", soft_wrap=True, markup=False)
    if open_page:
        typer.launch(written.as_uri())
    if not result.holds:
        raise typer.Exit(EXIT_FAILS)
