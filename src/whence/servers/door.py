"""A door into a running node: a Unix socket that only its owner can open, one JSON object per line.

    {"op": "status"}                     {"ok": {"group", "node", "protocol", "members", "links", ...}}
    {"op": "retire", "name": "bob"}      {"ok": {}}

`whence node --door PATH` opens one; `whence node status`, `whence node retire` and `whence top` knock. A
mistake is answered with {"error": ..., "fix": ...}. The daemon of `whence carry` has a door, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec

from whence.errors import PlatformError, RequestError, ServerDownError, WhenceError
from whence.live.group import Group

CLIENTS_MAX = 256
WAITING_SHOWN = 100
EVENTS_SHOWN = 20
LINE_MAX = 64 * 1024
ANSWER_MAX = 1 << 26
TIMEOUT_S = 10.0

Say: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]


def status_of(group: Group) -> dict[str, Any]:
    """A node, now: members, links, counters, what waits for what, and the newest events."""
    stats = group.stats()
    return {
        "group": group.name,
        "node": group.node,
        "protocol": group.protocol,
        "members": list(group.members),
        "links": {peer: link.state for peer, link in stats.links.items()},
        "stats": msgspec.to_builtins(stats),
        "log": None if stats.log is None else msgspec.to_builtins(stats.log),
        "waiting": [
            {"id": str(each.id), "missing": [str(id_) for id_ in each.missing]}
            for each in group.explain()[:WAITING_SHOWN]
        ],
        "events": [
            {"time_s": each.time_s, "kind": each.kind, "peer": each.peer, "detail": each.detail}
            for each in group.events()[-EVENTS_SHOWN:]
        ],
    }


class Talk(Protocol):
    """One connection's conversation."""

    async def hear(self, line: bytes | str) -> None:
        """One line came."""

    def close(self) -> None:
        """There will be no more."""


class DoorRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked at a door."""

    op: str
    name: str = ""


_request = msgspec.json.Decoder(DoorRequest)


class Door:
    """What is said at the door of a node."""

    def __init__(self, group: Group, say: Say) -> None:
        self._group = group
        self._say = say

    async def hear(self, line: bytes | str) -> None:
        """Answer one request."""
        try:
            await self._say({"ok": await self._answer(line)})
        except WhenceError as error:
            await self._say({"error": f"{error.what}: {error.reason}", "fix": error.fix})

    async def _answer(self, line: bytes | str) -> dict[str, Any]:
        try:
            request = _request.decode(line)
        except ValueError as error:  # msgspec's errors are ValueErrors
            raise RequestError("line", str(error), "Write one JSON object per line") from None
        if request.op == "status":
            return status_of(self._group)
        if request.op == "retire":
            await self._group.retire(request.name)
            return {}
        raise RequestError(f"op {request.op!r}", "there is none of that name", "Ask for status or retire")

    def close(self) -> None:
        """Nothing is under way between requests."""


@contextlib.asynccontextmanager
async def talking_at(
    path: Path, converse: Callable[[Say], Talk], line_max: int = LINE_MAX
) -> AsyncIterator[None]:
    """Hold a conversation with every program that connects to a Unix socket."""
    talking: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(talking) >= CLIENTS_MAX:
            writer.close()
            return

        async def say(document: dict[str, Any]) -> None:
            writer.write(msgspec.json.encode(document) + b"\n")
            await writer.drain()

        talking.add(task)
        conversation = converse(say)
        try:
            while line := await reader.readline():
                await conversation.hear(line)
        except (OSError, ValueError, asyncio.CancelledError):
            pass  # the program is gone, or sent a line that is too long, or the daemon ends
        finally:
            talking.discard(task)
            conversation.close()
            writer.close()

    server = await asyncio.start_unix_server(accept, sock=_listen(path), limit=line_max)
    try:
        yield
    finally:
        server.close()
        for task in list(talking):
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)
        path.unlink(missing_ok=True)  # noqa: ASYNC240 - it is over: nothing waits for this loop


def _listen(path: Path) -> socket.socket:
    """A socket that only its owner may open; one that no process serves any more is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_socket():  # what is no socket is not ours to replace
        raise PlatformError(f"socket {path}", "there is a file of that name", "Give another path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
        else:
            raise PlatformError(f"socket {path}", "another daemon serves it", "Stop it, or give another path")
    made = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        made.bind(str(path))
    except OSError as error:
        made.close()
        raise PlatformError(
            f"socket {path}", str(error), "Give a shorter path that can be written"
        ) from error
    finally:
        os.umask(before)
    return made


def knock(path: Path, **request: Any) -> dict[str, Any]:
    """Ask at a door and return what it says; blocking."""
    try:
        with socket.socket(socket.AF_UNIX) as knocking:
            knocking.settimeout(TIMEOUT_S)
            knocking.connect(str(path))
            knocking.sendall(msgspec.json.encode(request) + b"\n")
            with knocking.makefile("rb") as lines:
                answer = msgspec.json.decode(lines.readline(ANSWER_MAX))
    except (OSError, ValueError) as error:
        fix = "Start the node with --door PATH, or give the path of its door"
        raise ServerDownError(f"door {path}", f"no node opens it ({error})", fix) from error
    if "error" in answer:
        raise RequestError(f"door {path}", str(answer["error"]), str(answer["fix"]))
    found: dict[str, Any] = answer["ok"]
    return found
