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
    every: Annotated[float, typer.Option(help="Look that often.", metavar="SECONDS")] = 1.0,
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


COLUMNS = (
    "node",
    "group",
    "protocol",
    "members",
    "links",
    "sent/s",
    "delivered/s",
    "unread",
    "held",
    "lag",
    "state",
)


def cells(row: Any) -> tuple[str, ...]:
    """One node as text, column by column."""
    seen = row.seen
    links = f"{seen.connected}/{len(seen.links)}"
    rates = ["-" if rate is None else f"{rate:,.0f}" for rate in (row.sent_per_s, row.delivered_per_s)]
    numbers = [f"{number:,}" for number in (seen.unread, seen.held, seen.lag)]
    return (seen.name, seen.group, seen.protocol, str(seen.members), links, *rates, *numbers, seen.state)


def _print(seen: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    from whence.servers.watch import rows

    table = Table(*COLUMNS, box=None)
    for row in rows(seen, [], 0.0):
        table.add_row(*cells(row))
    Console().print(table)


def _screen(look: Any, every_s: float) -> None:
    from whence.cli.screen import Screen

    Screen(look, every_s, time.monotonic).run()
