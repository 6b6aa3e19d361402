"""`whence replay`: run a recorded trace through the protocol again and compare every effect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whence.cli.options import AsJson

_SHOWN = 10


def command(
    trace: Annotated[Path, typer.Argument(help="The trace folder, recorded at level 'all'.")],
    run: Annotated[str | None, typer.Option(help="Replay this run only.")] = None,
    as_json: AsJson = False,
) -> None:
    """Replay a simulated or live trace; exit 0 if every effect is identical, 1 if not."""
    from whence.cli import console
    from whence.sim.replay import replay
    from whence.trace.reader import open_trace

    opened = open_trace(trace)
    reports = [replay(opened, each) for each in (opened.runs if run is None else [run])]
    if as_json:
        console.print_json(reports)
    else:
        columns = ["run", "protocol", "nodes", "inputs", "effects", "differences", "unexplained", "verdict"]
        rows = [
            (
                report.run,
                report.protocol,
                len(report.nodes),
                report.inputs,
                report.effects,
                report.mismatch_count,
                report.unexplained_count,
                "identical" if report.ok else "DIFFERS",
            )
            for report in reports
        ]
        console.out.print(console.table("Replay", columns, rows))
        for report in reports:
            for each in report.mismatches[:_SHOWN]:
                where = f"{report.run} {each.node} event {each.seq}"
                console.out.print(
                    f"{where}: recorded {each.expected or 'nothing'}; replayed {each.got or 'nothing'}"
                )
            for outside in report.unexplained[:_SHOWN]:
                where = f"{report.run} {outside.node} event {outside.seq}"
                console.out.print(f"{where}: from outside of the trace: {outside.event}")
    if not all(report.ok for report in reports):
        raise typer.Exit(1)
