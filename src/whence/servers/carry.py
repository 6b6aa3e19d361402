"""A daemon that carries a group's log for the programs of one machine, and their side of it.

It joins a group that remembers, with a store, and lets local programs in over a Unix socket that only their
owner can open. One JSON object per line, both ways; a payload is `text`, or `base64` where it is none.

    {"op": "broadcast", "text": "hi", "key": "17"}   {"ok": {"id": "ann/0f3c...:12"}}
    {"op": "read", "reader": "index"}                {"message": {"lsn": 7, "id": ..., ...}}, and so on;
                                                     {"missed": {...}} for what cannot be had any more
    {"op": "done", "lsn": 7}                         no answer: the reader is done up to that place
    {"op": "status"}                                 {"ok": {...}}
    {"op": "retire", "name": "bob"}                  {"ok": {}}

A mistake is answered with {"error": ..., "fix": ...}; a `ref` comes back with its answer. `broadcast` may
have `lifetime_s` (in a group with lifetimes), `copies` and `timeout_s`. A reader has a name; it begins with
all that is retained, and goes on where it was done, also after a restart of itself or of the daemon. Or it
has none and says where it is: `{"op": "read", "after": LSN, "epoch": E}`, as {"begin": ...} told it.
Readers hold nothing back: what the quota has cut off before a reader came is `missed`, with reason
"unread".
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from whence.core.effects import Missed
from whence.errors import MisuseError, RequestError, ServerDownError, WhenceError
from whence.live.book import SqliteBook
from whence.live.group import Group
from whence.live.log import LogMembership
from whence.servers.door import status_of, talking_at
from whence.session.log_host import LogMessage, LogOutcome

BATCH = 256
NAME_MAX = 255
_LINE_SLACK_BYTES = 64 * 1024
OPS = frozenset({"broadcast", "read", "done", "status", "retire"})


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
    after: int | None = (
        None  # without a name of its own a reader says where it is, in which opening of the log
    )
    epoch: str = ""
    ref: int = 0  # comes back with the answer


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
    """A group as local programs and browsers see it; `serve` wakes those that read, until it is cancelled."""

    def __init__(self, group: Group, member: LogMembership) -> None:
        self.group = group
        self.line_max = group.max_payload_bytes * 4 // 3 + _LINE_SLACK_BYTES
        self._member = member
        self.book = member.host.book
        self._news = asyncio.Event()

    async def serve(self) -> None:
        """Carry: the daemon itself is done with everything, and quotas decide what stays."""
        async for _ in self.group:
            self._news.set()
            self._news = asyncio.Event()

    @property
    def news(self) -> asyncio.Event:
        """Set when the log has grown."""
        return self._news

    @property
    def epoch(self) -> str:
        """Which opening of the log this is: places in it (`lsn`) of another opening mean nothing here."""
        return self._member.host.log.life

    def status(self) -> dict[str, Any]:
        """What `status_of` says, what is stable, and how far the named readers are."""
        readers = self.book.readers() if isinstance(self.book, SqliteBook) else {}
        behind = {name: self.book.next - lsn for name, lsn in readers.items()}
        return {**status_of(self.group), "stable": self.group.stable(), "readers": behind}

    async def broadcast(self, request: Request) -> dict[str, Any]:
        """What a request asks for; its id when it is on the disk, if there is one."""
        key = None if request.key is None else request.key.encode()
        id_ = await self.group.broadcast(
            _payload(request),
            key=key,
            deadline=request.lifetime_s,
            copies=request.copies,
            timeout=request.timeout_s,
        )
        return {"id": str(id_)}

    def entries(self, lsn: int) -> tuple[int, list[dict[str, Any]]]:
        """Some of the log from a place on, as readers are told it, and the place after them."""
        told: list[dict[str, Any]] = []
        if lsn < self.book.first:
            gap = {"first_lsn": lsn, "last_lsn": self.book.first - 1, "reason": "unread"}
            told.append({"missed": gap})
        after, found = self._member.entries(lsn, BATCH)
        told += [_told(at, outcome) for at, outcome in found]
        return after, told

    def reader(self, name: str) -> int:
        """The place at which a named reader goes on."""
        return self._store(name).readers().get(name, 1)

    def done(self, name: str, lsn: int) -> None:
        """A named reader needs nothing up to a place any more, also after restarts."""
        store = self._store(name)
        if lsn + 1 > store.readers().get(name, 0):
            store.set_reader(name, lsn + 1)
            self._member.write_soon()

    def _store(self, name: str) -> SqliteBook:
        if not isinstance(self.book, SqliteBook):
            raise RequestError(
                f"reader {name!r}", "this node has no store to remember it", "Read with `after`"
            )
        return self.book


class Conversation:
    """One program and the daemon: requests in, documents out, whatever carries them."""

    def __init__(
        self, carrier: Carrier, say: Callable[[dict[str, Any]], Awaitable[None]], ops: frozenset[str] = OPS
    ) -> None:
        self._carrier = carrier
        self._say = say
        self._ops = ops
        self._reading: asyncio.Task[None] | None = None
        self._name = ""  # of the reader
        self._told = 0  # the place after what it was given

    async def hear(self, line: bytes | str) -> None:
        """Do what one request asks for; a mistake is answered."""
        ref = 0
        try:
            request = _decode(line)
            ref = request.ref
            await self._hear(request)
        except WhenceError as error:
            await self._say({"error": f"{error.what}: {error.reason}", "fix": error.fix, "ref": ref})

    def close(self) -> None:
        """The program is gone."""
        if self._reading is not None:
            self._reading.cancel()

    async def _hear(self, request: Request) -> None:
        carrier, op = self._carrier, request.op
        if op not in self._ops:
            raise RequestError(f"op {op!r}", "there is none of that name here", "See docs/log-live.md")
        if op == "read":
            self._read(request)
        elif op == "done":
            if not self._name or not 0 < request.lsn < self._told:
                raise RequestError(f"done {request.lsn}", "this connection was not given it", "Read first")
            carrier.done(self._name, request.lsn)
        elif op == "status":
            await self._say({"ok": carrier.status(), "ref": request.ref})
        elif op == "retire":
            await carrier.group.retire(request.name)
            await self._say({"ok": {}, "ref": request.ref})
        else:
            await self._say({"ok": await carrier.broadcast(request), "ref": request.ref})

    def _read(self, request: Request) -> None:
        if self._reading is not None:
            raise RequestError("read", "this connection reads already", "Open another one")
        if request.reader or request.after is None:
            self._name = _reader_name(request.reader)
            lsn = self._carrier.reader(self._name)
        else:
            lsn = request.after + 1 if request.epoch == self._carrier.epoch else 1
        self._reading = asyncio.create_task(self._tell(lsn))

    async def _tell(self, lsn: int) -> None:
        """Give a reader the log from where it was, and go on as it grows."""
        with contextlib.suppress(OSError):
            if not self._name:
                await self._say({"begin": {"epoch": self._carrier.epoch, "lsn": lsn}})
            while True:
                news = self._carrier.news
                after, told = self._carrier.entries(lsn)
                self._told = after
                for document in told:
                    await self._say(document)
                if after == lsn:
                    await news.wait()
                lsn = after


async def serve_socket(carrier: Carrier, path: Path, ready: Callable[[], None] = lambda: None) -> None:
    """Serve a group to local programs over a Unix socket, until it is cancelled."""
    async with talking_at(path, partial(Conversation, carrier), carrier.line_max):
        ready()
        await carrier.serve()


def _decode(line: bytes | str) -> Request:
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
        told = {"lsn": lsn, "id": str(outcome.id), "origin": outcome.origin, "life": outcome.life}
        told |= {"number": outcome.number, "mine": outcome.mine, "late": outcome.late}
        try:
            told["text"] = outcome.payload.decode()
        except UnicodeDecodeError:
            told["base64"] = base64.b64encode(outcome.payload).decode()
        return {"message": told}
    assert isinstance(outcome, Missed)
    gap = {"lsn": lsn, "origin": outcome.origin, "life": outcome.life, "first": outcome.first}
    return {"missed": {**gap, "last": outcome.last, "reason": outcome.reason}}


def carrier_of(group: Group, *, on_disk: bool = True) -> Carrier:
    """What serves a group that remembers; `on_disk` demands a store."""
    member = group.membership
    if not isinstance(member, LogMembership) or (on_disk and not isinstance(member.host.book, SqliteBook)):
        raise MisuseError("carry", "the group has no log on a disk", "Use protocol 'log' and give a `store`")
    return Carrier(group, member)


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
