"""`whence carry`: a daemon that keeps a group's log for the programs of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from whence.cli.console import AsJson

app = typer.Typer(no_args_is_help=True, help="Carry a group's log for the programs of this machine.")

At = Annotated[Path, typer.Option("--socket", "-s", help="The daemon's Unix socket.", metavar="PATH")]
SOCKET = Path("whence-carry.sock")


@app.command()
def run(
    config: Annotated[Path, typer.Option("--config", "-c", help="The node's TOML file.", metavar="FILE")],
    path: At = SOCKET,
    node: Annotated[str | None, typer.Option(help="Be this node, whatever the file says.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the node's trace into this folder.")] = None,
) -> None:
    """Join the group of a configuration file (it needs a `store`), and serve it over a Unix socket.

    The file is that of `whence node`, under protocol log: `keep` and the parameter `max_bytes` are the quota,
    `lifetime` the time after which messages are worthless. SIGINT and SIGTERM leave in order.
    """
    import asyncio
    import logging
    import sys

    from whence.live.config import load_config

    logging.basicConfig(level=logging.WARNING, format="whence: %(message)s", stream=sys.stderr)
    asyncio.run(_run(load_config(config, node), path, trace))


async def _run(config: Any, path: Path, trace: Path | None) -> None:
    import asyncio
    import signal
    import sys

    from whence.cli.node import farewell, joining_of
    from whence.servers.carry import carrier_of, serve_socket

    loop = asyncio.get_running_loop()
    async with joining_of(config, trace) as group:
        carrier = carrier_of(group)

        def ready() -> None:
            print(f"{group.node} carries {group.name!r} at {path}", file=sys.stderr, flush=True)  # noqa: T201 - for people

        serving = loop.create_task(serve_socket(carrier, path, ready))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, serving.cancel)
        await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()
    print(farewell(config), file=sys.stderr, flush=True)  # noqa: T201 - for people


@app.command()
def status(path: At = SOCKET, as_json: AsJson = False) -> None:
    """Show peers, what is kept, what is missing, what is stable, and how far readers are."""
    import asyncio
    import json

    from whence.servers.carry import CarryClient

    async def ask() -> dict[str, Any]:
        async with CarryClient(path) as client:
            return await client.status()

    found = asyncio.run(ask())
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    log = found["log"]
    typer.echo(f"{found['node']} in {found['group']!r}, life {log['life']}")
    typer.echo(f"members   {', '.join(found['members'])}")
    linked = [peer for peer, state in found["links"].items() if state == "connected"]
    typer.echo(f"linked    {', '.join(linked) or 'to no one'}")
    typer.echo(
        f"log       {log['next'] - log['first']} entries, about {log['size_bytes']:,} bytes, "
        f"{log['streams']} streams, {log['missed']} messages missed"
    )
    for each in found["waiting"]:
        typer.echo(f"waiting   {each['id']} for {', '.join(each['missing'])}")
    for stream, number in found["stable"].items():
        typer.echo(f"stable    {stream}:{number}")
    for reader, behind in found["readers"].items():
        typer.echo(f"reader    {reader}, {behind} entries behind")
    if log["error"]:
        typer.echo(f"disk      {log['error']}")


@app.command()
def send(
    text: Annotated[str, typer.Argument(help="The message.")],
    path: At = SOCKET,
    key: Annotated[str | None, typer.Option(help="Send a message of this key once.")] = None,
) -> None:
    """Broadcast one message; prints its id when it is on the daemon's disk."""
    import asyncio

    from whence.servers.carry import CarryClient

    async def ask() -> str:
        async with CarryClient(path) as client:
            return await client.broadcast(text.encode(), key=key)

    typer.echo(asyncio.run(ask()))


@app.command()
def read(
    reader: Annotated[str, typer.Argument(help="The reader's name: it goes on where it was.")],
    path: At = SOCKET,
    count: Annotated[int | None, typer.Option(help="End after that many messages.", metavar="N")] = None,
) -> None:
    """Print messages as JSON lines, and be done with each."""
    import asyncio

    asyncio.run(_read(reader, path, count))


async def _read(reader: str, path: Path, count: int | None) -> None:
    import json

    from whence.servers.carry import Carried, CarryClient

    async with CarryClient(path) as client:
        left = count
        async for told in client.read(reader):
            if isinstance(told, Carried):
                document = {**told._asdict(), "payload": told.payload.decode(errors="replace")}
                typer.echo(json.dumps(document, ensure_ascii=False))
                client.done(told)
                left = None if left is None else left - 1
            else:
                typer.echo(json.dumps({"missed": told}))
            if left == 0:
                await client.status()  # what was said before has been heard
                return
