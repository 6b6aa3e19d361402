"""The streams of a node's log: what is accounted for, what was cut off, and the book that has the entries.

    D[stream]   `newest`   the newest number that was delivered or logged as missed (R6, R7)
    F[stream]   `floor`    the newest number that was cut off or jumped over (R6, R8)

D and F are causally closed: D grows by deliveries in causal order and by jumps to another node's D or F, F by
cutting a prefix of the log and by the same jumps (R8, R21).
"""

from __future__ import annotations

from whence.core.lives import Stream
from whence.protocols.log.book import Book, Entry
from whence.protocols.log.summary import Summary


class Ledger:
    """Streams by index. A core may alias the lists for its fast path: they stay the same."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.names: list[Stream] = []
        self.index: dict[Stream, int] = {}
        self.newest: list[int] = []
        self.floor: list[int] = []
        self.summary = Summary()
        for stream, newest, floor in book.streams():
            self._place(stream, newest, floor)

    def _place(self, stream: Stream, newest: int, floor: int) -> None:
        self.index[stream] = len(self.names)
        self.names.append(stream)
        self.newest.append(newest)
        self.floor.append(floor)
        self.summary.add(stream)

    def add(self, stream: Stream) -> int:
        """A stream that is new here; returns its index."""
        index = self.book.add_stream(stream)
        self._place(stream, 0, 0)
        return index

    # rule 001 R6: the log is a sequence in local delivery order
    # rule 001 R7: D advances by a delivery of D + 1 or by a logged gap
    def append(self, entry: Entry) -> int:
        """Log a message or a gap, and account for it."""
        self.newest[entry[0]] = entry[1] if len(entry) == 6 else entry[2]
        return self.book.append(entry)

    def raise_floor(self, stream: int, number: int) -> None:
        """F of a stream."""
        if number > self.floor[stream]:
            self.floor[stream] = number
            self.book.raise_floor(stream, number)

    # rule 001 R21: only a prefix of the log is cut, so F stays a closed cut
    def cut(self, lsn: int) -> dict[int, int]:
        """Cut the log below `lsn`; returns what F became of each stream that it raised."""
        raised = self.book.cut(lsn)
        for stream, number in raised.items():
            self.floor[stream] = number
        return raised
