"""`whence top`: running nodes, daemons and systems on one screen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    targets: Annotated[
        list[Path],
        typer.Argument(help="Doors of nodes, sockets of `whence carry`, descriptions of systems (TOML)."),
    ],
    every: Annotated[float, typer.Option(min=0.1, help="Look that often.", metavar="SECONDS")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one look as a table, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one look as JSON, and end.")] = False,
) -> None:
    """Watch nodes: members, links, rates, lag, and what waits for what.

    Arrows choose a node; below stand its links, what waits there, its newest events. q ends, p pauses.
    """
    from whence.servers.watch import look_at

    look = look_at(targets)
    if as_json:
        import json

        typer.echo(json.dumps([{**seen._asdict(), "lag": seen.lag} for seen in look()], ensure_ascii=False))
    elif once:
        _print(look())
    else:
        _screen(look, every)


def _print(seen: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    from whence.servers.watch import COLUMNS, cells, rows

    table = Table(*COLUMNS, box=None)
    for row in rows(seen, [], 0.0):
        table.add_row(*cells(row))
    Console().print(table)


def _screen(look: Any, every_s: float) -> None:
    from whence.cli.screen import Screen

    Screen(look, every_s, time.monotonic).run()
