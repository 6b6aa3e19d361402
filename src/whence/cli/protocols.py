"""`whence protocols`: the registry, for people and for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from whence.cli.console import AsJson


def describe() -> list[dict[str, Any]]:
    """Every registered protocol as plain data."""
    from whence.protocols import registry

    return [
        {
            "name": info.name,
            "summary": info.summary,
            "environment": info.environment,
            "promises": asdict(info.promises),
            "parameters": info.parameters,
        }
        for info in map(registry.lookup, registry.names())
    ]


def command(
    json: AsJson = False,
    choose: Annotated[
        tuple[int, float, float] | None,
        typer.Option(
            help="Compare what vector, barrier and prc hold: processes, broadcasts per second of them all, "
            "delay of a link.",
            metavar="PROCESSES RATE SECONDS",
        ),
    ] = None,
) -> None:
    """List the protocols: environment, promises, parameters."""
    from whence import plugins
    from whence.cli import console

    if choose is not None:
        _choose(*choose, as_json=json)
        return
    known = describe()
    if json:
        console.print_json(known)
        return
    rows = [
        [
            one["name"],
            one["summary"],
            one["environment"],
            ", ".join(name.replace("_", " ") for name, kept in one["promises"].items() if kept) or "none",
            ", ".join(f"{name} = {value!r}" for name, value in one["parameters"].items()) or "none",
        ]
        for one in known
    ]
    columns = ["protocol", "what it is", "environment", "promises", "parameters"]
    console.out.print(console.table(None, columns, rows))
    for problem in plugins.problems():
        console.err.print(f"not listed: {problem}", style="red", markup=False)


def _choose(processes: int, rate: float, delay_s: float, *, as_json: bool) -> None:
    from whence.cli import console
    from whence.protocols.prc import choice

    found = choice.choose(choice.Workload(processes, rate, delay_s))
    if as_json:
        console.print_json(found._asdict())
        return
    rows = [(name, f"{entries:,.1f}") for name, entries in found.entries.items()]
    console.out.print(console.table(None, ["protocol", "entries of control information per process"], rows))
    console.out.print(
        f"{found.best} holds least; prc does up to {found.even_broadcasts_per_s:,.3g} broadcasts per second"
    )
