"""`whence node`: one live node from a configuration file; lines in, deliveries out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from whence.core.effects import Missed
from whence.core.group import LIFE_BITS
from whence.core.lives import News
from whence.core.message import Expired, Message
from whence.live.config import NodeConfig, load_config
from whence.live.group import Group
from whence.live.join import Joining
from whence.session.log_host import LogMessage

if TYPE_CHECKING:
    import asyncio


READ_BYTES = 65536
Outcome: TypeAlias = Message | Expired | Missed | News


app = typer.Typer(invoke_without_command=True, no_args_is_help=True)
At = Annotated[Path, typer.Option("--door", "-d", help="The door of the node.", metavar="PATH")]


@app.callback()
def run(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The node's TOML file.", metavar="FILE")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="The group's name; without a file, all that `log` needs.")
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="Be this member, whatever the file says: one file for all.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="Listen here, whatever the file says.", metavar="HOST:PORT")
    ] = None,
    contact: Annotated[
        list[str] | None,
        typer.Option(
            help="Dial the process there, whatever the file says (log, prc); log takes several.",
            metavar="HOST:PORT",
        ),
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the node's trace into this folder.")] = None,
    transport: Annotated[
        str | None, typer.Option(help="tcp or udp, whatever the file says.", metavar="NAME")
    ] = None,
    loss: Annotated[
        float | None,
        typer.Option(help="Lose this share of the datagrams sent, on purpose (udp).", metavar="SHARE"),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(
            help="Each line is worthless after so many seconds (protocols with lifetimes).", metavar="SECONDS"
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(help="The folder of this node's keys, whatever the file says.", metavar="DIR"),
    ] = None,
    until_eof: Annotated[
        bool,
        typer.Option("--until-eof", help="Leave when standard input ends (a terminal's end always does)."),
    ] = False,
    door: Annotated[
        Path | None,
        typer.Option(help="Let `whence top` and `whence node status|retire` in here.", metavar="PATH"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per delivery or expiry.")
    ] = False,
) -> None:
    """Run a live node: each line of standard input is broadcast, each delivery is printed.

    With --json a message that came or waited too long (--deadline) is printed as well, as expired.

    SIGINT (Ctrl-C) and SIGTERM leave the group in order: what was sent is acknowledged first, the others
    are told, the trace is closed. When standard input ends the node stays and goes on printing, so that
    it can run as a service; on a terminal, or with --until-eof, it leaves.
    """
    if context.invoked_subcommand is not None:
        return
    import asyncio
    import logging
    import sys

    settings = load_config(config, node, group=group, listen=listen, contact=_dialled(contact))
    settings = _overruled(settings, transport, keys, loss, deadline)
    logging.basicConfig(level=logging.WARNING, format="whence: %(message)s", stream=sys.stderr)
    ends = until_eof or sys.stdin is None or sys.stdin.isatty()
    asyncio.run(_run(settings, trace, deadline, ends, as_json, door))


def _dialled(contact: list[str] | None) -> str | list[str] | None:
    """One address, several, or none: what `contact` of a configuration may be."""
    return contact[0] if contact and len(contact) == 1 else contact or None


def _overruled(
    config: NodeConfig, transport: str | None, keys: Path | None, loss: float | None, deadline: float | None
) -> NodeConfig:
    """The configuration with what the command line says instead; a bad deadline is refused."""
    from msgspec.structs import replace

    from whence.live.arguments import lifetime_us
    from whence.live.linkfaults import LinkFaults

    if transport is not None:
        config = replace(config, transport=transport)
    if keys is not None:
        config = replace(config, keys=str(keys), plaintext=False)
    if loss is not None:
        config = replace(config, faults=replace(config.faults or LinkFaults(), loss=loss))
    if deadline is not None:
        lifetime_us("--deadline", deadline)
    return config


@app.command()
def status(
    door: At, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False
) -> None:
    """Show a running node: members, links, what waits for what."""
    import json

    from whence.servers.door import knock

    found = knock(door, op="status")
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    stats = found["stats"]
    typer.echo(f"{found['node']} in {found['group']!r}, protocol {found['protocol']}")
    typer.echo(f"members   {', '.join(found['members'])}")
    for peer, state in found["links"].items():
        typer.echo(f"link      {peer}: {state}")
    counted = f"{stats['broadcasts']} broadcast, {stats['deliveries']} delivered"
    typer.echo(f"messages  {counted}, {stats['unread_messages']} unread")
    for each in found["waiting"]:
        typer.echo(f"waiting   {each['id']} for {', '.join(each['missing'])}")


@app.command()
def retire(
    name: Annotated[str, typer.Argument(help="The member that is dead, or whose disk is lost.")], door: At
) -> None:
    """Take a member out of the group of a running node, for all (docs/guarantees.md)."""
    from whence.servers.door import knock

    knock(door, op="retire", name=name)
    typer.echo(f"{name} is retired; if it comes back it is another life")


def joining_of(config: NodeConfig, trace: Path | None) -> Joining:
    """What `whence.join` returns for a configuration."""
    from whence.live.join import join

    joining: Joining = join(
        config.group,
        node=config.node,
        peers=config.peers or None,
        contact=config.contact,
        listen=config.listen,
        protocol=config.protocol,
        trace=trace,
        limits=config.limits,
        transport=config.transport,
        faults=config.faults,
        lifetime=config.lifetime,
        store=config.store,
        keys=config.keys,
        plaintext=config.plaintext,
        shuffle_s=config.shuffle_s,
        discover=config.discover,
        history=config.history,
        keep=config.keep,
        stability=config.stability,
        **config.params,
    )
    return joining


async def _run(
    config: NodeConfig,
    trace: Path | None,
    deadline_s: float | None,
    ends_with_input: bool,
    as_json: bool,
    door: Path | None,
) -> None:
    import asyncio
    import contextlib
    import signal
    import sys
    from functools import partial

    from whence.live.watched import flush_while_watched
    from whence.servers.door import Door, talking_at

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with joining_of(config, trace) as group, contextlib.AsyncExitStack() as stack:
        if door is not None:
            await stack.enter_async_context(talking_at(door, partial(Door, group)))
        print(f"{group.node} takes part in {group.name!r}", file=sys.stderr, flush=True)  # noqa: T201 - for people
        printing = loop.create_task(_print(group, as_json))
        reading = loop.create_task(_read_lines(group, deadline_s))
        stopping = loop.create_task(stop.wait())
        flushing = None if trace is None else loop.create_task(flush_while_watched(group, trace))
        waiting: set[asyncio.Task[Any]] = {printing, stopping, reading}
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if stopping in done or printing in done or (reading in done and ends_with_input):
                break
        if flushing is not None:
            flushing.cancel()
        await group.leave()
        await printing  # what was delivered is printed, and a failure of the node is shown
        for task in (reading, stopping):
            task.cancel()
    if stop.is_set():
        print(farewell(config), file=sys.stderr, flush=True)  # noqa: T201 - for people


def farewell(config: NodeConfig) -> str:
    """What a node says that was told to stop."""
    kept = f"its log is in {config.store}" if config.store else "nothing is kept without a store"
    return f"{config.node} has left {config.group!r}; {kept}, and the same command joins again"


async def _print(group: Group, as_json: bool) -> None:
    import sys

    out = sys.stdout
    async for outcome in group.outcomes():
        if as_json:
            out.write(_as_json(outcome))
        elif isinstance(outcome, Message):
            out.write(_as_line(outcome))
        if not group.unread:  # one system call for a whole batch
            out.flush()


def _as_line(message: Message) -> str:
    id_ = f"{message.origin}:{message.number}"
    if message.number >> LIFE_BITS:  # of a later life
        from whence.cli.console import friendly

        id_ = friendly(id_)
    return f"{id_} {message.payload.decode(errors='replace')}\n"


def _as_json(outcome: Outcome) -> str:
    import base64
    import json

    if not isinstance(outcome, Message | Expired):  # a gap, or news of nodes and lives
        kind = type(outcome).__name__.lower()
        return json.dumps({kind: outcome._asdict()}, ensure_ascii=False) + "\n"
    document: dict[str, object] = {"origin": outcome.origin, "number": outcome.number}
    if isinstance(outcome, Expired):
        document["expired"] = outcome.reason
        return json.dumps(document) + "\n"
    if isinstance(outcome, LogMessage):
        document |= {"life": outcome.life, "mine": outcome.mine, "late": outcome.late}
    try:
        document["text"] = outcome.payload.decode()
    except UnicodeDecodeError:
        document["base64"] = base64.b64encode(outcome.payload).decode()
    return json.dumps(document, ensure_ascii=False) + "\n"


async def _read_lines(group: Group, deadline_s: float | None) -> None:
    """Broadcast every line of standard input, until it ends.

    A thread reads, because a file or a terminal cannot be polled as a socket can. It is a daemon and
    reads the descriptor itself: a thread that is stuck in Python's own stdin would keep us from exiting.
    """
    import asyncio
    import threading

    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    thread = threading.Thread(target=_feed, args=(group, deadline_s, loop, done), daemon=True, name="stdin")
    thread.start()
    await done


def _feed(
    group: Group, deadline_s: float | None, loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]
) -> None:
    import asyncio
    import os

    from whence.errors import GroupClosedError, MisuseError
    from whence.session.journal import log

    def broadcast(line: bytes) -> None:
        try:  # waiting for the result is the back-pressure
            asyncio.run_coroutine_threadsafe(group.broadcast(line, deadline=deadline_s), loop).result()
        except GroupClosedError:
            raise
        except MisuseError as error:  # too long, or no deadline for this protocol
            log.warning("a line was not sent: %s", error)

    rest = b""
    try:
        while data := os.read(0, READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                broadcast(line)
        if rest:
            broadcast(rest)
    except OSError as error:
        log.warning("standard input cannot be read (%s)", error)
    except (GroupClosedError, asyncio.CancelledError):
        return
    finally:
        _tell(loop, done)


def _tell(loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
    import contextlib

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile, and nothing waits
        loop.call_soon_threadsafe(finish)
