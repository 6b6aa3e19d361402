"""A daemon that carries a group's log for the programs of one machine, and their side of it.

It joins a group that remembers, with a store, and lets local programs in over a Unix socket that only their
owner can open. One JSON object per line, both ways; a payload is `text`, or `base64` where it is none.

    {"op": "broadcast", "text": "hi", "key": "17"}   {"ok": {"id": "ann/0f3c...:12"}}
    {"op": "read", "reader": "index"}                {"message": {"lsn": 7, "origin": "bob", ...}}, and so on;
                                                     {"missed": {...}} for what cannot be had any more
    {"op": "done", "lsn": 7}                         no answer: the reader is done up to that place
    {"op": "status"}                                 {"ok": {...}}
    {"op": "retire", "name": "bob"}                  {"ok": {}}

A mistake is answered with {"error": ..., "fix": ...}. `broadcast` may have `lifetime_s` (in a group with
lifetimes), `copies` and `timeout_s`. A reader has a name; it begins with all that is retained, and goes on
where it was done, also after a restart of itself or of the daemon. Readers hold nothing back: what the quota
has cut off before a reader came is `missed`, with reason "unread".
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from whence.core.effects import Missed
from whence.errors import MisuseError, PlatformError, RequestError, ServerDownError, WhenceError
from whence.live.book import SqliteBook
from whence.live.group import Group
from whence.live.log import LogMembership
from whence.session.log_host import LogMessage, LogOutcome

BATCH = 256
NAME_MAX = 255
_LINE_SLACK_BYTES = 64 * 1024
_CLIENTS_MAX = 256


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a local program asks for."""

    op: str
    text: str | None = None
    base64: str | None = None
    key: str | None = None
    lifetime_s: float | None = None
    copies: int = 0
    timeout_s: float | None = None
    reader: str = ""
    lsn: int = 0
    name: str = ""


class Carried(NamedTuple):
    """A message as a local program is given it."""

    lsn: int
    origin: str
    life: str
    number: int
    payload: bytes
    mine: bool
    late: bool


_request = msgspec.json.Decoder(Request)


class Carrier:
    """Serves a group to local programs until it is cancelled."""

    def __init__(self, group: Group, member: LogMembership, book: SqliteBook, path: Path) -> None:
        self.group = group
        self.path = path
        self._member = member
        self._book = book
        self._news = asyncio.Event()
        self._clients: set[asyncio.Task[None]] = set()
        self._line_max = group.max_payload_bytes * 4 // 3 + _LINE_SLACK_BYTES

    async def serve(self, ready: Callable[[], None] = lambda: None) -> None:
        """Listen, and carry."""
        server = await asyncio.start_unix_server(self._accept, sock=_listen(self.path), limit=self._line_max)
        ready()
        try:
            async for _ in self.group:  # the daemon itself is done with everything: quotas decide what stays
                self._wake()
        finally:
            server.close()
            for task in list(self._clients):
                task.cancel()
            await asyncio.gather(*self._clients, return_exceptions=True)
            self.path.unlink(missing_ok=True)

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def status(self) -> dict[str, Any]:
        """Peers, what is missing here, what is stable, how much is kept, who reads."""
        stats, group = self.group.stats(), self.group
        assert stats.log is not None
        return {
            "group": group.name,
            "node": group.node,
            "members": list(group.members),
            "links": {peer: link.state for peer, link in stats.links.items()},
            "log": msgspec.to_builtins(stats.log),
            "stable": group.stable(),
            "waiting": [
                {"id": str(each.id), "missing": [str(id_) for id_ in each.missing]}
                for each in group.explain()[:100]
            ],
            "readers": {name: self._book.next - lsn for name, lsn in self._book.readers().items()},
        }

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._clients) >= _CLIENTS_MAX:
            writer.close()
            return
        self._clients.add(task)
        reading: asyncio.Task[None] | None = None
        place = _Place()
        try:
            while line := await reader.readline():
                try:
                    request = _decode(line)
                    if request.op == "read":
                        if reading is not None:
                            raise RequestError("read", "this connection reads already", "Open another one")
                        place.name = _reader_name(request.reader)
                        reading = asyncio.create_task(self._tell(place, writer))
                    elif request.op == "done":
                        self._done(place, request.lsn)
                    else:
                        _write(writer, {"ok": await self._answer(request)})
                except WhenceError as error:
                    _write(writer, {"error": f"{error.what}: {error.reason}", "fix": error.fix})
                await writer.drain()
        except (OSError, ValueError, asyncio.CancelledError):
            pass  # the program is gone, or sent a line that is too long, or the daemon ends
        finally:
            self._clients.discard(task)
            if reading is not None:
                reading.cancel()
            writer.close()

    async def _answer(self, request: Request) -> dict[str, Any]:
        if request.op == "status":
            return self.status()
        if request.op == "retire":
            await self.group.retire(request.name)
            return {}
        if request.op == "broadcast":
            key = None if request.key is None else request.key.encode()
            id_ = await self.group.broadcast(
                _payload(request),
                key=key,
                deadline=request.lifetime_s,
                copies=request.copies,
                timeout=request.timeout_s,
            )
            return {"id": str(id_)}
        raise RequestError(f"op {request.op!r}", "there is none of that name", "See docs/log.md")

    def _done(self, place: _Place, lsn: int) -> None:
        if not place.name or not 0 < lsn < place.told:
            raise RequestError(f"done {lsn}", "this connection was not given it", "Read first")
        if lsn + 1 > self._book.readers().get(place.name, 0):
            self._book.set_reader(place.name, lsn + 1)
            self._member.write_soon()

    async def _tell(self, place: _Place, writer: asyncio.StreamWriter) -> None:
        """Give a reader the log from where it was, and go on as it grows."""
        lsn = self._book.readers().get(place.name, 1)
        with contextlib.suppress(OSError):
            while True:
                news = self._news
                if lsn < self._book.first:
                    _write(
                        writer,
                        {"missed": {"first_lsn": lsn, "last_lsn": self._book.first - 1, "reason": "unread"}},
                    )
                after, found = self._member.entries(lsn, BATCH)
                for at, outcome in found:
                    _write(writer, _told(at, outcome))
                place.told = after
                await writer.drain()
                if after == lsn:
                    await news.wait()
                lsn = after


class _Place:
    """How far one connection has been told."""

    def __init__(self) -> None:
        self.name = ""
        self.told = 0


def _listen(path: Path) -> socket.socket:
    """A socket that only its owner may open; one that no process serves any more is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
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


def _decode(line: bytes) -> Request:
    try:
        return _request.decode(line)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise RequestError("line", str(error), "Write one JSON object per line; see docs/log.md") from None


def _reader_name(name: str) -> str:
    if not 0 < len(name) <= NAME_MAX:
        raise RequestError("reader", f"{name!r} is not 1 to {NAME_MAX} characters", "Give the reader a name")
    return name


def _payload(request: Request) -> bytes:
    if (request.text is None) == (request.base64 is None):
        raise RequestError("broadcast", "it needs `text` or `base64`, and not both", "Give one of the two")
    if request.text is not None:
        return request.text.encode()
    try:
        return base64.b64decode(request.base64 or "", validate=True)
    except ValueError as error:
        raise RequestError("base64", str(error), "Encode the payload") from None


def _told(lsn: int, outcome: LogOutcome) -> dict[str, Any]:
    if isinstance(outcome, LogMessage):
        told = {"lsn": lsn, "origin": outcome.origin, "life": outcome.life, "number": outcome.number}
        told |= {"mine": outcome.mine, "late": outcome.late}
        try:
            told["text"] = outcome.payload.decode()
        except UnicodeDecodeError:
            told["base64"] = base64.b64encode(outcome.payload).decode()
        return {"message": told}
    assert isinstance(outcome, Missed)
    gap = {"lsn": lsn, "origin": outcome.origin, "life": outcome.life, "first": outcome.first}
    return {"missed": {**gap, "last": outcome.last, "reason": outcome.reason}}


def _write(writer: asyncio.StreamWriter, document: dict[str, Any]) -> None:
    writer.write(msgspec.json.encode(document) + b"\n")


def carrier_of(group: Group, path: Path) -> Carrier:
    """The daemon of a group that remembers, with a store."""
    member = group.membership
    book = member.host.book if isinstance(member, LogMembership) else None
    if not isinstance(member, LogMembership) or not isinstance(book, SqliteBook):
        raise MisuseError("carry", "the group has no log on a disk", "Use protocol 'log' and give a `store`")
    return Carrier(group, member, book, path)


class CarryClient:
    """A local program's side: `async with CarryClient(path) as carry`."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._told: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(maxsize=2 * BATCH)
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(str(self._path), limit=1 << 28)
        except OSError as error:
            raise ServerDownError(
                f"socket {self._path}",
                f"no daemon serves it ({error.strerror or error})",
                "Start `whence carry run`",
            ) from error
        self._task = asyncio.create_task(self._listen())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()

    async def broadcast(
        self, payload: bytes, *, key: str | None = None, lifetime_s: float | None = None, copies: int = 0
    ) -> str:
        """As `Group.broadcast`; returns the id as text."""
        document = {"op": "broadcast", "base64": base64.b64encode(payload).decode(), "copies": copies}
        answer = await self._ask({**document, "key": key, "lifetime_s": lifetime_s})
        return str(answer["id"])

    async def status(self) -> dict[str, Any]:
        """As `whence carry status --json`."""
        return await self._ask({"op": "status"})

    async def retire(self, name: str) -> None:
        """As `Group.retire`."""
        await self._ask({"op": "retire", "name": name})

    async def read(self, reader: str) -> AsyncIterator[Carried | dict[str, Any]]:
        """Every message from where this reader was; a dict says what was missed. Say `done` of each."""
        self._send({"op": "read", "reader": reader})
        while (told := await self._told.get()) is not None:
            if "missed" in told:
                yield dict(told["missed"])
            else:
                yield _carried(told["message"])
        raise ServerDownError(f"socket {self._path}", "the daemon has gone", "Start it again, and read on")

    def done(self, message: Carried) -> None:
        """The reader needs this message, and all before it, no more."""
        self._send({"op": "done", "lsn": message.lsn})

    async def _ask(self, document: dict[str, Any]) -> dict[str, Any]:
        async with self._turn:
            self._send(document)
            answer = await self._answers.get()
        if "error" in answer:
            raise RequestError("carry", str(answer["error"]), str(answer["fix"]))
        return dict(answer["ok"])

    def _send(self, document: dict[str, Any]) -> None:
        assert self._writer is not None
        self._writer.write(msgspec.json.encode(document) + b"\n")

    async def _listen(self) -> None:
        assert self._reader is not None
        try:
            while line := await self._reader.readline():
                document = msgspec.json.decode(line)
                if "ok" in document or "error" in document:
                    self._answers.put_nowait(document)
                else:
                    await self._told.put(document)
        except (OSError, ValueError):
            pass
        gone = {"error": f"socket {self._path}: the daemon has gone", "fix": "Start it again"}
        self._answers.put_nowait(gone)
        await self._told.put(None)


def _carried(told: dict[str, Any]) -> Carried:
    payload = told["text"].encode() if "text" in told else base64.b64decode(told["base64"])
    return Carried(
        told["lsn"], told["origin"], told["life"], told["number"], payload, told["mine"], told["late"]
    )
