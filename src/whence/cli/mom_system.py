"""`whence mom up`, `down` and `serve`: a system of servers as processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whence.mom.system import System
    from whence.servers.supervisor import Event
    from whence.servers.up import Running

Description = Annotated[Path, typer.Argument(metavar="SYSTEM.toml", help="The system's description.")]


def up(
    description: Description,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Start this server (can be repeated); default: all.", metavar="NAME"),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when all are up; `whence mom down` stops them.")
    ] = False,
    restart: Annotated[bool, typer.Option(help="Start a server again that dies.")] = True,
) -> None:
    """Start every server of a system as a process of its own, and start again those that die.

    Ctrl-C or SIGTERM stops them in order; they go on from their stores at the next start. A second Ctrl-C
    kills those that have not stopped yet.
    """
    from whence.servers.joining import load_system
    from whence.servers.up import Running

    system = load_system(description, only or None)
    names = sorted(set(only or system.servers))
    running = Running(system, names, restart=restart)  # forks: nothing may have a thread yet
    running.stop_on_signals()
    _follow(system, running, len(names), detach=detach)


def _follow(system: System, running: Running, count: int, *, detach: bool) -> None:
    from whence.cli import console

    events = running.events()
    if not _follow_starting(system, running, events, count):
        return
    servers = "1 server is" if count == 1 else f"{count} servers are"
    if detach:
        running.detach()
        console.out.print(f"{system.name}: {servers} up (process {running.pid})", markup=False)
        return
    console.err.print(f"{system.name}: {servers} up; Ctrl-C stops", markup=False)
    for event in events:
        if event.kind == "stopping":
            _follow_stopping(system, events, count)
        else:
            _say(event)
    _check_end(system, running.wait())


def _follow_starting(system: System, running: Running, events: Iterator[Event], count: int) -> bool:
    """Until all are up; False if that was interrupted. Who cannot start at all is an error."""
    from whence.cli import console

    told: dict[str | None, Event] = {}  # server -> the newest problem
    culprit: str | None = None
    ready: set[str | None] = set()
    with console.progress(f"{system.name}: starting", total=count) as bar:
        for event in events:
            if event.kind == "up":
                return True
            if event.kind == "ready":
                ready.add(event.server)
                bar.update(len(ready))
            elif event.kind == "failed" or (event.kind == "died" and event.server not in told):
                told[event.server] = event
            elif event.kind == "stopping":
                culprit = event.server
        code = running.wait()
        if culprit in told:
            _fail(system, told[culprit])
        _check_end(system, code)
    return False


def _check_end(system: System, code: int) -> None:
    """The exit code of who watches the servers; if it was killed, that is an error."""
    from whence.errors import PlatformError

    if code < 0:
        raise PlatformError(
            f"system {system.name!r}",
            f"the process that watches its servers was ended by signal {-code}; they stop now",
            "Start it again",
        )
    if code:
        raise typer.Exit(code)


def _fail(system: System, problem: Event) -> NoReturn:
    from whence.errors import PlatformError

    if problem.error is not None:
        raise problem.error.error()
    raise PlatformError(
        f"server {problem.server!r}",
        f"it died ({problem.detail})",
        f"See {system.log_of(problem.server or '')}",
    )


def _follow_stopping(system: System, events: Iterator[Event], count: int) -> None:
    from whence.cli import console

    with console.progress(f"{system.name}: stopping", total=count) as bar:
        for event in events:
            if event.kind == "stopped":
                bar.advance()
            elif event.kind == "killed":
                _say(event)


def _say(event: Event) -> None:
    import time

    from whence.cli import console

    if event.kind in ("started", "down"):
        return
    about = event.detail or (str(event.error.error()) if event.error is not None else "")
    words = " ".join(word for word in (event.server or "all servers", event.kind) if word)
    console.err.print(f"{time.strftime('%H:%M:%S')} {words}{': ' if about else ''}{about}", markup=False)


def serve(
    description: Description,
    name: Annotated[str, typer.Argument(help="The server.")],
) -> None:
    """Run one server of a system in this process, until Ctrl-C or SIGTERM."""
    import logging
    import sys

    from whence.servers.child import LOG_FORMAT
    from whence.servers.joining import load_system
    from whence.servers.server import run_server

    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT, stream=sys.stderr)
    run_server(load_system(description, [name]), name)


def down(
    description: Description,
    name: Annotated[str | None, typer.Argument(help="Stop this server only; `up` leaves it down.")] = None,
    timeout: Annotated[
        float, typer.Option(help="Wait so many seconds for the end.", metavar="SECONDS")
    ] = 90.0,
    now: Annotated[bool, typer.Option("--now", help="Kill servers that have not stopped yet.")] = False,
) -> None:
    """Stop a system, in order; it goes on where it was at the next `whence mom up`."""
    from whence.cli import console
    from whence.mom.system import read_system
    from whence.servers.up import stop_server, stop_system

    system = read_system(description)
    if name is not None:
        stop_server(system, system.require(name), timeout)
        console.out.print(f"{system.name}: {name} is down", markup=False)
        return
    stopped = stop_system(system, timeout, at_once=now)
    text = f"{len(stopped)} servers stopped" if stopped else "no server was running"
    console.out.print(f"{system.name}: {text}", markup=False)
