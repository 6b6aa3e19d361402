"""The exchange: one session per link. Greet, compare what both have, give what the other lacks, push what is
new.

    R11   a sender walks its log from a cursor in log order, at most `window` items unacknowledged; the
          backlog goes to peers that named it MAIN or that WANT a stream, new entries to all but those that
          get them elsewhere
    R12   who gets a duplicate prunes its giver, or if the giver is the origin the other feed
    R15   equal states are found by one hash; else the whole vector is told, or the tree where streams are
          many

Nothing is queued for a peer: `cursor` and `back` of its session say where to go on when it takes more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from whence.core.effects import Effects, Send
from whence.core.group import NUMBER_MAX
from whence.core.lives import is_stream
from whence.core.message import NodeId
from whence.errors import MisuseError
from whence.protocols.barrier.wire import NEVER_US
from whence.protocols.log.book import Entry, last_of, plain, unplain
from whence.protocols.log.drawn import DrawnExchange
from whence.protocols.log.ledger import Ledger
from whence.protocols.log.session import COMPARING, GREETING, SYNCED, PeerSession, untold
from whence.protocols.log.summary import children, depth_for, differing
from whence.protocols.log.wire import (
    ASK,
    BARRIER_MAX,
    DATA,
    FLOOR,
    GONE,
    GOT,
    HAVE,
    HELLO,
    LEAVES,
    MAIN,
    MEMBER,
    NEAR,
    PART,
    PRUNE,
    TIMED,
    TREE,
    VERSION,
    WANT,
    WHOLE,
    Item,
    LogPacket,
    Name,
    item_bytes,
)

BATCH_ITEMS = 64
BATCH_BYTES = 48_000  # of one DATA packet, about
ITEM_NUMBERS = 7  # of an item besides its barrier, lengths included; each takes at most this many bytes:
NUMBER_BYTES_MAX = 9
SCAN_MAX = 4_096  # entries of the log that one step looks at for one peer
EXPIRED = "expired"
PULLS_MAX = 256  # streams that one WANT names
MINUTE_US = 60_000_000
NAMES_MAX = 4_096  # names that a budget counts at a time; the oldest span is forgotten first
# To whom entries go, the LSN of the first, and the entries: of one stream, one after the other in the log.
Offer: TypeAlias = tuple[tuple[PeerSession, ...], int, list[Entry]]
_after_of, _payload_of = itemgetter(3), itemgetter(4)  # of an item


class Budget:
    """How much a peer may ask of a node in a span of time, which begins with the first use.

    By name, so that a new session begins nothing anew.
    """

    def __init__(self, most: int, span_us: int) -> None:
        self.most = most
        self.span_us = span_us
        self.used: dict[str, tuple[int, int]] = {}  # name -> when its span began, what it has used since

    def take(self, name: str, wanted: int, now_us: int) -> int:
        """Use some; returns how much of it there was."""
        since_us, used = self.used.get(name, (now_us, 0))
        if not since_us <= now_us < since_us + self.span_us:
            since_us, used = now_us, 0
        granted = min(wanted, self.most - used)
        self.used.pop(name, None)
        self.used[name] = (since_us, used + granted)
        if len(self.used) > NAMES_MAX:
            del self.used[next(iter(self.used))]
        return granted


class Exchange:
    """The sessions of a node."""

    def __init__(
        self,
        me: NodeId,
        own: int,
        ledger: Ledger,
        options: Mapping[str, Any],
        *,
        timed: bool,
        drawn: DrawnExchange | None = None,
    ) -> None:
        self.me = me
        self.own = own  # the node's own stream
        self.ledger = ledger
        self.window: int = options["window"]
        self.streams_max: int = options["streams_max"]
        self.new_streams = Budget(options["streams_per_minute"], MINUTE_US)
        self.new_lives = Budget(options["lives_per_hour"], 60 * MINUTE_US)
        self.wants = Budget(options["wants_per_minute"], MINUTE_US)
        self.timed = timed
        self.drawn = drawn  # in random order, at a rate
        self.of: dict[NodeId, PeerSession] = {}  # ascending by name
        self.feed: list[PeerSession | None] = []  # of each stream, the session that gave its newest message
        self.forward: list[tuple[PeerSession, ...] | None] = []  # to whom new entries go; None: not known yet
        self.changed: set[int] = set()  # streams that grew since the last HAVE
        self.paused = False  # the reader is slow: acknowledge nothing
        self.must_go_on = False  # a walk through the log was cut short
        self.offers: list[Offer] = []  # what this step has for the peers, in log order
        self._waiting_bytes = 0  # payloads among them
        self._stride = 3 if timed else 2  # of barriers
        self.grow()

    def grow(self) -> None:
        """Streams were added."""
        streams = len(self.ledger.names)
        self.feed += [None] * (streams - len(self.feed))
        self.forward += [None] * (streams - len(self.forward))
        for session in self.of.values():
            session.grow(streams)

    def reroute(self) -> None:
        """Who gets what has changed for all streams."""
        self.forward[:] = [None] * len(self.forward)

    def synced(self) -> list[PeerSession]:
        """Those with whom summaries were compared."""
        return [session for session in self.of.values() if session.stage == SYNCED]

    def hear(  # noqa: PLR0911 - one for each kind that is wrong
        self, session: PeerSession, packet: LogPacket, now_us: int, effects: Effects
    ) -> bool:
        """What a peer says about how it is given messages; returns whether a correct one can have said it."""
        kind, numbers = packet.kind, packet.numbers
        if kind == TREE:
            return self.compared(session, packet, effects)
        if kind == GOT:
            return self._hear_got(session, numbers, effects)
        if session.stage != SYNCED:
            return False  # it has our summary, and its own comes before all else
        if kind == MAIN:
            self.feed_all(session, effects)
            return not numbers
        if kind == PRUNE:
            numbers = tuple(part for index in numbers for part in (index, 1))
        pairs = self.mine(session, numbers)
        if pairs is None or kind not in (PRUNE, WANT, NEAR):
            return False
        if kind != WANT:
            self._hear_elsewhere(session.pruned if kind == PRUNE else session.near, pairs)
        elif len(pairs) <= PULLS_MAX and self.wants.take(session.peer, 1, now_us):
            self.feed_streams(session, pairs, effects)
        else:
            return False
        return True

    def _hear_got(self, session: PeerSession, numbers: tuple[int, ...], effects: Effects) -> bool:
        """The peer takes more; never more than it was sent."""
        if len(numbers) != 1 or not 0 < numbers[0] <= self.window - session.credit:
            return False
        session.credit += numbers[0]
        self.pump(session, effects)
        return True

    def _hear_elsewhere(self, streams: set[int], pairs: list[tuple[int, int]]) -> None:
        """The peer gets streams from elsewhere, or no longer."""
        for stream, does in pairs:
            (streams.add if does else streams.discard)(stream)
            self.forward[stream] = None
            if not does:
                self.changed.add(stream)  # it may need to know who else has it

    # Greeting

    def begin(self, peer: NodeId, now_us: int, *, is_member: bool, effects: Effects) -> None:
        """A link is up: say who we are and what we have."""
        ledger = self.ledger
        session = PeerSession(peer, len(ledger.names), ledger.book.next, self.window)
        summary = ledger.summary
        summary.update(ledger.newest)
        session.base = list(ledger.newest)
        session.root, session.streams = summary.root, summary.streams
        if self.drawn is not None:
            self.drawn.begin(peer, now_us)
        self.of[peer] = session
        self.of = dict(sorted(self.of.items()))
        flags = (TIMED if self.timed else 0) | (MEMBER if is_member else 0)
        session.told.add(self.own)
        effects.append(
            Send(
                (peer,),
                LogPacket(
                    HELLO,
                    ((self.own, ledger.names[self.own]),),
                    (VERSION, flags, session.streams, session.root),
                ),
            )
        )

    def end(self, peer: NodeId) -> PeerSession | None:
        """The link is gone, and the session with it."""
        session = self.of.pop(peer, None)
        if session is not None:
            if self.drawn is not None:
                self.drawn.end(peer)
            self.reroute()
            self.feed[:] = [None if feed is session else feed for feed in self.feed]
        return session

    def greeted(self, session: PeerSession, packet: LogPacket, now_us: int, effects: Effects) -> bool:
        """The peer has said who it is; returns whether that can be. Its summary is compared with ours."""
        numbers, names = packet.numbers, packet.names
        if session.stage != GREETING or len(numbers) != 4 or len(names) != 1 or numbers[0] != VERSION:
            return False
        _, flags, streams, root = numbers
        name, _, _ = names[0][1].rpartition("/")
        if name != session.peer or not 0 <= streams < NUMBER_MAX or bool(flags & TIMED) != self.timed:
            return False
        is_new = names[0][1] not in self.ledger.index
        if (is_new and not self.new_lives.take(name, 1, now_us)) or not self.learn(session, names, now_us):
            session.is_over = True
            return False
        session.stream = session.theirs[names[0][0]]
        session.is_member = bool(flags & MEMBER)
        session.stage = COMPARING
        if root == session.root and streams == session.streams:
            session.have = list(session.base)
            session.have += [0] * (len(self.ledger.names) - len(session.have))
            session.stage = SYNCED
            return True
        session.depth = depth_for(max(streams, session.streams))
        if not session.depth:
            pairs = [(at, count) for at, count in enumerate(session.base) if count]
            self.tell(session, HAVE, pairs, effects, first=(WHOLE,))
        else:
            self._plant(session)
            self._tell_tree(session, 1, [0], effects)
        return True

    def _plant(self, session: PeerSession) -> None:
        """Freeze the tree of what we said in HELLO."""
        summary = self.ledger.summary
        now = list(self.ledger.newest)
        summary.update(session.base + [0] * (len(now) - len(session.base)))
        session.levels = summary.freeze(session.depth)
        summary.update(now)

    def _tell_tree(self, session: PeerSession, level: int, nodes: list[int], effects: Effects) -> None:
        blob = children(session.levels[level - 1], nodes)
        effects.append(Send((session.peer,), LogPacket(TREE, (), (level, *nodes), (), blob)))

    # rule 001 R15: beyond a few hundred streams only the nodes of the tree that differ are told
    def compared(self, session: PeerSession, packet: LogPacket, effects: Effects) -> bool:
        """The peer has told nodes of its tree; tell the next level where they differ."""
        if session.stage != COMPARING or not session.depth or not packet.numbers:
            return False
        level, *nodes = packet.numbers
        if not 1 <= level <= session.depth or any(not 0 <= node < 16 ** (level - 1) for node in nodes):
            return False
        differ = differing(session.levels[level - 1], nodes, packet.blob)
        if differ is None:
            return False
        if level < session.depth:
            self._tell_tree(session, level + 1, differ, effects)
            return True
        summary, base = self.ledger.summary, session.base
        pairs = [
            (at, base[at]) for at in summary.members(session.depth, differ) if at < len(base) and base[at]
        ]
        self.tell(session, HAVE, pairs, effects, first=(LEAVES, len(differ), *differ))
        return True

    def told_all(self, session: PeerSession, packet: LogPacket) -> bool:
        """The peer has told its state of the moment of its HELLO, or of the leaves that differ."""
        numbers = packet.numbers
        streams = len(self.ledger.names)
        if numbers[0] == WHOLE:
            have, pairs = [0] * streams, numbers[1:]
        else:
            count = numbers[1] if len(numbers) > 1 else -1
            if not 0 <= count <= len(numbers) - 2:
                return False
            have = session.base + [0] * (streams - len(session.base))
            for at in self.ledger.summary.members(session.depth, numbers[2 : 2 + count]):
                have[at] = 0
            pairs = numbers[2 + count :]
        mine = self.mine(session, pairs)
        if mine is None:
            return False
        for at, count in mine:
            have[at] = count
        session.have = have
        session.stage = SYNCED
        session.levels, session.base = [], []
        return True

    def settle(self, session: PeerSession, effects: Effects) -> None:
        """Summaries are compared: push what is newer than our HELLO, say what cannot be had here any more."""
        session.sent = [max(pair) for pair in zip(session.sent, session.have, strict=True)]
        session.base = []
        session.cursor = session.start
        if self.drawn is not None:
            session.cursor = 0
            self.drawn.fill(session)
        self.reroute()
        ledger = self.ledger
        floors = [(at, floor) for at, floor in enumerate(ledger.floor) if floor > session.have[at]]
        if floors:
            self.tell(session, FLOOR, floors, effects, first=(PART,))
        if self.drawn is not None:
            return  # everything goes to every peer that may lack it
        others = [each for each in self.of.values() if each is not session and each.stage == SYNCED]
        near = [(each.stream, 1) for each in others]
        if near:
            self.tell(session, NEAR, near, effects)
        for each in others:
            self.tell(each, NEAR, [(session.stream, 1)], effects)
        self.pump(session, effects)

    # Names

    def learn(self, session: PeerSession, names: Sequence[Name], now_us: int) -> bool:
        """The peer says what its indices mean; returns whether all of it can be, and may be so much."""
        theirs, index_of = session.theirs, self.ledger.index
        fresh = sum(stream not in index_of for _, stream in names)
        room = self.new_streams.take(session.peer, fresh, now_us) if fresh else 0
        for index, stream in names:
            if stream not in index_of:
                room -= 1
                if room < 0:
                    return False
            mine = self.intern(stream)
            if mine is None or theirs.setdefault(index, mine) != mine:
                return False
            if len(theirs) > len(index_of):  # each index means a stream of its own
                return False
        return True

    def intern(self, stream: str) -> int | None:
        """Our index of a stream, which may be new; None if it is no stream, or there are too many."""
        mine = self.ledger.index.get(stream)
        if mine is None and is_stream(stream) and len(self.ledger.names) < self.streams_max:
            mine = self.ledger.add(stream)
            self.grow()
        return mine

    def cut_of(self, names: Iterable[str]) -> dict[int, int]:
        """The cut of an application's snapshot, as a host gives it."""
        cut = {}
        for text in names:
            stream, _, number = text.rpartition(":")
            index = self.intern(stream) if number.isdecimal() else None
            if index is None:
                raise MisuseError(f"cut {text!r}", "it is no NAME/LIFE:NUMBER", "Give what `stable` returned")
            cut[index] = int(number)
        return cut

    def mine(self, session: PeerSession, flat: Sequence[int]) -> list[tuple[int, int]] | None:
        """Pairs of a peer in our indices; None if it names what it never explained, or numbers cannot be."""
        if len(flat) % 2:
            return None
        theirs = session.theirs
        pairs = []
        for at in range(0, len(flat), 2):
            index = theirs.get(flat[at])
            if index is None or not 0 <= flat[at + 1] < NUMBER_MAX:
                return None
            pairs.append((index, flat[at + 1]))
        return pairs

    def barrier(self, session: PeerSession, after: tuple[int, ...]) -> tuple[int, ...] | None:
        """A barrier in our indices; None if it is not well formed."""
        stride = self._stride
        if len(after) % stride or len(after) > stride * BARRIER_MAX:
            return None
        mine = list(after)
        for at in range(0, len(after), stride):
            stream = session.theirs.get(after[at], -1)
            if stream < 0 or not 0 < after[at + 1] < NUMBER_MAX:
                return None
            if self.timed and not 0 <= after[at + 2] < NEVER_US:
                return None
            mine[at] = stream
        return tuple(mine)

    def tell(
        self,
        session: PeerSession,
        kind: int,
        pairs: Iterable[tuple[int, int]],
        effects: Effects,
        first: tuple[int, ...] = (),
    ) -> None:
        """Send pairs (stream, number), with the names that the peer needs."""
        listed = list(pairs)
        names = untold(session, self.ledger.names, [index for index, _ in listed])
        flat = tuple(part for pair in listed for part in pair)
        effects.append(Send((session.peer,), LogPacket(kind, names, (*first, *flat))))

    # Giving

    def targets(self, stream: int) -> tuple[PeerSession, ...]:
        """To whom new entries of a stream are pushed."""
        found = tuple(
            session
            for session in self.of.values()
            if session.stage == SYNCED and (stream == self.own or not session.skips(stream))
        )
        self.forward[stream] = found
        return found

    def offer_new(self, lsn: int, entry: Entry) -> None:
        """An entry was logged: for all whom it may concern."""
        size = len(entry[4]) if len(entry) == 6 else 0
        self.offer(lsn, [entry], size)

    # rule 001 R11: new entries go to all but those that get them elsewhere
    def offer(self, lsn: int, entries: Sequence[Entry], payload_bytes: int) -> None:
        """Entries of one stream were logged, one after the other: the end of the step sends them."""
        stream = entries[0][0]
        targets = self.forward[stream]
        if targets is None:
            targets = self.targets(stream)
        if not targets:
            return
        if self.drawn is not None:
            for at, entry in enumerate(entries, lsn):
                for session in targets:
                    if session.sent[stream] < last_of(entry):
                        self.drawn.add(session, at, entry)
            return
        self._waiting_bytes += payload_bytes
        if self.offers:
            last_targets, first_lsn, waiting = self.offers[-1]
            if last_targets is targets and first_lsn + len(waiting) == lsn:
                waiting += entries
                return
        self.offers.append((targets, lsn, list(entries)))  # it may grow

    def is_batch(self) -> bool:
        """Whether what waits fills a packet."""
        return len(self.offers[0][2]) >= BATCH_ITEMS or self._waiting_bytes >= BATCH_BYTES

    def send_drawn(self, drawn: DrawnExchange, now_us: int, effects: Effects) -> None:
        """Send what is due in the slots that have come."""
        for session in self.synced():
            entry = drawn.due(session, now_us)
            if entry is not None:
                session.credit -= 1
                self._send_items(session, [entry], effects)

    def flush(self, effects: Effects) -> None:
        """Send each peer what this step has for it: the same packet to all that need the same."""
        offers, self.offers = self.offers, []
        outs: dict[NodeId, list[Entry]] = {}
        for targets, lsn, entries in offers:
            for session in targets:
                taken = self._taken(session, lsn, entries)
                if taken:
                    peer = session.peer
                    outs[peer] = outs[peer] + taken if peer in outs else taken
        size, self._waiting_bytes = self._waiting_bytes, 0
        if not outs:
            return
        first = next(iter(outs.values()))
        is_one = len(first) == 1 or (len(first) <= BATCH_ITEMS and size <= 2 * BATCH_BYTES)
        needed = set(self._indices(first)) if is_one else None
        together = []
        for peer, out in outs.items():
            session = self.of[peer]
            if needed is not None and (out is first or out == first) and needed <= session.told:
                together.append(peer)
            else:
                self._send_items(session, out, effects)
        if together:
            effects.append(Send(tuple(together), LogPacket(DATA, (), (), self._items(first))))

    def _taken(self, session: PeerSession, lsn: int, entries: list[Entry]) -> list[Entry]:
        """What a peer takes of an offer now; it goes on from its cursor with what it does not."""
        if session.cursor or self.of.get(session.peer) is not session:
            return []
        stream, credit = entries[0][0], session.credit
        had = session.sent[stream]
        if entries[0][1] <= had:  # it gave us some of them, or has them from elsewhere
            known = sum(last_of(entry) <= had for entry in entries)
            lsn, entries = lsn + known, entries[known:]
            if not entries:
                return entries
        if session.back:
            credit = 0
        if credit < len(entries):
            session.cursor = lsn + max(credit, 0)
            entries = entries[: max(credit, 0)]
            if not entries:
                return entries
        session.credit -= len(entries)
        session.sent[stream] = last_of(entries[-1])
        return entries

    def _indices(self, entries: Iterable[Entry]) -> list[int]:
        """The streams that entries speak of."""
        indices = []
        for entry in entries:
            indices.append(entry[0])
            if len(entry) == 6:
                indices += entry[3][:: self._stride]
        return indices

    def _items(self, entries: Iterable[Entry]) -> tuple[Item, ...]:
        return tuple(
            entry if len(entry) == 6 else (entry[0], entry[1], entry[2], (), b"", GONE) for entry in entries
        )

    def _send_items(self, session: PeerSession, entries: list[Entry], effects: Effects) -> None:
        """Cut what goes to one peer into packets, each with the names that it needs."""
        items = self._items(entries)
        at = 0
        while at < len(items):
            batch = _fitting(items[at : at + BATCH_ITEMS])
            names = untold(session, self.ledger.names, self._indices(batch))
            effects.append(Send((session.peer,), LogPacket(DATA, names, (), batch)))
            at += len(batch)

    # rule 001 R11: walk the log in log order, at most `window` items unacknowledged
    def pump(self, session: PeerSession, effects: Effects) -> None:
        """Give a peer what it lacks and takes: the backlog first, then what is new."""
        if session.stage != SYNCED or not (session.back or session.cursor):
            return
        out: list[Entry] = []
        seen = 0
        if session.back:
            seen = self._walk(session, out, backlog=True, limit=SCAN_MAX)
        if not session.back and session.cursor and session.credit > 0:
            seen += self._walk(session, out, backlog=False, limit=SCAN_MAX - seen)
        if out:
            self._send_items(session, out, effects)
        if seen >= SCAN_MAX and session.credit > 0 and (session.back or session.cursor):
            self.must_go_on = True

    def _walk(self, session: PeerSession, out: list[Entry], *, backlog: bool, limit: int) -> int:
        """Go on from one cursor; returns how many entries were looked at."""
        book = self.ledger.book
        lsn = session.back if backlog else session.cursor
        end = min(session.back_end, book.next) if backlog else book.next
        lsn = begin = max(lsn, book.first)
        sent, credit = session.sent, session.credit
        is_all, wanted = session.is_main, session.wanted
        skipped = session.pruned | session.near | {session.stream}
        skipped.discard(self.own)
        while lsn < end and credit > 0 and lsn - begin < limit:
            for entry in book.read(lsn, min(256, end - lsn)):
                if credit <= 0:
                    break
                lsn += 1
                stream = entry[0]
                if (not is_all and stream not in wanted) if backlog else stream in skipped:
                    continue
                last = entry[1] if len(entry) == 6 else _told_of(entry)
                if last > sent[stream]:
                    credit -= 1
                    sent[stream] = last
                    out.append(entry)
        session.credit = credit
        if lsn < end:
            if backlog:
                session.back = lsn
            else:
                session.cursor = lsn
        elif backlog:
            session.back = session.back_end = 0
            session.is_main = False
            session.wanted.clear()
        else:
            session.cursor = 0
        return lsn - begin

    def feed_all(self, session: PeerSession, effects: Effects) -> None:
        """The peer takes the whole backlog from us (MAIN)."""
        if self.drawn is not None:
            return
        starts = []
        ledger = self.ledger
        for stream, newest in enumerate(ledger.newest):
            if newest > session.sent[stream]:
                starts.append(ledger.book.find(stream, session.sent[stream] + 1))
        found = [lsn for lsn in starts if lsn is not None]
        session.is_main = True
        if found:
            self._go_back(session, min(found))
        self.pump(session, effects)

    def feed_streams(self, session: PeerSession, pairs: list[tuple[int, int]], effects: Effects) -> None:
        """The peer wants streams from certain numbers on (WANT): it takes them from us from now on."""
        ledger = self.ledger
        floors = []
        for stream, first in pairs:
            session.pruned.discard(stream)
            session.near.discard(stream)
            self.forward[stream] = None
            session.sent[stream] = min(session.sent[stream], max(first - 1, 0))
            if ledger.floor[stream] >= first:
                floors.append((stream, ledger.floor[stream]))
            lsn = ledger.book.find(stream, first)
            if lsn is not None:
                session.wanted.add(stream)
                self._go_back(session, lsn)
        if floors:
            self.tell(session, FLOOR, floors, effects, first=(PART,))
        self.pump(session, effects)

    def _go_back(self, session: PeerSession, lsn: int) -> None:
        """Walk the backlog from an LSN on, up to where new entries are pushed from."""
        session.back = min(session.back, lsn) if session.back else lsn
        session.back_end = max(session.back_end, session.cursor or self.ledger.book.next)

    # rule 001 R21: tell the sessions first, then cut
    def before_cut(self, lsn: int, effects: Effects) -> None:
        """The log is about to be cut below `lsn`: who would have been given any of it is told."""
        floors: dict[int, int] = {}
        for session in self.synced():
            if not 0 < (session.back or lsn) < lsn and not 0 < (session.cursor or lsn) < lsn:
                continue
            if not floors:
                floors = self.floors_at(lsn)
            lacking = [(at, floor) for at, floor in floors.items() if floor > session.sent[at]]
            if lacking:
                self.tell(session, FLOOR, lacking, effects, first=(PART,))

    def floors_at(self, lsn: int) -> dict[int, int]:
        """What F will be once the log is cut below `lsn`."""
        ledger = self.ledger
        floors = {at: floor for at, floor in enumerate(ledger.floor) if floor}
        at_lsn = ledger.book.first
        while at_lsn < lsn:
            entries = ledger.book.read(at_lsn, min(256, lsn - at_lsn))
            for entry in entries:
                last = entry[1] if len(entry) == 6 else entry[2]
                floors[entry[0]] = max(floors.get(entry[0], 0), last)
            at_lsn += len(entries)
        return floors

    # Taking

    def came_from(self, session: PeerSession, stream: int, number: int) -> None:
        """A peer gives a stream, and has it up to there."""
        sent = session.sent
        if sent[stream] < number:  # noqa: PLR1730 - `max` is a call
            sent[stream] = number
        if stream not in session.stopped:  # else it would seem to be the feed, and the true one be pruned
            self.feed[stream] = session

    def acknowledge(self, session: PeerSession, effects: Effects, *, least: int) -> None:
        """Let the peer send more, if that much was taken; not while the reader is slow."""
        if session.taken >= least and not self.paused and session.taken:
            effects.append(Send((session.peer,), LogPacket(GOT, (), (session.taken,))))
            session.taken = 0

    # rule 001 R12: who gives a duplicate is pruned; if it is the origin, the other feed is
    def duplicate(self, session: PeerSession, stream: int, effects: Effects) -> None:
        """A message came that is here already."""
        if session.stage != SYNCED or self.drawn is not None:
            return
        loser = session
        if session.stream == stream:
            feed = self.feed[stream]
            if feed is None or feed is session:
                return
            loser, self.feed[stream] = feed, session
        elif self.feed[stream] is session or self.feed[stream] is None:
            return
        if stream not in loser.stopped:
            loser.stopped.add(stream)
            names = untold(loser, self.ledger.names, [stream])
            effects.append(Send((loser.peer,), LogPacket(PRUNE, names, (stream,))))

    def lost(self, session: PeerSession, effects: Effects) -> None:
        """A session has ended: others may have to give us its stream."""
        if session.stage == SYNCED:
            for each in self.synced():
                self.tell(each, NEAR, [(session.stream, 0)], effects)

    def tell_news(self, effects: Effects) -> None:
        """HAVE: the streams that grew, but for those that a peer hears from their origins; its own too."""
        changed, newest = set(self.changed), self.ledger.newest
        self.changed.clear()
        for session in self.synced() if changed else ():
            told = changed - session.near
            if session.stream in changed:
                told.add(session.stream)
            if told:
                self.tell(session, HAVE, [(at, newest[at]) for at in sorted(told)], effects, first=(PART,))

    def whole_floor(self, session: PeerSession, effects: Effects) -> None:
        """The peer asks for F, whole and of this moment: only that is a closed cut (R8)."""
        pairs = [(at, floor) for at, floor in enumerate(self.ledger.floor) if floor]
        self.tell(session, FLOOR, pairs, effects, first=(WHOLE,))

    def ask_floor(self, session: PeerSession, effects: Effects) -> None:
        """Ask for F."""
        session.asked_floor = True
        effects.append(Send((session.peer,), LogPacket(FLOOR, (), (ASK,))))

    def entries(self) -> int:
        """Numbers that are kept for the sake of the sessions."""
        return sum(
            len(each.have) + len(each.sent) + len(each.floor) + len(each.pruned) + len(each.near)
            for each in self.of.values()
        )

    def save(self) -> dict[str, Any]:
        """Plain data; `forward` follows from the sessions, and what peers may use begins anew."""
        return {
            "sessions": [session.save() for session in self.of.values()],
            "feed": [None if feed is None else feed.peer for feed in self.feed],
            "changed": sorted(self.changed),
            "paused": self.paused,
            "must_go_on": self.must_go_on,
            "drawn": None if self.drawn is None else self.drawn.save(),
            "offers": [
                [
                    [each.peer for each in targets if self.of.get(each.peer) is each],
                    lsn,
                    list(map(plain, entries)),
                ]
                for targets, lsn, entries in self.offers
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `save` described."""
        self.of = {saved[0]: PeerSession.restored(saved) for saved in state["sessions"]}
        self.feed[:] = [None if peer is None else self.of[peer] for peer in state["feed"]]
        self.changed.clear()
        self.changed.update(state["changed"])
        self.paused, self.must_go_on = state["paused"], state["must_go_on"]
        if self.drawn is not None:
            self.drawn.restore(state["drawn"])
        self.forward[:] = [None] * len(self.ledger.names)
        self.offers = [
            (tuple(self.of[peer] for peer in peers), lsn, list(map(unplain, entries)))
            for peers, lsn, entries in state["offers"]
        ]


def _told_of(gap: Entry) -> int:
    """The last number of a gap that can be told: of what has died; the rest others may still have."""
    return last_of(gap) if gap[3] == EXPIRED else 0


def _fitting(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """As many of some items as one packet takes."""
    numbers = sum(map(len, map(_after_of, items))) + ITEM_NUMBERS * len(items)
    if sum(map(len, map(_payload_of, items))) + numbers * NUMBER_BYTES_MAX < BATCH_BYTES:
        return items
    size = 0
    for count, item in enumerate(items, 1):
        size += item_bytes(item)
        if size >= BATCH_BYTES:
            return items[:count]
    return items
