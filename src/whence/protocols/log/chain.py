"""A hash chain through each life (R5): a process that was forked in memory shows.

With `chain` every message carries in front of its payload the hash of the message before it in its stream, 32
bytes. Two processes that go on with one life say two things under one number; a node that has one of them and
gets the other, or what follows the other, has the proof. It is told once (`Forked`), and nothing stops: which
of the two is right cannot be said, and each node keeps what came first.

What was passed over leaves nothing to compare with: the chain begins again behind a gap.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from whence.core.effects import Reason
from whence.protocols.log.book import Entry
from whence.protocols.log.ledger import Ledger
from whence.protocols.log.wire import Item

LINK_BYTES = 32
START = bytes(LINK_BYTES)  # before the first message of a life


class Chain:
    """The hash of the newest message of each stream, as far as it is known."""

    def __init__(self, ledger: Ledger, stride: int) -> None:
        self.ledger = ledger
        self.newest: dict[int, bytes] = {}
        self.forked: set[int] = set()
        self._stride = stride

    def link(self, stream: int) -> bytes:
        """What the next message of a stream begins with."""
        return self.newest.get(stream, START)

    def logged(self, entry: Entry) -> bool:
        """An entry was logged; returns whether it shows, for the first time, that its stream is forked."""
        stream = entry[0]
        if len(entry) == 4:
            self.newest.pop(stream, None)
            return False
        expected = START if entry[1] == 1 else self.newest.get(stream)
        self.newest[stream] = self.hash_of(entry)
        return expected is not None and entry[4][:LINK_BYTES] != expected and self.tell(stream)

    def came_again(self, entry: Item) -> bool:
        """A message came whose number was logged; returns whether that shows a fork for the first time."""
        stream, number = entry[0], entry[1]
        lsn = self.ledger.book.find(stream, number)
        if lsn is None:
            return False
        [known] = self.ledger.book.read(lsn, 1)
        is_same = len(known) == 4 or known[1] != number or self.hash_of(known) == self.hash_of(entry)
        return not is_same and self.tell(stream)

    # rule 001 R5: two messages with one number prove that a life was forked
    def is_forked(self, entry: Item, reason: Reason) -> bool:
        """A message was refused; returns whether that shows a fork for the first time."""
        if reason is Reason.DUPLICATE:
            return self.came_again(entry)
        return reason is Reason.FORGED and self.tell(entry[0])

    def tell(self, stream: int) -> bool:
        """A stream is forked; returns whether that is new."""
        is_new = stream not in self.forked
        self.forked.add(stream)
        return is_new

    def hash_of(self, entry: Item) -> bytes:
        """Of all that a message says; streams by name, because indices are each node's own."""
        stream, number, until, after, payload, mark = entry
        names, stride = self.ledger.names, self._stride
        starts = range(0, len(after), stride)
        barrier = sorted((names[after[at]], *after[at + 1 : at + stride]) for at in starts)
        head = repr((names[stream], number, until, barrier, mark)).encode(errors="surrogatepass")
        key = blake2b(head, digest_size=LINK_BYTES).digest()
        return blake2b(payload, digest_size=LINK_BYTES, key=key).digest()

    def save(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "newest": [list(pair) for pair in self.newest.items()],
            "forked": sorted(self.forked),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `save` described."""
        self.newest, self.forked = dict(state["newest"]), set(state["forked"])
