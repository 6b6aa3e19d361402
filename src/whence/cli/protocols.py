"""`whence protocols`: the registry, for people and for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer


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
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the protocols: environment, promises, parameters."""
    from whence.cli import console

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
