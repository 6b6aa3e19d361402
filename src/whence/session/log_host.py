"""The host of a core that keeps a log: what its readers are given, and what waits until it is on the disk.

Readers are given the log itself, from its cursor on. What is delivered goes into a queue in memory as long as
that is short; a reader that is behind is served from the log, in small batches, so that neither a newcomer's
history nor a slow reader costs memory.

With a book on disk (a `Gate`) a step of the core happens at once, but whatever it asks for waits, with the
rows of its trace, until the entries that it wrote are on the disk (`release`): frames, acknowledgements,
deliveries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import count, repeat
from operator import itemgetter
from typing import Any, Protocol, TypeAlias, cast

from whence.core.effects import (
    Deliver,
    Discard,
    Effect,
    Effects,
    Internal,
    Logged,
    Missed,
    Send,
    Stable,
    Tell,
)
from whence.core.lives import News, Stream, split_stream
from whence.core.message import Message, MessageId, NodeId, Packet
from whence.errors import MisuseError
from whence.protocols.log.book import Book
from whence.protocols.log.core import Log
from whence.protocols.log.stability import LIVES_MAX
from whence.protocols.log.wire import APP
from whence.session.host import Host, HostOwner, Timers
from whence.session.links import Link
from whence.session.outbox import Outbox, Post, tag_of
from whence.trace.schema import Recorder
from whence.trace.writer import TraceWriter

READ_ENTRIES = 256  # of the log at a time
_LONG_BYTES = 16 * 1024  # of a frame: a full window of shorter ones is small
_NEWS_FACTOR = 2  # news wait beside messages, up to that many times as many

_make = tuple.__new__
_NUMBER, _PAYLOAD = itemgetter(1), itemgetter(4)  # of an entry


class LogMessage(Message):
    """A message of a group that remembers: `origin` is a name, `life` which of its lives spoke.

    `mine` says that it is this node's own, of any of its lives; `late` that it is concurrent with something
    that was called stable here.
    """

    __slots__ = ()

    @property
    def life(self) -> str:
        """16 hexadecimal digits."""
        return str(cast(tuple[Any, ...], self)[3])

    @property
    def mine(self) -> bool:
        """Whether this node broadcast it, in any of its lives."""
        return bool(cast(tuple[Any, ...], self)[4])

    @property
    def late(self) -> bool:
        """Whether it is concurrent with something that was called stable here before it came."""
        return bool(cast(tuple[Any, ...], self)[5])

    @property
    def lsn(self) -> int:
        """Its place in this node's log."""
        return int(cast(tuple[Any, ...], self)[6])

    @property
    def id(self) -> MessageId:
        """Name and life of its origin, and its number."""
        return MessageId(f"{self[0]}/{self.life}", self[1])

    def __repr__(self) -> str:
        flags = ("mine",) * self.mine + ("late",) * self.late
        rest = "".join(f", {flag}=True" for flag in flags)
        return f"LogMessage({self[0]!r}, {self[1]}, {self[2]!r}, life={self.life!r}{rest})"


LogOutcome: TypeAlias = LogMessage | Missed | News


class Gate(Protocol):
    """What a host needs of a book on disk."""

    @property
    def is_shut(self) -> bool:
        """Whether something that was logged is not on the disk."""

    @property
    def written(self) -> int:
        """The first LSN that is not on the disk."""

    @property
    def opening(self) -> str:
        """Which life this is, and whether the one before was killed: the detail of a RESTART row."""

    @property
    def outbox(self) -> Outbox:
        """What waits until this node may speak."""

    def mark_late(self, lsn: int) -> None:
        """The entry was delivered with the flag, which a reader must see again after a restart."""

    def is_late(self, lsn: int) -> bool:
        """Whether the entry was delivered with the flag."""


class LogHost(Host):
    """One core that keeps a log, with its readers."""

    def __init__(
        self,
        core: Log,
        links: Mapping[NodeId, Link],
        timers: Timers,
        owner: HostOwner,
        now_us: Callable[[], int],
        max_frame_bytes: int,
        unread_messages: int,
        unread_bytes: int,
        queue_bytes: int,
        gate: Gate | None = None,
    ) -> None:
        super().__init__(core, links, timers, owner, now_us, max_frame_bytes)
        self.log: Log = core
        self.book: Book = core.book
        self._done = core.book.done
        self.hand: set[int] = set()  # LSNs of what readers were given and are not done with; with a disk
        self.missed = 0  # messages that this node has passed over
        self.stable_changes = 0  # how often the stable cut has grown
        self._others = 0  # gaps and news in the inbox
        self.news: list[News] = []  # for the journal; the node takes them out
        self._gate = gate
        self.outbox = Outbox() if gate is None else gate.outbox
        self._steps: deque[Effects] = deque()  # what waits for the disk
        self._trace: TraceWriter | None = None
        self._late: set[int] = (
            set()
        )  # without a disk: LSNs of flagged messages that are to be read from the log
        self._unread_messages = unread_messages
        self._unread_bytes = unread_bytes
        self._queue_bytes = queue_bytes
        self._streams: dict[Stream, tuple[NodeId, str, bool]] = {}
        # LSN from which readers go on in the log, because the queue was too long; 0: all is in the queue
        self._behind = self.book.cursor if self.book.cursor < self.book.next else 0

    # Inputs

    def broadcast(
        self,
        payload: bytes,
        lifetime_us: int | None = None,
        now_us: int | None = None,
        key: bytes | None = None,
    ) -> tuple[MessageId, int]:
        """As `Host.broadcast`; one that is tried again with a key is the one that it was."""
        core = self.log
        if now_us is None:
            now_us = self._now_us()
        if key is not None:
            known = core.id_of(key)
            if known is not None:
                return known, 0
            effects = core.broadcast_once(key, payload, now_us, lifetime_us)
        elif lifetime_us is None:
            effects = core.broadcast(payload, now_us)
        else:
            effects = core.broadcast_within(payload, lifetime_us, now_us)
        if self._rows.any:
            self._rows.broadcast(None, len(payload), now_us)
            self._rows.effects(effects, now_us)
        self.broadcasts += 1
        return MessageId(core.origin, core.last), self._carry_out(effects)

    # rule 001 R17: until a member has admitted it, a life's broadcasts wait in a durable outbox
    def post(self, payload: bytes, lifetime_us: int | None, key: bytes | None) -> int:
        """Keep a message until this node may speak; returns its ticket."""
        until_us = None if lifetime_us is None else self._now_us() + lifetime_us
        return self.outbox.add(Post(key, until_us, payload))

    def empty_outbox(self) -> list[tuple[int, MessageId | None]]:
        """Broadcast all that waits, in order; returns what each ticket became, None if its time was over."""
        became: list[tuple[int, MessageId | None]] = []
        sending: list[tuple[int, Post]] = []
        for ticket in list(self.outbox.posts):
            post = self.outbox.drop(ticket)
            if post.until_us is not None and post.until_us <= self._now_us():
                became.append((ticket, None))
            elif (known := self._sent_before(ticket, post.key)) is not None:
                became.append((ticket, known))
            else:
                sending.append((ticket, post))
        for at in range(0, len(sending), LIVES_MAX):
            together = sending[at : at + LIVES_MAX]
            if self._gate is not None:  # another copy of the store may have them too
                self.command("sent", *(tag_of(ticket) for ticket, _ in together))
            for ticket, (key, until_us, payload) in together:
                now_us = self._now_us()
                left_us = None if until_us is None else max(1, until_us - now_us)
                became.append((ticket, self.broadcast(payload, left_us, now_us, key)[0]))
        return became

    # rule 001 R24: what another copy of the store has sent is not sent again
    def _sent_before(self, ticket: int, key: bytes | None) -> MessageId | None:
        """The message that a post has become, under its key or in another copy of this store."""
        log = self.log
        known = None if key is None else log.id_of(key)
        if known is not None or log.stability is None:
            return known
        found = log.stability.sent.get(tag_of(ticket))
        if found is None:
            return None
        if key is not None:
            self.book.add_key(key, *found)
        return MessageId(log.ledger.names[found[0]], found[1])

    def receive(self, peer: NodeId, packets: list[Packet], now_us: int | None = None) -> None:
        """Packets have arrived over the link from `peer`, in this order."""
        if now_us is None:
            now_us = self._now_us()
        if self._rows.any:
            self._receive_recorded(peer, packets, now_us)
            return
        self._carry_out(self.log.receive_together(peer, packets, now_us))

    def link_down(self, peer: NodeId, now_us: int | None = None) -> None:
        """As `Host.link_down`; what waits for the disk and was for the peer is void, as its session is."""
        for effects in self._steps:
            for at, effect in enumerate(effects):
                if type(effect) is Send and peer in effect.to:
                    effects[at] = Send(tuple(each for each in effect.to if each != peer), effect.packet)
        super().link_down(peer, now_us)

    def record(self, recorder: Recorder | None) -> None:
        """Write the trace from now on."""
        super().record(recorder)
        if isinstance(recorder, TraceWriter) and self._gate is not None:
            self._trace = recorder
            if recorder.parts:  # the trace goes on with another life
                self._rows.restarted(self._now_us(), self._gate.opening)

    # The disk

    def waiting_for_disk(self) -> int:
        """How many steps wait: what the next batch puts on the disk releases them."""
        return len(self._steps)

    def flush_rows(self) -> int | None:
        """Put the rows of all steps so far on the disk; returns how many parts the trace has, if any.

        The book counts on them: a process that dies before the steps themselves are on the disk is opened
        without these rows, and one that dies later has them all.
        """
        if self._trace is None:
            return None
        self._trace.flush()
        return self._trace.parts

    def release(self, steps: int) -> None:
        """The oldest of what waits is on the disk: it happens now."""
        for _ in range(steps):
            self._perform(self._steps.popleft())

    # Effects

    def _carry_out(self, effects: Effects) -> int:
        gate = self._gate
        if gate is None:
            return self._perform(effects)
        if self.log.stability is not None:
            for effect in effects:
                if type(effect) is Deliver and effect.late:
                    gate.mark_late(effect.lsn)
        if self._steps or gate.is_shut:
            self._steps.append(effects)
            return 0
        return self._perform(effects)

    def _perform(self, effects: Effects) -> int:
        frame_bytes = delivered = 0
        inbox, streams, unread_bytes = self.inbox, self._streams, self.unread_bytes
        room = self._unread_messages
        for effect in effects:
            if type(effect) is Deliver:
                delivered += 1
                (stream, number, payload), lsn, late = effect
                if self._behind:
                    if late:
                        self._late.add(lsn)
                    continue
                if len(inbox) >= room or unread_bytes >= self._unread_bytes:
                    self._behind = lsn
                    if late:
                        self._late.add(lsn)
                    continue
                name, life, mine = streams.get(stream) or self._know(stream)
                unread_bytes += len(payload)
                inbox.append(_make(LogMessage, (name, number, payload, life, mine, late, lsn)))
            elif type(effect) is Logged:
                delivered += len(effect[2])
                unread_bytes += self._queue_run(effect, unread_bytes)
            elif type(effect) is Send:
                frame_bytes += self._send(effect)
            elif type(effect) is Discard:
                self.discards[effect.reason] += 1
            else:
                self.unread_bytes = unread_bytes
                self._carry_out_rare(effect)
                unread_bytes = self.unread_bytes
        self.unread_bytes = unread_bytes
        self.deliveries += delivered
        return frame_bytes

    def _queue_run(self, run: Logged, unread_bytes: int) -> int:
        """Put a run of messages into the queue, as far as there is room; returns the bytes of those."""
        stream, lsn, entries, payload_bytes = run
        if self._behind:
            return 0
        room = self._unread_messages - len(self.inbox)
        if len(entries) > room or unread_bytes + payload_bytes > self._unread_bytes:
            fitting = 0
            for entry in entries[: max(room, 0)]:
                if unread_bytes >= self._unread_bytes:
                    break
                unread_bytes += len(entry[4])
                fitting += 1
            if fitting < len(entries):
                self._behind = lsn + fitting
                entries = entries[:fitting]
            payload_bytes = sum(map(len, map(_PAYLOAD, entries)))
        name, life, mine = self._streams.get(stream) or self._know(stream)
        parts = (repeat(name), map(_NUMBER, entries), map(_PAYLOAD, entries), repeat(life), repeat(mine))
        self.inbox += map(_make, repeat(LogMessage), zip(*parts, repeat(False), count(lsn)))
        return payload_bytes

    def _send(self, effect: Send) -> int:
        """As `Host._send`. Credits count messages: a peer that lets long ones pile up is cut off."""
        frame_bytes = super()._send(effect)
        if frame_bytes >= _LONG_BYTES:
            for peer in effect.to:
                link = self._links.get(peer)
                if link is not None and link.out.unacknowledged_bytes() > self._queue_bytes:
                    self._owner.close_link(peer, f"more than {self._queue_bytes} bytes wait for it")
        return frame_bytes

    def _carry_out_rare(self, effect: Effect) -> None:
        if isinstance(effect, Missed):
            self.missed += effect.last - effect.first + 1
            if not effect.lsn:  # it was in the log, and has been cut off unread
                self._forget_unread()
                self.inbox.appendleft(effect)
                self._others += 1
            elif not self._behind:
                self.inbox.append(effect)
                self._others += 1
        elif isinstance(effect, Tell):
            if len(self.inbox) < _NEWS_FACTOR * self._unread_messages:
                self.inbox.append(effect.news)
                self._others += 1
            self.news.append(effect.news)
        elif isinstance(effect, Stable):
            self.stable_changes += 1
        elif not isinstance(effect, Internal):
            super()._carry_out_rare(effect)

    def _forget_unread(self) -> None:
        """What waits in memory is no longer in the log: the application is told that it has missed it."""
        cursor = self.book.cursor
        kept = [each for each in self.inbox if not isinstance(each, LogMessage) or each.lsn >= cursor]
        self.inbox.clear()
        self.inbox.extend(kept)
        self.unread_bytes = sum(len(each.payload) for each in kept if isinstance(each, LogMessage))

    def _know(self, stream: Stream) -> tuple[NodeId, str, bool]:
        name, life = split_stream(stream)
        known = self._streams[stream] = (name, life, name == self.log.me)
        return known

    # Readers

    @property
    def unread(self) -> int:
        """Messages that no reader was given; of those that are only in the log, about."""
        waiting = len(self.inbox) - self._others
        return waiting + (self.book.next - self._behind if self._behind else 0)

    @property
    def is_full(self) -> bool:
        """Whether readers are so far behind that peers must wait, where nothing is on a disk."""
        return self._behind > 0

    @property
    def may_refill(self) -> bool:
        """Whether a reader would find something in the log."""
        gate = self._gate
        return 0 < self._behind < (self.book.next if gate is None else gate.written)

    def refill(self) -> None:
        """Go on in the log, for readers that have emptied the queue."""
        book, inbox = self.book, self.inbox
        while self._behind and not inbox:
            lsn, found = self.look(self._behind, READ_ENTRIES)
            for at, outcome in found:
                if at >= book.cursor and not book.is_done(at):
                    inbox.append(outcome)
                    if type(outcome) is LogMessage:
                        self.unread_bytes += len(outcome[2])
                    else:
                        self._others += 1
            if self._late:
                self._late = {at for at in self._late if at >= lsn}
            if lsn == self._behind:  # the rest is not on the disk yet
                return
            self._behind = 0 if lsn == book.next else lsn

    def look(self, lsn: int, limit: int) -> tuple[int, list[tuple[int, LogOutcome]]]:
        """Messages and gaps from an LSN on, each with its own; and the LSN behind the last entry looked at.

        What was cut off is passed over, and what is not on the disk yet is not shown.
        """
        book, gate, names, payload_of = self.book, self._gate, self.log.ledger.names, self.log.payload_of
        lsn = max(lsn, book.first)
        end = book.next if gate is None else gate.written
        is_late = self._late.__contains__ if gate is None else gate.is_late
        found: list[tuple[int, LogOutcome]] = []
        for entry in book.read(lsn, min(limit, max(0, end - lsn))):
            stream = names[entry[0]]
            if len(entry) == 4:
                found.append((lsn, Missed(stream, entry[1], entry[2], entry[3], lsn)))
            elif entry[5] == APP:
                name, life, mine = self._streams.get(stream) or self._know(stream)
                fields = (name, entry[1], payload_of(entry), life, mine, is_late(lsn), lsn)
                found.append((lsn, _make(LogMessage, fields)))
            lsn += 1
        return lsn, found

    def hand_out(self) -> LogOutcome:
        """The next outcome; of a message that is on a disk the reader has yet to say that it is done."""
        outcome: Any = self.inbox.popleft()
        if type(outcome) is LogMessage:
            self.unread_bytes -= len(outcome[2])
            if self._gate is None:
                self._done(outcome[6])  # type: ignore[misc]
            else:
                self.hand.add(outcome[6])  # type: ignore[misc]
            return outcome
        self._others -= 1
        if isinstance(outcome, Missed):
            self._done(outcome.lsn)
        return cast(LogOutcome, outcome)

    def done(self, message: LogMessage) -> None:
        """A reader has no need of a message any more."""
        self._leaves_hand(message)
        self._done(message.lsn)

    def put_back(self, message: LogMessage) -> None:
        """A reader returns a message: it is the next that one is given."""
        self._leaves_hand(message)
        self.inbox.appendleft(message)
        self.unread_bytes += len(message.payload)

    def _leaves_hand(self, message: LogMessage) -> None:
        if self._gate is None:
            return  # it was done when it was given, and nobody counts
        if message.lsn not in self.hand:
            raise MisuseError(
                f"message {message.id}",
                "no reader has it",
                "Name a message that was received and is not done",
            )
        self.hand.remove(message.lsn)
