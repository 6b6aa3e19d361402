"""`whence gateway`: a node whose group browsers and other programs reach by WebSocket and HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

HTTP = "127.0.0.1:7480"


def command(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The node's TOML file.", metavar="FILE")
    ] = None,
    group: Annotated[str | None, typer.Option(help="The group's name, without a file.")] = None,
    node: Annotated[str | None, typer.Option(help="Be this member.")] = None,
    listen: Annotated[
        str | None, typer.Option(help="Where other nodes reach this one.", metavar="HOST:PORT")
    ] = None,
    contact: Annotated[
        list[str] | None, typer.Option(help="Dial the node there; repeatable.", metavar="HOST:PORT")
    ] = None,
    store: Annotated[Path | None, typer.Option(help="Keep the log in this file.", metavar="FILE")] = None,
    http: Annotated[str, typer.Option(help="Where browsers reach it.", metavar="HOST:PORT")] = HTTP,
    token: Annotated[
        Path | None, typer.Option(help="Let in only who shows the first line of this file.", metavar="FILE")
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Let pages of this origin call, besides its own; repeatable.", metavar="URL"),
    ] = None,
    static: Annotated[Path | None, typer.Option(help="Serve the page in this folder.", metavar="DIR")] = None,
) -> None:
    """Join a group and open it to browsers: a page, WebSocket and HTTP, JSON both ways (docs/gateway.md).

    Without --token it listens on this machine alone. SIGINT (Ctrl-C) and SIGTERM leave the group in order.
    """
    import asyncio
    import logging
    import sys

    from msgspec import structs

    from whence.live.config import load_config
    from whence.servers.webgate import gate_of
    from whence.session.addresses import parse_address

    settings = load_config(config, node, group=group, listen=listen, contact=contact or None)
    if store is not None:
        settings = structs.replace(settings, store=str(store))
    gate = gate_of(parse_address(http, "http"), token, origin, static)
    gate.check()
    logging.basicConfig(level=logging.WARNING, format="whence: %(message)s", stream=sys.stderr)
    asyncio.run(_run(settings, gate))


async def _run(settings: Any, gate: Any) -> None:
    import asyncio
    import signal
    import sys

    from whence.cli.node import farewell, joining_of
    from whence.servers.carry import carrier_of
    from whence.servers.webgate import WebGateway

    loop = asyncio.get_running_loop()
    async with joining_of(settings, None) as joined:
        gateway = WebGateway(carrier_of(joined, on_disk=False), gate)

        def ready() -> None:
            told = f"{joined.node} serves {joined.name!r} at http://{gate.listen}/"
            print(told, file=sys.stderr, flush=True)  # noqa: T201 - for people

        serving = loop.create_task(gateway.serve(ready))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, serving.cancel)
        await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()
    print(farewell(settings), file=sys.stderr, flush=True)  # noqa: T201 - for people
