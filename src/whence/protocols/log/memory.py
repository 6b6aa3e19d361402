"""What an opening needs besides the entries of the log (R2, R22): checkpoints of order, members and chain.

One is made every `CHECKPOINT_EVERY` entries and before the log is cut, so that an opening looks at so many
entries, about, however old the log is.
"""

from __future__ import annotations

from whence.core.protocol import State
from whence.protocols.log.book import Book
from whence.protocols.log.chain import Chain
from whence.protocols.log.plain import PlainOrder
from whence.protocols.log.stability import Stability
from whence.protocols.log.timed import TimedOrder

CHECKPOINT_EVERY = 256


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
