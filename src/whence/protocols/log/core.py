"""Log: causal broadcast in a group that nobody lists and that remembers (paper 001's layer, made live).

Guarantee     every node delivers each message at most once, after everything that happened before its
              broadcast and is still alive, or after it has told that it passes over it. Nothing is passed
              over silently: what a node accounts for without delivering it is `Missed`, with first, last and
              reason. Whatever any connected node keeps, every node connected to it gets.
Assumptions   links are reliable and FIFO while they are up; a link that comes again is a new session. Every
              open of a node is a new life. With lifetimes clocks differ by `skew_us` at most. Peers follow
              the protocol, but for what can be refused (docs/log.md, limits).
Source        our own, on "Causal and Δ-causal broadcast in opportunistic networks" (001): its
              store-carry-forward and its barriers. Rules R1 to R27 are those of docs/log.md.

    book.py, ledger.py        the log (R6), D and F          exchange.py, session.py   R11, R12, R15; limits
    plain.py, timed.py        the order, barriers (R9)       repair.py                 R10, R13, R14
    retention.py, people.py   R2, R21, R22; R3, R26          stability.py              R16 to R20
    delivery.py               R7                             chain.py                  R5

Groups without lifetimes take the fast path: the next number of its stream, every entry of its barrier
settled, logged and delivered. With `lifetimes` the order is that of `SafeOrder`, over the same log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, cast

from whence.core.effects import (
    CancelTimer,
    CloseLink,
    Deliver,
    Discard,
    Effects,
    Reason,
    Send,
    SetTimer,
    Tell,
)
from whence.core.group import NUMBER_MAX, check_payload, check_peer
from whence.core.lives import Forked, check_life, check_name, life_of, split_stream, stream_of
from whence.core.message import Message, MessageId, NodeId, Packet, Sizes, Waiting
from whence.core.parameters import Parameters, anything, choice, flag, whole
from whence.core.protocol import LEAVE, Protocol, State
from whence.errors import MisuseError
from whence.protocols.barrier.order import LIFETIME_MAX_US, check_lifetime
from whence.protocols.log.book import Book, MemoryBook
from whence.protocols.log.chain import LINK_BYTES, Chain
from whence.protocols.log.delivery import Delivery
from whence.protocols.log.drawn import DrawnExchange
from whence.protocols.log.exchange import Exchange
from whence.protocols.log.ledger import Ledger
from whence.protocols.log.people import People
from whence.protocols.log.plain import PlainOrder
from whence.protocols.log.repair import Repair
from whence.protocols.log.retention import PARAMETERS as RETENTION
from whence.protocols.log.retention import Memory, Retention
from whence.protocols.log.session import GREETING, SYNCED, PeerSession
from whence.protocols.log.stability import Stability
from whence.protocols.log.timed import TimedOrder
from whence.protocols.log.wire import (
    APP,
    ASK,
    BYE,
    CONTROL,
    DATA,
    FLOOR,
    GONE,
    HAVE,
    HELLO,
    PART,
    WHOLE,
    Item,
    LogPacket,
    packet_sizes,
    told,
)

TICK = "tick"  # news for peers, what is behind, acknowledgements: `tick_us` after the first reason for it
SLOT = "slot"  # with `exchange="random"`: when the next message may go to some peer
WAKE = "wake"  # with lifetimes: the first death that changes something
GO_ON = "go on"  # a long walk through the log
CORK = "cork"  # own messages have waited `cork_us` for company
_new = tuple.__new__
STEPS = 16  # how often a step without lifetimes and members looks at what is kept

# docs/log.md says what each is for.
PARAMETERS = Parameters(
    flag("lifetimes", default=False),
    whole("lifetime_us", None, 1, LIFETIME_MAX_US, optional=True),
    whole("skew_us", 0, 0, LIFETIME_MAX_US),
    choice("history", "all", ("all", "new")),
    *RETENTION,
    flag("stability", default=False),
    flag("chain", default=False),  # a hash chain through each life: forks show
    flag("reads", default=False),  # the host says `done`; else what is delivered is read
    choice("exchange", "log", ("log", "random")),
    whole("gap_us", 125_000, 1, LIFETIME_MAX_US),
    whole("setup_max_us", 10_000_000, 0, LIFETIME_MAX_US),
    whole("seed", 1, 0, LIFETIME_MAX_US),
    whole("window", 256, 1, 1 << 20),
    whole("cork_us", 0, 0, LIFETIME_MAX_US),  # own messages wait this long for company; 0: they do not
    whole("held_max", 10_000, 1, 1 << 30),
    whole("streams_max", 200_000, 1, 1 << 30),
    whole("streams_per_minute", 100_000, 1, 1 << 30),  # new ones that one peer may name
    whole("lives_per_hour", 1_000, 1, 1 << 30),  # new ones in which one name may call
    whole("wants_per_minute", 6_000, 1, 1 << 30),  # packets with which one peer may pull
    whole("tick_us", 100_000, 1, LIFETIME_MAX_US),
    whole("pull_us", 300_000, 1, LIFETIME_MAX_US),
    whole("jump_us", 1_500_000, 1, LIFETIME_MAX_US),
    whole("ack_us", 500_000, 1, LIFETIME_MAX_US),
    whole("alone_us", 5_000_000, 1, LIFETIME_MAX_US),
    whole("suspect_us", 10_000_000, 1, LIFETIME_MAX_US),
    anything("life", None, "16 hexadecimal digits"),
)


class Log(Protocol):
    """One node's log, and its sessions."""

    name: ClassVar[str] = "log"
    packet_type: ClassVar[type[Packet]] = LogPacket
    sessions: ClassVar[bool] = True
    parameters: ClassVar[Parameters] = PARAMETERS

    def __init__(
        self,
        me: NodeId,
        members: Iterable[NodeId],  # not used: no node knows the group
        *,
        book: Book | None = None,
        **given: Any,
    ) -> None:
        self._options = options = self.parameters.read(self.name, given)
        check_name(me)
        self.me = me
        self._open(book or MemoryBook(), options["life"] or life_of(me, 0))

    # rule 001 R1: every open is a new life
    # rule 001 R2: the past survives in the store
    def _open(self, book: Book, life: str) -> None:
        """Begin a life on a book: it may have entries of earlier ones."""
        check_life(life)
        origin = stream_of(self.me, life)
        if any(origin == stream for stream, _, _ in book.streams()):
            raise MisuseError(f"life {life!r} of {self.me!r}", "it has been lived", "Draw a new one")
        own = book.add_stream(origin)
        book.add_life(origin)
        self._set_up(book, life, own)
        self._remember()

    def _set_up(self, book: Book, life: str, own: int) -> None:
        """The parts of a core, as far as the book alone decides."""
        options = self._options
        self.life = life
        self.last = 0
        self.own = own
        self.book = book
        self.ledger = Ledger(book)
        self._begins = options["history"] == "new" and book.next == 1
        self.is_timed: bool = options["lifetimes"] or options["lifetime_us"] is not None
        self.drawn: DrawnExchange | None = None
        if options["exchange"] == "random":
            pace = (options["seed"], options["gap_us"], options["setup_max_us"])
            self.drawn = DrawnExchange(self.me, *pace, self.ledger)
        self.exchange = Exchange(
            self.me, self.own, self.ledger, options, timed=self.is_timed, drawn=self.drawn
        )
        self.repair = Repair(self.exchange, options["pull_us"], options["jump_us"])
        self.retention = Retention(options, options["skew_us"])
        self.people = People(self.me, book.lives(), options["suspect_us"])
        self.plain = PlainOrder(self.own, self.ledger)  # with lifetimes it is not asked
        self.timed: TimedOrder | None = None
        if self.is_timed:
            limits = (options["lifetime_us"], options["skew_us"], options["held_max"])
            self.timed = TimedOrder(self.own, self.ledger, *limits)
        self.order: PlainOrder | TimedOrder = self.timed or self.plain
        self.chain = Chain(self.ledger, self.order.stride) if options["chain"] else None
        self._skip = 0 if self.chain is None else LINK_BYTES  # of what messages carry before their payloads
        self.stability: Stability | None = None
        if options["stability"]:
            self.stability = Stability(
                self.own,
                self.ledger,
                self.exchange.intern,
                options["ack_us"],
                options["alone_us"],
                self.order.stride,
                self._skip,
            )
        self._tick_us: int | None = None
        self._cork_us: int | None = None
        self._times: dict[str, int | None] = {}  # of the timers WAKE and SLOT
        self._now_us = 0
        self.memory = Memory(book, self.stability, self.chain)
        parts = (self.ledger, self.exchange, self.timed, self.stability, self.chain)
        self.delivery = Delivery(own, *parts)
        self._steps = 0
        self._is_plain = self.timed is None and self.stability is None and self.chain is None
        self._is_quick = self._is_plain and self.drawn is None  # the end of a step has little to look at
        self._limit = options["held_max"]
        self._tick_every_us: int = options["tick_us"]
        self._cork_every_us: int = options["cork_us"]
        self._acknowledge_at = max(1, options["window"] // 4)
        # Looked up once, for the innermost loop.
        self._newest, self._names = self.ledger.newest, self.ledger.names
        self._append, self._changed = book.append, self.exchange.changed

    def _remember(self) -> None:
        """Take up what earlier lives knew."""
        self.memory.recall(self.order)
        self.people.note(self._names, [], quiet=True)
        if self.stability is not None:
            self.stability.open()

    def _checkpoint(self) -> None:
        """Write down what an opening needs besides the entries."""
        self.memory.keep(self.order)

    # From above

    @property
    def origin(self) -> NodeId:
        return self._names[self.own]

    @property
    def ready(self) -> bool:
        return self.stability is None or self.stability.may_speak

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        check_payload(payload)
        if not self._is_quick:
            return self._broadcast(payload, None, now_us)
        # As `_broadcast` does, in a third of the time.
        self._now_us = now_us
        entry = self.plain.make(payload, None, APP, now_us)
        own, self.last = self.own, entry[1]
        self._newest[own] = self.last
        lsn = self._append(entry)
        self._changed.add(own)
        self.exchange.offer(lsn, [entry], len(payload))
        message = _new(Message, (self._names[own], self.last, payload))
        effects: Effects = [_new(Deliver, (message, lsn, False))]
        return self._finish(effects, now_us, may_wait=self._cork_every_us > 0)

    def broadcast_within(self, payload: bytes, lifetime_us: int, now_us: int) -> Effects:
        check_payload(payload)
        check_lifetime("lifetime of a message", lifetime_us)
        if self.timed is None:
            return super().broadcast_within(payload, lifetime_us, now_us)
        return self._broadcast(payload, lifetime_us, now_us)

    # rule 001 R24: one key, one message
    def id_of(self, key: bytes) -> MessageId | None:
        """The message that was broadcast with a key, in this life or an earlier one of the book."""
        found = self.book.id_of(key)
        return None if found is None else MessageId(self._names[found[0]], found[1])

    def broadcast_once(
        self, key: bytes, payload: bytes, now_us: int, lifetime_us: int | None = None
    ) -> Effects:
        """As `broadcast`, under a key that `id_of` does not know."""
        if self.book.id_of(key) is not None:
            raise MisuseError(f"key {key!r}", "it has been broadcast", "Ask `id_of` first")
        if lifetime_us is None:
            effects = self.broadcast(payload, now_us)
        else:
            effects = self.broadcast_within(payload, lifetime_us, now_us)
        self.book.add_key(key, self.own, self.last)
        return effects

    def _broadcast(self, payload: bytes, lifetime_us: int | None, now_us: int) -> Effects:
        if not self.ready:
            raise MisuseError(
                f"broadcast of {self.me!r}", "no member has admitted it yet", "Wait until it is ready"
            )
        effects: Effects = []
        self._advance(now_us, effects, is_own=True)
        self._speak(payload, lifetime_us, APP, now_us, effects)
        return self._finish(effects, now_us, may_wait=self._cork_every_us > 0)

    def _speak(
        self, payload: bytes, lifetime_us: int | None, mark: int, now_us: int, effects: Effects
    ) -> None:
        """Make the next message of this life, log and deliver it, and offer it to the peers."""
        if self.chain is not None:
            payload = self.chain.link(self.own) + payload
        entry = self.order.make(payload, lifetime_us, mark, now_us)
        self.last = entry[1]
        self.last_lifetime_us = self._options["lifetime_us"] if lifetime_us is None else lifetime_us
        self.delivery.log(entry, now_us, effects)

    def command(self, verb: str, names: tuple[NodeId, ...], now_us: int) -> Effects:
        """What the host decides: pause, resume, retire NAME, sent TAG ..., jump STREAM:NUMBER ..."""
        effects: Effects = []
        self._advance(now_us, effects)
        if verb == "pause":
            self.exchange.paused = True
        elif verb == "resume":
            self.exchange.paused = False
            for session in self.exchange.of.values():
                self.exchange.acknowledge(session, effects, least=1)
        elif verb == "retire" and self.stability is not None and len(names) == 1:
            payload = self.stability.retire(names[0])
            if payload is not None:
                self._speak(payload, None, CONTROL, now_us, effects)
        elif verb == "sent" and self.stability is not None:
            self._speak(self.stability.say_sent(names), None, CONTROL, now_us, effects)
        elif verb == "jump":
            self._jump(self.exchange.cut_of(names), "before joining", now_us, effects)
        else:
            raise MisuseError(
                f"command {verb!r} for protocol 'log'",
                "it is none of pause, resume, jump STREAM:NUMBER ..., retire NAME, sent TAG ... (stability)",
                "Name one of these",
            )
        return self._finish(effects, now_us)

    # rule 001 R23: done per message, in any order
    def done(self, lsn: int) -> None:
        """The reader has no need of an entry any more."""
        self.book.done(lsn)

    # rule 001 R25: how many peers have a message
    def copies(self, number: int) -> int:
        """How many connected peers have said that they have message `number` of this life."""
        return sum(session.have[self.own] >= number for session in self.exchange.synced())

    def stable(self) -> dict[str, int]:
        """The stable cut: of each stream how much; empty without stability."""
        stable = () if self.stability is None else self.stability.stable
        return {self._names[at]: number for at, number in enumerate(stable) if number}

    # From below

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        check_peer(self.me, peer)
        effects: Effects = []
        self._advance(now_us, effects)
        self.exchange.begin(
            peer, now_us, is_member=self.stability is not None and self.ready, effects=effects
        )
        return self._finish(effects, now_us)

    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        effects: Effects = []
        session = self.exchange.end(peer)  # first: nothing more can be sent to it
        self._advance(now_us, effects)
        if session is not None:
            self._ended(session, now_us, effects)
        return self._finish(effects, now_us)

    def _ended(self, session: PeerSession, now_us: int, effects: Effects) -> None:
        self.exchange.lost(session, effects)
        self.repair.ended(session, now_us, effects)
        self.people.parted(session.peer, now_us, self._newest)

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        session = self.exchange.of.get(peer)
        if session is None:
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        effects: Effects = []
        if self.timed is not None or self.exchange.offers:
            self._advance(now_us, effects)
        self._now_us = now_us
        if packet[0] == DATA and session.stage != GREETING:
            if packet[1] and not self._learn(session, packet, now_us, effects):
                effects.append(Discard(self.message_of(packet), peer, Reason.MALFORMED))
            else:
                self._take_all(session, packet[3], now_us, effects, as_runs=False)
        elif not self._hear(session, cast(LogPacket, packet), now_us, effects):
            is_stale = session.stage == GREETING and packet[0] != HELLO  # of an earlier session
            effects.append(Discard(None, peer, Reason.STALE if is_stale else Reason.MALFORMED))
        if session.is_over:  # it can try again, later, where this session has left off
            self.exchange.end(peer)
            self._ended(session, now_us, effects)
            effects.append(CloseLink(peer))
        return self._finish(effects, now_us)

    def receive_together(self, peer: NodeId, packets: list[Packet], now_us: int) -> Effects:
        """As `receive` for each of them, in one step: what follows from all leaves together."""
        session = self.exchange.of.get(peer)
        if session is None or session.stage == GREETING or not self._is_quick:
            return [effect for packet in packets for effect in self.receive(peer, packet, now_us)]
        effects: Effects = []
        self._advance(now_us, effects)
        for packet in packets:
            if packet[0] == DATA and not packet[1] and not session.is_over:
                self._take_all(session, packet[3], now_us, effects, as_runs=True)
            else:
                effects += self.receive(peer, packet, now_us)
        return self._finish(effects, now_us)

    def _learn(self, session: PeerSession, packet: Packet, now_us: int, effects: Effects) -> bool:
        """Take the names of a packet, and notice who is new; without them the session is of no use."""
        known = len(self._names)
        learned = self.exchange.learn(session, packet[1], now_us)
        if len(self._names) > known:
            self.people.note(self._names, effects)
        session.is_over |= not learned
        return learned

    def _take_all(
        self, session: PeerSession, items: tuple[Item, ...], now_us: int, effects: Effects, *, as_runs: bool
    ) -> None:
        """The items of a DATA packet; those that follow one another in their stream are logged as a run."""
        session.taken += len(items)
        if self._is_plain:
            self._take_runs(session, items, now_us, effects, as_runs=as_runs)
        else:
            for item in items:
                self._take(session, item, now_us, effects)
        if session.taken >= self._acknowledge_at:
            self.exchange.acknowledge(session, effects, least=self._acknowledge_at)

    def _take_runs(
        self, session: PeerSession, items: tuple[Item, ...], now_us: int, effects: Effects, *, as_runs: bool
    ) -> None:
        """Items of a group without lifetimes, members and hashes: what can be delivered goes straight on."""
        theirs, newest, plain, own = session.theirs, self._newest, self.plain, self.own
        past, held, waiters, place = plain.past, plain.held, plain.waiters, plain.place
        hold, limit, came_from = plain.hold, self._limit, self.exchange.came_from
        run: list[Item] = []  # of one stream, not logged yet
        for item in items:
            index, number, _, after, payload, mark = item
            stream = theirs.get(index, -1)
            missing = None
            if after and stream >= 0:
                placed = place(theirs, stream, number, after)
                if placed is None:
                    stream = -1
                else:
                    after, missing = placed
            is_next = not mark and missing is None and stream >= 0 and number == newest[stream] + 1
            if run and (not is_next or run[0][0] != stream):
                self._log_run(session, run, effects, as_runs=as_runs)
                run = []
            entry = (stream, number, 0, after, payload, APP)
            is_odd = mark or stream < 0 or stream == own
            if is_odd or not (is_next or hold(entry, missing, now_us, limit)):
                self._take(session, item, now_us, effects)
                continue
            if not is_next:  # it is held, and a tick marks it behind (R10)
                came_from(session, stream, number)
                continue
            if after and past:
                plain.follow_all(after)
            if held and (stream, number) in held:
                plain.forget(stream, number)
            newest[stream] = number
            run.append(entry)
            if waiters and (stream, number) in waiters:
                self._log_run(session, run, effects, as_runs=as_runs)
                run = []
                self.delivery.log_released(plain.release_all(stream, number), effects, as_runs=as_runs)
        if run:
            self._log_run(session, run, effects, as_runs=as_runs)

    def _log_run(self, session: PeerSession, run: list[Item], effects: Effects, *, as_runs: bool) -> None:
        """Messages of one stream that came one after the other."""
        stream, number = run[-1][:2]
        self.plain.past[stream] = number
        self.delivery.log_run(run, effects, as_runs=as_runs)
        self.exchange.came_from(session, stream, number)

    def _take(self, session: PeerSession, item: Item, now_us: int, effects: Effects) -> None:
        """A message in the general case: refused, held or delivered."""
        index, number, until, after, payload, mark = item
        stream = session.theirs.get(index, -1)
        mine = self.exchange.barrier(session, after)
        peer = session.peer
        if (
            stream < 0
            or mine is None
            or not 0 < number < NUMBER_MAX
            or until < 0
            or mark not in (APP, CONTROL, GONE)
            or (mark != GONE and len(payload) < self._skip)
        ):
            effects.append(Discard(None, peer, Reason.MALFORMED))
            return
        if mark == GONE:
            if self.delivery.gone(stream, number, until, now_us, effects):
                self.repair.mark(stream, until, now_us)
            return
        id_ = MessageId(self._names[stream], number)
        session.sent[stream] = max(session.sent[stream], number)
        session.have[stream] = max(session.have[stream], number)
        entry = (stream, number, until, mine, payload, mark)
        reason = self._refusal(entry, now_us)
        if reason is not None:
            if self.chain is not None and self.chain.is_forked(entry, reason):
                effects.append(Tell(Forked(*split_stream(self._names[stream]), number)))
            if reason is Reason.DUPLICATE:
                self.exchange.duplicate(session, stream, effects)
            elif reason is Reason.EXPIRED and self.timed is not None:
                self.timed.died(stream, number)
                self.delivery.account_dead(stream, now_us, effects)
            effects.append(Discard(id_, peer, reason))
        else:
            self.exchange.came_from(session, stream, number)
            self.delivery.log_all(self.order.receive(entry, now_us), now_us, effects)
        if number > self._newest[stream] and stream != self.own:
            self.repair.mark_all(entry, self.order.stride, now_us)  # R10: refused, held or dropped

    def _refusal(self, entry: Item, now_us: int) -> Reason | None:
        stream, number, _, after, _, _ = entry
        if stream == self.own:
            return Reason.DUPLICATE if number <= self.last else Reason.FORGED
        if number <= self._newest[stream]:
            return Reason.DUPLICATE
        for at in range(0, len(after), self.order.stride):
            if (after[at] == self.own and after[at + 1] > self.last) or (
                after[at] == stream and after[at + 1] >= number
            ):
                return Reason.IMPOSSIBLE
        reason = self.order.refuse(entry, now_us)
        if reason is None and self.order.waiting >= self._limit and self.order.is_early(entry, now_us):
            reason = Reason.NO_ROOM
        return reason

    # rule 001 R8: D and F are joined with a cut, one gap per stream
    def _jump(self, cut: dict[int, int], reason: str, now_us: int, effects: Effects) -> None:
        """Pass over everything at or below `cut`, which is one node's D or F of one moment."""
        names = self._names
        for stream in sorted(cut, key=lambda each: names[each]):
            if stream != self.own and cut[stream] > self._newest[stream]:
                self.delivery.miss(stream, cut[stream], reason, effects)
            self.ledger.raise_floor(stream, min(cut[stream], self._newest[stream]))
        self.delivery.log_all(self.order.jump(cut, now_us), now_us, effects)

    # What peers say besides messages

    def _hear(self, session: PeerSession, packet: LogPacket, now_us: int, effects: Effects) -> bool:
        """A packet without messages; returns whether a correct peer can have sent it."""
        kind = packet.kind
        if kind == HELLO:
            return self._hear_hello(session, packet, now_us, effects)
        if session.stage == GREETING or not self._learn(session, packet, now_us, effects):
            return False
        if kind == HAVE and packet.numbers:
            return self._hear_have(session, packet, now_us, effects)
        if kind == FLOOR and packet.numbers:
            return self._hear_floor(session, packet.numbers, now_us, effects)
        if kind == BYE:
            self.people.left(session.peer, effects)
            return True
        return self.exchange.hear(session, packet, now_us, effects)

    def _hear_hello(self, session: PeerSession, packet: LogPacket, now_us: int, effects: Effects) -> bool:
        known = len(self._names)
        if not self.exchange.greeted(session, packet, now_us, effects):
            return False
        self.people.met(session.peer, effects)
        if len(self._names) > known:
            self.people.note(self._names, effects)
        if session.stage == SYNCED:
            self._synced(session, now_us, effects)
        return True

    def _hear_have(self, session: PeerSession, packet: LogPacket, now_us: int, effects: Effects) -> bool:
        if packet.numbers[0] == PART:
            heard = self.repair.hear_have(session, packet.numbers[1:], now_us)
            self.people.look_back(self._names, self.own, session.have, self._newest, effects)
            return heard
        if session.stage == SYNCED or not self.exchange.told_all(session, packet):
            return False
        self._synced(session, now_us, effects)
        return True

    def _synced(self, session: PeerSession, now_us: int, effects: Effects) -> None:
        """Both ends know what the other has."""
        if self._begins:
            self._begins = False
            cut = {at: count for at, count in enumerate(session.have) if count}
            self._jump(cut, "before joining", now_us, effects)
        self.people.look_back(self._names, self.own, session.have, self._newest, effects)
        self.exchange.settle(session, effects)
        if self.stability is not None:
            self.stability.met(session.stream)
        if self.repair.compare(session, now_us):
            self.repair.name_main(session, now_us, effects)

    # rule 001 R14: nobody has it any more: pass over what the peer has cut off
    def _hear_floor(
        self, session: PeerSession, numbers: tuple[int, ...], now_us: int, effects: Effects
    ) -> bool:
        if numbers[0] == ASK:
            self.exchange.whole_floor(session, effects)
            return True
        cut = self.repair.hear_floor(session, numbers[1:], now_us)
        if cut is None:
            return False
        if numbers[0] == WHOLE and session.asked_floor:
            session.asked_floor = False
            if self.repair.must_jump(cut):
                # Not "expired": a floor may pass what lives, and gaps of that reason are passed on as dead.
                self._jump(cut, "truncated", now_us, effects)
                self.repair.name_main(session, now_us, effects)
        return True

    # Time

    def _advance(self, now_us: int, effects: Effects, *, is_own: bool = False) -> None:
        """What time alone has brought about, before anything else happens."""
        self._now_us = now_us
        if not is_own and self.exchange.offers:
            self.exchange.flush(effects)  # what waits goes before anything that follows
        if self.timed is not None:
            self.delivery.log_all(self.timed.advance(now_us), now_us, effects)
            if self.timed.told:
                self.delivery.pass_over_due(self.timed, now_us, effects)

    def timer(self, key: str, now_us: int) -> Effects:
        effects: Effects = []
        self._advance(now_us, effects)
        if key in self._times:
            self._times[key] = None
        if key == SLOT and self.drawn is not None:
            self.exchange.send_drawn(self.drawn, now_us, effects)
        elif key == CORK:
            self._cork_us = None
        elif key == GO_ON:
            self.exchange.must_go_on = False
            for session in self.exchange.synced():
                self.exchange.pump(session, effects)
        elif key == LEAVE:
            peers = tuple(session.peer for session in self.exchange.synced())
            if peers:
                effects.append(Send(peers, LogPacket(BYE)))
        elif key == TICK:
            self._tick_us = None
            self._tick(now_us, effects)
        return self._finish(effects, now_us)

    def _tick(self, now_us: int, effects: Effects) -> None:
        self.exchange.tell_news(effects)
        for stream, number in self.plain.waiters:  # R10: what is waited for must be had
            if stream != self.own:
                self.repair.mark(stream, number, now_us)
        self.repair.tick(now_us, effects)
        self.people.tick(now_us, self._newest, effects)
        if self.stability is not None:
            peers = [session.stream for session in self.exchange.synced()]
            level = [
                each.stream for each in self.exchange.synced() if self.people.is_level(each, self._newest)
            ]
            for payload in self.stability.due(peers, level, now_us):
                self._speak(payload, None, CONTROL, now_us, effects)
            if self.stability.advance(effects):
                self._checkpoint()  # what was called stable stays so
        self._retain(now_us, effects)

    # rule 001 R21: cut a prefix, below the reader's cursor, and tell the sessions first
    def _retain(self, now_us: int, effects: Effects) -> None:
        """Cut what need not be kept."""
        if not self._options["reads"]:
            self.book.done_before(self.book.next)
        stable = self.stability.stable if self.stability is not None and self.stability.has_company else []
        point = self.retention.point(self.ledger, now_us, stable, effects)
        if point > self.book.first:
            if self.exchange.offers:
                self.exchange.flush(effects)  # a peer without credit goes on from its cursor
            if point > self.memory.at:
                self._checkpoint()  # an opening could not look at what is gone
            self.exchange.before_cut(point, effects)
            self.ledger.cut(point)

    def _finish(self, effects: Effects, now_us: int, *, may_wait: bool = False) -> Effects:
        """The end of every step: send what it has for the peers, ask for the timers that it needs."""
        exchange = self.exchange
        if exchange.offers:
            if not may_wait or exchange.is_batch():
                exchange.flush(effects)
            elif self._cork_us is None:
                self._cork_us = now_us + self._cork_every_us
                effects.append(SetTimer(CORK, self._cork_us))
        if self._tick_us is None and (self._changed or self._needs_tick()):
            self._tick_us = now_us + self._tick_every_us
            effects.append(SetTimer(TICK, self._tick_us))
        self._steps += 1
        if self._is_quick and self._steps % STEPS and not exchange.must_go_on:
            return effects
        if exchange.must_go_on:
            effects.append(SetTimer(GO_ON, now_us + 1))
        if self.drawn is not None:
            self._set_timer(SLOT, self.drawn.next_us(exchange.synced()), now_us, effects)
        if self.retention.by_size:
            self._retain(now_us, effects)
        if self.timed is not None:
            self._set_timer(WAKE, self.timed.next_us(), 0, effects)
        if self.memory.is_due:
            self._checkpoint()
        return effects

    def _set_timer(self, key: str, at_us: int | None, least_us: int, effects: Effects) -> None:
        """Set, move or cancel one of the timers whose time follows from the state."""
        if at_us is not None:
            at_us = max(at_us, least_us)
        if at_us != self._times.get(key):
            self._times[key] = at_us
            effects.append(CancelTimer(key) if at_us is None else SetTimer(key, at_us))

    def _needs_tick(self) -> bool:
        waits = self.retention.waits or (self.stability is not None and self.stability.waits)
        return bool(self._changed or self.repair.behind or self.people.away or self.plain.waiters or waits)

    # The rest of the contract

    @property
    def waiting(self) -> int:
        return self.order.waiting

    def explain(self) -> list[Waiting]:
        return self.order.explain()

    def check(self) -> None:
        broken = self.order.broken_rule()
        self._require(broken is None, broken or "")
        self._require(
            self._newest[self.own] == self.last == self.order.last, "own messages are logged immediately"
        )
        book = self.book
        for stream, (name, newest, floor) in enumerate(book.streams()):
            mine = (self._names[stream], self._newest[stream], self.ledger.floor[stream])
            self._require(mine == (name, newest, floor), f"the book and the ledger agree about {name}")
            self._require(floor <= newest, f"what was cut off of {name} was accounted for")
        for session in self.exchange.of.values():
            self._require(0 <= session.credit <= self.exchange.window, "credit is bounded by the window")
            self._require(len(session.sent) == len(self._names), "a session knows every stream")
        self._require(not self.exchange.offers or self._cork_us is not None, "a step sends what it has")
        is_set = self._tick_us is not None or not self._needs_tick() or not self._steps
        self._require(is_set, "after the first input the timer is set while there is something to do")

    # rule 001 R2: a node that comes back is a new life on what its store has
    def reopen(self, state: State, opening: int, life: str | None = None) -> None:
        """The next life of the node that `save` described, after a crash that spared its disk."""
        book = MemoryBook()
        book.restore(state["book"])
        self._open(book, life or life_of(self.me, opening))

    def save(self) -> State:
        if not isinstance(self.book, MemoryBook):
            raise MisuseError("save", "the log is on disk already", "Open its book in a new core")
        state: State = {
            "book": self.book.save(),
            "life": self.life,
            "own": self.own,
            "begins": self._begins,
            "now_us": self._now_us,
            "tick_us": self._tick_us,
            "cork_us": self._cork_us,
            "times": [[key, at_us] for key, at_us in self._times.items()],
            "checkpointed": self.memory.at,
            "steps": self._steps,
            "last_lifetime_us": self.last_lifetime_us,
            "order": self.order.save(),
            "exchange": self.exchange.save(),
            "repair": self.repair.save(),
            "people": self.people.save(),
            "stability": None if self.stability is None else self.stability.save(),
        }
        if self.chain is not None:
            state["chain"] = self.chain.save()
        return state

    def restore(self, state: State) -> None:
        book = MemoryBook()
        book.restore(state["book"])
        self._set_up(book, state["life"], state["own"])
        self._begins, self._now_us = state["begins"], state["now_us"]
        self._tick_us, self._cork_us = state["tick_us"], state["cork_us"]
        self._times = dict(state["times"])
        self.memory.at, self.last_lifetime_us = state["checkpointed"], state["last_lifetime_us"]
        self._steps = state["steps"]
        self.order.restore(state["order"])
        self.last = self.order.last
        self.exchange.restore(state["exchange"])
        self.repair.restore(state["repair"])
        self.people.restore(state["people"], self._names)
        if self.stability is not None:
            self.stability.restore(state["stability"])
        if self.chain is not None:
            self.chain.restore(state["chain"])

    def message_of(self, packet: Packet) -> MessageId | None:
        """The first message, "#" and the sender's index for its stream: a packet alone does not say more."""
        items = cast(LogPacket, packet).items
        return MessageId(f"#{items[0][0]}", items[0][1]) if items else None

    def further_messages_of(self, packet: Packet) -> tuple[MessageId, ...]:
        return tuple(MessageId(f"#{item[0]}", item[1]) for item in cast(LogPacket, packet).items[1:])

    def detail_of(self, packet: Packet) -> str | None:
        return told(cast(LogPacket, packet))

    def is_control(self, packet: Packet) -> bool:
        return cast(LogPacket, packet).kind != DATA

    def sizes(self, packet: Packet) -> Sizes:
        total_bytes, control_bytes = packet_sizes(cast(LogPacket, packet))
        if self._skip:
            items = cast(LogPacket, packet).items
            control_bytes += sum(min(self._skip, len(item[4])) for item in items)
        return Sizes(total_bytes, control_bytes)

    def payload_of(self, entry: Item) -> bytes:
        """What the application said in a logged message."""
        return entry[4][self._skip :]

    def entries(self) -> int:
        return 2 * len(self._names) + self.order.entries() + self.exchange.entries() + len(self.repair.behind)
