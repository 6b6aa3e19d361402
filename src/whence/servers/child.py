"""A server in a process that was forked by the supervisor."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from typing import NoReturn

import msgspec

from whence.core.message import NodeId
from whence.errors import WhenceError
from whence.servers.requests import Refused
from whence.servers.server import Server
from whence.servers.system import System

LOG_MAX_BYTES = 10_000_000  # of a log; it is then kept as .log.1 once
PART_MAX = 500  # of an error: a line on the pipe must stay below PIPE_BUF (4096), to arrive in one piece
LOG_FORMAT = "%(asctime)s %(message)s"


def run_child(system: System, server: NodeId, *, restarts: int, states_fd: int, leash_fd: int) -> NoReturn:
    """Be the server until it stops; whatever happens, this process ends here."""
    code = 70
    try:
        _redirect(system, server)
        logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT, stream=sys.stderr, force=True)
        code = _serve(system, server, restarts, states_fd, leash_fd)
    except BaseException:  # noqa: BLE001 - the last frame of this process: it must not run on as its parent
        traceback.print_exc()
    finally:
        try:
            sys.stderr.flush()
            sys.stdout.flush()
        finally:
            os._exit(code)


def _serve(system: System, server: NodeId, restarts: int, states_fd: int, leash_fd: int) -> int:
    import asyncio

    async def main() -> None:
        made = Server(system, server, restarts=restarts)
        # Nobody ever writes to the leash: it becomes readable when the supervisor is gone.
        asyncio.get_running_loop().add_reader(leash_fd, _let_go, made, leash_fd)
        await made.run(ready=lambda: _say(states_fd, server, "ready"))

    try:
        asyncio.run(main())
    except WhenceError as error:
        logging.getLogger("whence.servers").error("%s: %s", server, error)
        _say(states_fd, server, "failed", error)
        return 2
    return 0


def _let_go(server: Server, leash_fd: int) -> None:
    import asyncio

    asyncio.get_running_loop().remove_reader(leash_fd)
    server.stop()


def _say(states_fd: int, server: NodeId, kind: str, error: WhenceError | None = None) -> None:
    line: dict[str, object] = {"kind": kind, "server": server, "pid": os.getpid()}
    if error is not None:
        parts = [part[:PART_MAX] for part in (error.what, error.reason, error.fix)]
        line["error"] = Refused(type=type(error).__name__, what=parts[0], reason=parts[1], fix=parts[2])
    os.write(states_fd, msgspec.json.encode(line) + b"\n")


def _redirect(system: System, server: NodeId) -> None:
    """Standard output and error into the server's log; nothing to read."""
    path = system.log_of(server)
    if path.exists() and path.stat().st_size > LOG_MAX_BYTES:
        path.replace(path.with_suffix(".log.1"))
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, place in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(fd, place)
    os.close(nothing)
    os.close(log)
