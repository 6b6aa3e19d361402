"""Membership in a group that remembers: no list of members, no queue per peer, nobody blocks anybody.

A link is one connection: the core's session begins and ends with it, and what was in flight then is offered
again in the next one (`protocols/log`). Whom to dial is `session/acquaintances.py`'s decision, who is let in
`session/admission.py`'s; here are the calls, the beacons and the good-byes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import msgspec

from whence.core.group import check_payload
from whence.core.lives import (
    Forked,
    Joined,
    Left,
    OtherLife,
    Retired,
    RolledBack,
    Stream,
    Suspected,
    in_words,
)
from whence.core.message import MessageId, NodeId
from whence.errors import (
    GroupClosedError,
    MisuseError,
    NotAdmittedError,
    NotCopiedError,
    ParameterError,
    StoreError,
)
from whence.live.beacons import Beacons
from whence.live.book import BookWriter, SqliteBook
from whence.live.node import Node
from whence.live.settings import LogSettings, NodeSettings
from whence.live.stats import LogStats
from whence.live.tcp import Connection, TcpTransport
from whence.protocols.log.core import Log
from whence.session.acquaintances import TOLD_MAX, Acquaintance, Acquaintances
from whence.session.addresses import Address, parse_address
from whence.session.links import Link, LinkState
from whence.session.log_host import LogHost, LogMessage, LogOutcome
from whence.session.wire import Known, Packets, known_frame

_ANY_HOST = ("0.0.0.0", "::")  # a node that listens on all its addresses
_LOOK_AGAIN_S = 5.0
_CUT_MAGIC = "whence-cut-1"
_cut_decoder: msgspec.msgpack.Decoder[tuple[str, list[tuple[str, int]]]] = msgspec.msgpack.Decoder(
    tuple[str, list[tuple[str, int]]]
)


class LogMembership:
    """A node that finds others through contacts, and is found by them."""

    def __init__(self, node: Node, book: SqliteBook | None) -> None:
        settings = node.settings
        assert settings.log is not None
        self.node = node
        self.links = node.links
        self._asked: LogSettings = settings.log
        assert isinstance(node.host, LogHost)
        self.host: LogHost = node.host
        self._peering = node.peering
        self._calls = node.peering.admission.calls
        self._waiters = node.waiters
        limits = settings.limits
        self.acquaintances = Acquaintances(
            settings.node, settings.listen, limits.backoff_first_s, limits.backoff_max_s, random.Random()
        )
        self._calling: list[Acquaintance] = []
        self._news = asyncio.Event()  # of whom to dial
        self._near: set[NodeId] = set()  # where someone else says who meets whom
        self._beacons: Beacons | None = None
        if self._asked.discover:
            self._beacons = Beacons(settings.group, settings.node, settings.listen, self._heard)
        self._writer: BookWriter | None = None
        self.write_soon: Callable[[], None] = _nothing  # something has changed that no one waits for
        if book is not None:
            self._writer = BookWriter(book, self.host, self._refused, self._stepped, node.fail)
            self.write_soon = self._writer.wake_later
        self.is_paused = False
        self._copying: list[tuple[int, int, asyncio.Future[None]]] = []
        self._posting: dict[int, list[asyncio.Future[MessageId]]] = {}  # of tickets of the outbox
        self._stable_seen = 0
        self._stable_changed = asyncio.Event()

    @property
    def is_durable(self) -> bool:
        """Whether the log is on a disk."""
        return self._writer is not None

    def trace_parts(self, written: int) -> int:
        """How many of the parts of this node's trace are kept: all, but for what a kill left half done."""
        counted = None if self._writer is None else self._writer.book.trace_parts
        return counted if counted is not None and counted < written <= counted + 2 else written

    @property
    def members(self) -> tuple[NodeId, ...]:
        """The names that this node has heard of and that have not left, itself included, sorted."""
        return tuple(sorted({self.node.settings.node, *self.host.log.people.here}))

    def _refused(self, error: StoreError) -> None:
        self.node.journal.note("store", None, str(error), logging.ERROR)

    # Coming

    async def prepare(self) -> None:
        """Begin where the application wants to; with a store, on the disk as well."""
        if self._beacons is not None:
            await self._beacons.open()
        history = self._asked.history
        if isinstance(history, bytes) and self.host.book.next == 1:
            self.host.command("jump", *cut_names(history))
        if self.host.log.stability is not None:
            self.host.command("resume")  # its time begins to run: a node that meets no one admits itself
        await self.written()
        self._stepped()

    async def enter(self) -> list[Coroutine[Any, Any, None]]:
        """A node is in as soon as it runs: those that it meets will tell it what they have."""
        if self._asked.by_plan:
            return []
        now_s = self._peering.now_s()
        for name, address in self._asked.contacts:
            self.acquaintances.add_contact(name, address, now_s)
        work = [self._keep_dialling()]
        if self._beacons is not None:
            work.append(self._beacons.keep_calling())
        return work

    # Calls

    async def _keep_dialling(self) -> None:
        while True:
            now_s, known = self._peering.now_s(), self.acquaintances
            dialled = sum(link.dials for link in self.links.values())
            for each in known.due(now_s, self.links, self._calling, dialled):
                self.dial(each)
            busy = {*self.links, *(each.name for each in self._calling if each.name)}
            next_s = known.next_s(busy)
            pause_s = _LOOK_AGAIN_S if next_s is None else max(0.01, next_s - now_s)
            self._news.clear()
            try:
                async with asyncio.timeout(min(pause_s, _LOOK_AGAIN_S)):
                    await self._news.wait()
            except TimeoutError:
                pass

    def dial(self, each: Acquaintance) -> None:
        """Call a node once; whether and when again is for its acquaintance to say."""
        settings = self.node.settings
        if settings.keys is None and not settings.plaintext and not each.address.is_loopback:
            # Addresses come from peers: none of them may lead us to speak in the clear beyond this machine.
            detail = f"{each.address} is not on this machine, and there are no keys"
            self._failed(each, detail)
            return
        # A link to ourselves stands for "whichever node listens there".
        link = Link(each.name or settings.node, each.address, dials=True)
        if each.name is not None:
            self._calls[each.name] = link
        self._calling.append(each)
        self.node.spawn(self._call(each, link))

    def meet(self, name: NodeId, address: Address | None) -> None:
        """A plan says that a node is near; with its address it is called, unless it is linked already."""
        self._near.add(name)
        if address is not None and name not in self.links and name not in self._calls:
            self.dial(Acquaintance(name, address, is_contact=False, due_s=0.0))

    def part_from(self, name: NodeId) -> None:
        """A plan says that a node is out of reach: end the link to it."""
        self._near.discard(name)
        self.node.close_link(name, "the plan says so")

    async def _call(self, each: Acquaintance, link: Link) -> None:
        problem = "it does not answer"
        called = each.name
        try:
            async with asyncio.timeout(self.node.limits.connect_timeout_s):
                connection = await cast(TcpTransport, self.node.transport).dial(link)
            await connection.closed
        except OSError as error:  # TimeoutError is one
            problem = error.strerror or str(error) or problem
        finally:
            self._calling.remove(each)
            if called is not None and self._calls.get(called) is link:
                del self._calls[called]
        if not link.connections:  # it never became a link
            self._failed(each, str(link.last_error or problem))
        self._news.set()

    def _failed(self, each: Acquaintance, problem: str) -> None:
        if each.attempts == 0:  # the first of a row, or a node that is away would fill the journal
            name = each.name or str(each.address)
            self.node.journal.note(
                "unreachable", name, f"cannot reach {each.address} ({problem}); trying again"
            )
        self.acquaintances.failed(each, self._peering.now_s())

    def _heard(self, name: NodeId, address: Address) -> None:
        self.acquaintances.heard_of([(name, address)], self._peering.now_s())
        self._news.set()

    def introduced(self, link: Link, known: Known) -> None:
        """The peer has said where it listens, and where those do to which it is linked."""
        if self._asked.by_plan:
            return
        now_s, found = self._peering.now_s(), []
        for name, text in ((link.peer, known.listens), *known.others):
            try:
                found.append((name, parse_address(text, name)))
            except ParameterError:
                continue  # "" of a node that listens nowhere, or nonsense
        if found and found[0][0] == link.peer:
            link.address = found[0][1]
            self.acquaintances.met(link.peer, link.address, None)
        self.acquaintances.heard_of(found, now_s)
        self._news.set()

    def _introduce(self, link: Link) -> None:
        """Say to a new peer where we listen, and where the others do that we are linked to."""
        listen, host = self.node.settings.listen, None
        assert isinstance(link.channel, Connection)
        if listen is not None:
            host = link.channel.local_host() if listen.host in _ANY_HOST else listen.host
        others = [
            (peer, str(each.address))
            for peer, each in self.links.items()
            if each is not link and each.address.port
        ]
        listens = "" if listen is None or host is None else str(Address(host, listen.port))
        link.channel.write(known_frame(Known(listens, others[-TOLD_MAX:])))

    # Links

    def link_up(self, link: Link) -> None:
        """A connection has become a link."""
        self.links[link.peer] = link
        dialled = next((each for each in self._calling if link.dials and each.address == link.address), None)
        self.acquaintances.met(link.peer, link.address if link.dials else None, dialled)
        self._introduce(link)
        self._step(self.host.link_up, link.peer)
        if self._asked.by_plan and link.peer not in self._near:  # a call that came too late
            self.node.close_link(link.peer, "the plan says so")

    def link_gone(self, link: Link) -> None:
        """The connection has ended, whichever side ended it."""
        if self.links.get(link.peer) is not link:
            return
        del self.links[link.peer]
        left, now_s = link.state is LinkState.LEFT, self._peering.now_s()
        self.acquaintances.lost(link.peer, now_s, left=left, dialled=link.dials)
        if not self.node.failed:
            self._step(self.host.link_down, link.peer)
        self._news.set()

    def link_met(self, link: Link) -> None:
        """A link has one session, which ends with it."""

    def link_restarted(self, link: Link, welcomes: bool) -> None:
        """No link outlives its connection."""

    def command(self, verb: str, *names: NodeId) -> None:
        """The core knows lives and links by itself."""

    def begin_life(self, base: int) -> None:
        """Every opening is a stream of its own."""

    def retired(self, name: NodeId, life: int) -> None:
        """Retirements are messages of the log."""

    def new_life(self) -> None:
        """Every opening is a stream of its own."""

    def come_back(self, why: str) -> None:
        """It never was out: it dials again by itself."""

    def slept(self, seconds: float) -> None:
        """A node that slept meets the others again, and is brought level."""

    def missing(self) -> list[Link]:
        """The contacts without a link; none in a group too large for a mesh, where there is one link."""
        if self.links and not self.acquaintances.is_mesh(self.links):
            return []
        return [
            Link(each.name or str(each.address), each.address, dials=True)
            for each in self.acquaintances.missing(self.links)
        ]

    def is_too_slow(self, link: Link) -> bool:
        """No peer is: a slow one costs its cursor."""
        return False

    # Messages

    def receive(self, link: Link, packets: Packets, data_bytes: int) -> None:
        """DATA frames have arrived."""
        assert isinstance(packets, list)
        node = self.node
        if self._peering.parting or node.failed or self.links.get(link.peer) is not link:
            return
        link.incoming.take(len(packets), data_bytes)
        try:
            self.host.receive(link.peer, packets)
        except Exception as error:  # noqa: BLE001 - it must end the group, and not just one connection
            node.fail(error)
        self._stepped()

    def timer(self, key: str) -> None:
        """A timer of the core has expired."""
        self.host.timer(key)
        self._stepped()

    def _step(self, step: Callable[..., None], *given: Any) -> None:
        self.node.try_step(step, *given)
        self._stepped()

    def _stepped(self) -> None:
        """The core has been given something: see what follows for those that wait."""
        host, node = self.host, self.node
        if self._writer is not None:
            if self._writer.book.is_shut:
                self._writer.wake()
        elif host.is_full and not self.is_paused:
            self.is_paused = True
            node.try_step(host.command, "pause")  # a reader is slow, and nothing is on a disk
        if host.news:
            self._tell_news()
        if self._copying:
            self._look_for_copies()
        if host.outbox.posts and host.log.ready and not node.failed:
            self._empty_outbox()
        if host.stable_changes != self._stable_seen:
            self._stable_seen = host.stable_changes
            self._stable_changed.set()
            self._stable_changed = asyncio.Event()
        if self._waiters.arrivals and (host.inbox or host.may_refill):
            self._waiters.wake_readers()
        node.wake()

    def _tell_news(self) -> None:
        for news in self.host.news:
            peer = news.name if isinstance(news, Joined | Left | Suspected | Retired) else None
            level = logging.WARNING if isinstance(news, RolledBack | OtherLife | Forked) else logging.DEBUG
            self.node.journal.note(type(news).__name__.lower(), peer, in_words(news), level)
        self.host.news.clear()
        self.node.changed()

    # What the application asks for

    def broadcast(self, payload: bytes, lifetime_us: int | None, key: bytes | None) -> MessageId:
        """Broadcast now; with a store it has not happened before `written`."""
        if self._writer is not None:
            self._writer.check()
        try:
            id_, _ = self.host.broadcast(payload, lifetime_us, key=key)
        except MisuseError:
            raise  # the caller's mistake, and nothing has happened
        except Exception as error:  # the core has moved, but its effects were not carried out
            self.node.fail(error)
            raise
        self.node.flow.room -= 1
        self._stepped()
        return id_

    @property
    def may_speak(self) -> bool:
        """Whether a member has admitted this node, where that is needed."""
        return self.host.log.ready

    async def post(
        self, payload: bytes, lifetime_us: int | None, key: bytes | None, timeout_s: float | None
    ) -> MessageId:
        """Before this node may speak: leave a message in the outbox, and wait until it is broadcast."""
        if self._writer is not None:
            self._writer.check()
        check_payload(payload)
        ticket = self.host.post(payload, lifetime_us, key)
        future = asyncio.get_running_loop().create_future()
        self._posting.setdefault(ticket, []).append(future)
        self._stepped()
        await self.written()
        try:
            async with asyncio.timeout(timeout_s):
                id_: MessageId = await future
        except TimeoutError:
            raise NotAdmittedError(
                f"broadcast of node {self.node.settings.node!r}",
                f"no member has admitted this node after {timeout_s:g} s",
                "It waits in the outbox, and is sent when one has; a key makes trying again safe",
            ) from None
        await self.written()
        return id_

    def _empty_outbox(self) -> None:
        try:
            became = self.host.empty_outbox()
        except Exception as error:  # noqa: BLE001 - as in `broadcast`
            self.node.fail(error)
            return
        for ticket, id_ in became:
            waiting = [each for each in self._posting.pop(ticket, ()) if not each.done()]
            if id_ is None:
                self.node.journal.note("expired", None, "a message died in the outbox", logging.WARNING)
            for future in waiting:
                if id_ is None:
                    future.set_exception(
                        NotAdmittedError("broadcast", "its deadline came first", "Broadcast it again")
                    )
                else:
                    future.set_result(id_)
        self._stepped()

    async def written(self) -> None:
        """Wait until all that was broadcast is on the disk, if there is one."""
        if self._writer is not None:
            await self._writer.written()

    async def copied(self, number: int, copies: int, timeout_s: float | None) -> None:
        """Wait until that many peers have said that they have a message of this life."""
        entry = (number, copies, asyncio.get_running_loop().create_future())
        self._copying.append(entry)
        self._look_for_copies()
        try:
            async with asyncio.timeout(timeout_s):
                await entry[2]
        except TimeoutError:
            raise NotCopiedError(
                f"message {number} of node {self.node.settings.node!r}",
                f"after {timeout_s:g} s {self.host.log.copies(number)} of {copies} peers have it",
                "It is in the log and goes to all that come; wait longer, or ask for fewer copies",
            ) from None
        finally:
            self._copying = [each for each in self._copying if each is not entry]

    def _look_for_copies(self) -> None:
        for number, copies, future in self._copying:
            if not future.done() and self.host.log.copies(number) >= copies:
                future.set_result(None)

    def done(self, message: LogMessage) -> None:
        """The reader has no need of a message any more."""
        self.host.done(message)
        self.write_soon()

    def relieve(self) -> None:
        """A reader has taken something: peers that had to wait may go on."""
        host = self.host
        if self.is_paused and not host.is_full and 2 * len(host.inbox) <= self.node.limits.unread_messages:
            self.is_paused = False
            self._step(host.command, "resume")

    async def retire(self, name: NodeId) -> None:
        """Let all lives of `name` no longer count for what is stable."""
        if self.host.log.stability is None:
            raise MisuseError(
                f"retire {name!r}",
                "this group counts no members: it has no stability",
                "Join with stability=True",
            )
        self.host.command("retire", name)
        self._stepped()
        await self.written()

    async def stable_cuts(self) -> AsyncIterator[dict[Stream, int]]:
        """The stable cut, whenever it has grown."""
        told: dict[Stream, int] = {}
        while self.node.flow.closed is None:
            changed = self._stable_changed
            cut = self.host.log.stable()
            if cut != told:
                told = cut
                yield dict(cut)
            else:
                await changed.wait()

    def entries(self, lsn: int, limit: int) -> tuple[int, list[tuple[int, LogOutcome]]]:
        """Messages and gaps from an LSN on, with theirs; and the LSN behind the last that was looked at."""
        return self.host.look(lsn, limit)

    def cut(self) -> bytes:
        """What a reader that is done with everything so far has seen: a newcomer's `history`."""
        return cut_bytes(self.host.log)

    def log_stats(self) -> LogStats:
        """The log, and what is on the disk."""
        host, book, writer = self.host, self.host.book, self._writer
        return LogStats(
            life=host.log.life,
            first=book.first,
            next=book.next,
            cursor=book.cursor,
            size_bytes=book.size_bytes,
            streams=len(book.streams()),
            missed=host.missed,
            outbox=len(host.outbox.posts),
            commits=0 if writer is None else writer.book.commits,
            error=None if writer is None or writer.broken is None else str(writer.broken),
        )

    # Going

    async def part(self, deadline_s: float) -> None:
        """Let the peers take what is for them; say good-bye."""
        node, peering = self.node, self._peering
        if self._writer is not None and self._writer.broken is None:
            await self._writer.written()
        await node.until(self._is_given, deadline_s)
        self._step(self.host.leave)
        totals = [(link, link.out.total) for link in self.links.values()]
        await node.until(
            lambda: all(link.out.acknowledged >= total or not link.alive for link, total in totals),
            min(deadline_s, peering.now_s() + 1.0),
        )
        peering.parting = True
        for link in list(self.links.values()):
            peering.say_goodbye(link)
        await node.until(lambda: not self.links, min(deadline_s, peering.now_s() + 1.0))
        self._stable_changed.set()

    def _is_given(self) -> bool:
        """Whether every peer that is connected has what this node broadcast, as far as it takes it."""
        sessions = self.host.log.exchange.of
        return all(
            link.out.acknowledged >= link.out.total
            and (peer not in sessions or not (sessions[peer].cursor or sessions[peer].back))
            for peer, link in self.links.items()
        )

    async def close(self) -> None:
        """The beacon falls silent, the book is closed."""
        self._stable_changed.set()
        for future in [each for futures in self._posting.values() for each in futures if not each.done()]:
            future.set_exception(
                GroupClosedError("group", "it was left before a member admitted this node", "Join again")
            )
        if self._beacons is not None:
            self._beacons.close()
        if self._writer is not None:
            await self._writer.close()


def _nothing() -> None:
    """Nothing is written where there is no store."""


def book_of(path: Path, settings: NodeSettings) -> SqliteBook:
    """The book of a node; one of another node or group is refused."""
    book = SqliteBook(path)
    mine = {"group": settings.group, "node": settings.node, "parameters": settings.parameters()}
    try:
        found = book.meta()
        if not found:
            book.describe(mine)
        for key, value in mine.items():
            if found and found.get(key) != value:
                raise StoreError(
                    f"store {path}",
                    f"it belongs to {key} {found.get(key)!r}, and this node has {value!r}",
                    "Give the store of this very node, or start a new one in another file",
                )
    except BaseException:
        book.close()
        raise
    return book


def cut_bytes(core: Log) -> bytes:
    """What was delivered below the reader's cursor, of every stream."""
    book, names = core.book, core.ledger.names
    counts = list(core.ledger.newest)
    lsn, seen = book.cursor, set()
    while lsn < book.next:
        for entry in book.read(lsn, 256):
            lsn += 1
            if entry[0] not in seen:
                seen.add(entry[0])
                counts[entry[0]] = entry[1] - 1
    return msgspec.msgpack.encode(
        [_CUT_MAGIC, [[stream, count] for stream, count in zip(names, counts, strict=True) if count]]
    )


def cut_names(cut: bytes) -> tuple[str, ...]:
    """A cut as the core's `jump` takes it; `ParameterError` for what no group has made."""
    try:
        magic, pairs = _cut_decoder.decode(cut)
    except ValueError:  # msgspec's errors are ValueErrors
        magic, pairs = "", []
    if magic != _CUT_MAGIC:
        raise ParameterError("history", "these bytes are no cut", "Give what `group.cut()` returned")
    return tuple(f"{stream}:{count}" for stream, count in pairs)
