"""Paper 001's exchange over a log: after a set-up time one message at a time, drawn (`exchange="random"`).

What a peer lacks is drawn, not walked in log order, one message every `gap_us` in each direction of a
contact; new messages join the draw. So messages overtake each other as they do in the paper, and wait at the
receiver.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

from whence.core.message import NodeId
from whence.core.rng import below, bits, purpose, stream
from whence.protocols.log.book import Entry, last_of
from whence.protocols.log.ledger import Ledger
from whence.protocols.log.session import PeerSession

ORDER, SETUP = purpose("log exchange"), purpose("log set-up")
NEVER_US = 1 << 62
READ = 256


class DrawnExchange:
    """Of each peer the entries that it may lack, in a drawn order, and when the next one goes."""

    def __init__(self, me: NodeId, seed: int, gap_us: int, setup_max_us: int, ledger: Ledger) -> None:
        self.me = me
        self.seed = seed
        self.gap_us = gap_us
        self.setup_max_us = setup_max_us
        self.ledger = ledger
        self.queues: dict[NodeId, list[tuple[int, int]]] = {}  # (place in the order, LSN)
        self.slots: dict[NodeId, int] = {}  # when something may go next

    def begin(self, peer: NodeId, now_us: int) -> None:
        """A contact begins; both ends draw the same set-up time."""
        one, other = sorted((self.me, peer))
        key = stream(self.seed, SETUP, purpose(one), purpose(other))
        self.queues[peer] = []
        self.slots[peer] = now_us + below(key, now_us, self.setup_max_us + 1)

    def end(self, peer: NodeId) -> None:
        """A contact ends."""
        self.queues.pop(peer, None)
        self.slots.pop(peer, None)

    def fill(self, session: PeerSession) -> None:
        """Draw the order of all that the peer lacks."""
        book = self.ledger.book
        queue = self.queues[session.peer] = []
        lsn = book.first
        while lsn < book.next:
            for entry in book.read(lsn, READ):
                if last_of(entry) > session.sent[entry[0]]:
                    queue.append((self._place(session.peer, entry), lsn))
                lsn += 1
        heapify(queue)

    def add(self, session: PeerSession, lsn: int, entry: Entry) -> None:
        """An entry is new here."""
        heappush(self.queues[session.peer], (self._place(session.peer, entry), lsn))

    def _place(self, peer: NodeId, entry: Entry) -> int:
        key = stream(self.seed, ORDER, purpose(self.me), purpose(peer))
        return bits(key ^ purpose(self.ledger.names[entry[0]]), entry[1])

    def due(self, session: PeerSession, now_us: int) -> Entry | None:
        """What goes to a peer now, if its slot has come and it takes more."""
        peer = session.peer
        if self.slots.get(peer, NEVER_US) > now_us or session.credit <= 0:
            return None
        queue, book = self.queues[peer], self.ledger.book
        while queue:
            _, lsn = heappop(queue)
            if lsn < book.first:
                continue
            entry = book.read(lsn, 1)[0]
            if last_of(entry) > session.sent[entry[0]] and (len(entry) == 6 or entry[3] == "expired"):
                self.slots[peer] = now_us + self.gap_us
                return entry
        return None

    def next_us(self, sessions: list[PeerSession]) -> int | None:
        """When something is due next."""
        return min(
            (self.slots[each.peer] for each in sessions if self.queues.get(each.peer) and each.credit > 0),
            default=None,
        )

    def save(self) -> list[Any]:
        """Plain data."""
        return [
            [peer, self.slots[peer], [list(pair) for pair in sorted(queue)]]
            for peer, queue in self.queues.items()
        ]

    def restore(self, saved: list[Any]) -> None:
        """Become what `save` described."""
        for peer, slot_us, queue in saved:
            self.slots[peer] = slot_us
            self.queues[peer] = [(place, lsn) for place, lsn in queue]
