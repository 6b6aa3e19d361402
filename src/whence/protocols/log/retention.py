"""What is kept: where the log may be cut, and the checkpoints that stand for what is gone (R2, R21, R22).

Only a prefix is cut, and only what the reader is done with.

    keep        what is cut                                            what a newcomer is told
    forever     nothing                                                nothing: it gets everything
    lifetime    what has died everywhere                               Missed("expired")
    stable      what every member that counts has delivered            Missed("truncated")
    count       all but the newest `keep_count` entries                Missed("truncated")
    bytes       all but about `keep_bytes`                             Missed("truncated")

Beyond `max_bytes` (0: no limit) even what the reader has not taken goes: Missed("unread") says what it was.

What an opening needs besides the entries are checkpoints of order, members and chain. One is made every
`CHECKPOINT_EVERY` entries and before the log is cut, so that an opening looks at that many entries, about,
however old the log is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whence.core.effects import Effects, Missed
from whence.core.parameters import Parameter, choice, whole
from whence.core.protocol import State
from whence.protocols.log.book import Book, Entry, entry_bytes, last_of
from whence.protocols.log.chain import Chain
from whence.protocols.log.ledger import Ledger
from whence.protocols.log.plain import PlainOrder
from whence.protocols.log.stability import Stability
from whence.protocols.log.timed import TimedOrder

FOREVER, LIFETIME, STABLE, COUNT, BYTES = KEEPS = ("forever", "lifetime", "stable", "count", "bytes")
SLACK = 4  # cut when a quarter too much is kept: not at every entry
READ = 256
CHECKPOINT_EVERY = 256

PARAMETERS: tuple[Parameter, ...] = (
    choice("keep", FOREVER, KEEPS),
    whole("keep_count", 10_000, 1, 1 << 40),
    whole("keep_bytes", 1 << 26, 1, 1 << 50),
    whole("max_bytes", 0, 0, 1 << 50),
)


class Retention:
    """When and where to cut."""

    def __init__(self, options: Mapping[str, Any], skew_us: int) -> None:
        self.keep: str = options["keep"]
        self.count: int = options["keep_count"]
        self.bytes: int = options["keep_bytes"]
        self.max_bytes: int = options["max_bytes"]
        self.skew_us = skew_us
        self.by_size = self.keep in (COUNT, BYTES) or bool(self.max_bytes)  # else looked at now and then
        self.waits = False  # more is to be cut as soon as the reader is done with it

    def point(self, ledger: Ledger, now_us: int, stable: Sequence[int], effects: Effects) -> int:
        """The LSN below which the log is to be cut; `book.first`: nowhere."""
        book = ledger.book
        point = book.first
        end = book.cursor + 1  # no farther can be cut, and that it would be is all there is to know
        if self.keep == COUNT:
            kept = book.next - book.first
            if kept * SLACK > self.count * (SLACK + 1):
                point = book.next - self.count
        elif self.keep == BYTES:
            if book.size_bytes * SLACK > self.bytes * (SLACK + 1):
                point = self._heavy(book, book.size_bytes - self.bytes, end)
        elif self.keep == LIFETIME:
            point = self._while(book, lambda entry: self._is_dead(entry, now_us), end)
        elif self.keep == STABLE:
            point = self._while(
                book, lambda entry: last_of(entry) <= (stable[entry[0]] if entry[0] < len(stable) else 0), end
            )
        self.waits = point > book.cursor
        point = min(point, book.cursor)
        unread = self._unread_point(book)
        if unread > max(point, book.cursor):
            self._drop_unread(ledger, unread, effects)
            return unread
        return point

    def _drop_unread(self, ledger: Ledger, point: int, effects: Effects) -> None:
        """Tell the application what it will not read any more: of each stream, first and last."""
        lost: dict[int, tuple[int, int]] = {}
        book = ledger.book
        lsn = book.cursor
        while lsn < point:
            for entry in book.read(lsn, min(READ, point - lsn)):
                first, _ = lost.get(entry[0], (entry[1], 0))
                lost[entry[0]] = (first, last_of(entry))
                lsn += 1
        book.done_before(point)
        for stream, (first, last) in lost.items():
            effects.append(Missed(ledger.names[stream], first, last, "unread"))

    def _unread_point(self, book: Book) -> int:
        """The LSN below which the log must be cut although the reader is not done; `book.first`: nowhere."""
        if not self.max_bytes or book.size_bytes <= self.max_bytes:
            return book.first
        return self._heavy(book, book.size_bytes - self.max_bytes * (SLACK - 1) // SLACK, book.next)

    def _is_dead(self, entry: Entry, now_us: int) -> bool:
        return len(entry) == 4 or 0 < entry[2] < now_us - self.skew_us

    def _heavy(self, book: Book, too_much: int, end: int) -> int:
        def take(entry: Entry) -> bool:
            nonlocal too_much
            too_much -= entry_bytes(entry)
            return too_much > -entry_bytes(entry)

        return self._while(book, take, end)

    def _while(self, book: Book, holds: Any, end: int) -> int:
        """The first LSN from `first` up to `end` whose entry is another."""
        lsn, end = book.first, min(end, book.next)
        while lsn < end:
            for entry in book.read(lsn, min(READ, end - lsn)):
                if not holds(entry):
                    return lsn
                lsn += 1
        return lsn


class Memory:
    """The newest checkpoint of a book, and the parts of a core that it tells of."""

    def __init__(self, book: Book, stability: Stability | None, chain: Chain | None) -> None:
        self.book = book
        self.stability = stability
        self.chain = chain
        self.at = book.first  # LSN of the newest; there is no newer one than that

    @property
    def is_due(self) -> bool:
        """Whether it is time for another."""
        return self.book.next - self.at >= CHECKPOINT_EVERY

    def keep(self, order: PlainOrder | TimedOrder) -> None:
        """Write one."""
        self.at = self.book.next
        stability = None if self.stability is None else self.stability.save()
        state: State = {"order": order.memory(), "stability": stability}
        if self.chain is not None:
            state["chain"] = self.chain.save()
        self.book.checkpoint(state)

    def recall(self, order: PlainOrder | TimedOrder) -> None:
        """Take up what earlier lives knew: the newest checkpoint and the entries since."""
        book, stability, chain = self.book, self.stability, self.chain
        lsn = book.first
        saved = book.last_checkpoint()
        if saved is not None:
            at, state = saved
            lsn = self.at = max(lsn, at)
            order.remember(state["order"])
            if stability is not None and state["stability"] is not None:
                stability.restore(state["stability"])
            if chain is not None:
                chain.restore(state["chain"])
        while lsn < book.next:
            for entry in book.read(lsn, CHECKPOINT_EVERY):
                order.replay(entry)
                if stability is not None:
                    stability.logged(entry)
                if chain is not None:
                    chain.logged(entry)
                lsn += 1
