"""One connection: what the peer has, what it was sent, how much more it takes. A peer is a cursor."""

from __future__ import annotations

from typing import Any

from whence.core.message import NodeId
from whence.protocols.log.wire import Name

GREETING, COMPARING, SYNCED = range(3)  # stages: before its HELLO, while summaries are compared, after


class PeerSession:
    """Everything that a node knows of one peer for as long as one link is up. Indices are this node's own."""

    __slots__ = (
        "asked_floor", "back", "back_end", "base", "credit", "cursor", "depth", "floor", "have", "is_main",
        "is_member", "is_over", "levels", "near", "peer", "pruned", "root", "sent", "stage",
        "start", "stopped", "stream", "streams", "taken", "theirs", "told", "wanted",
    )  # fmt: skip

    def __init__(self, peer: NodeId, streams: int, start: int, credit: int) -> None:
        self.peer = peer
        self.stage = GREETING
        self.stream = -1  # the peer's own; -1 before its HELLO
        self.is_member = False  # of a group with stability
        self.is_over = False  # it has used more than it may: the step that finds out ends it
        # What was said in the HELLO to the peer: both ends compare the same two states.
        self.base: list[int] = []  # D
        self.root = self.streams = self.depth = 0
        self.levels: list[list[int]] = []
        self.start = start  # LSN at that moment: what is newer is pushed
        # Names of streams
        self.theirs: dict[int, int] = {}  # its index of a stream -> ours
        self.told: set[int] = set()  # our indices that it was told the meaning of
        # What it has, by our index
        self.have = [0] * streams  # as it said, or gave
        self.sent = [0] * streams  # has or was sent
        self.floor: dict[int, int] = {}  # what it has cut off, as far as it said
        # What it takes from us
        self.credit = credit
        self.pruned: set[int] = set()  # streams that it gets from elsewhere
        self.near: set[int] = set()  # streams that it hears from their origins
        self.cursor = 0  # LSN from which new entries are to be pushed; 0: it was offered all
        self.back = self.back_end = 0  # the backlog still to be walked; 0: none
        self.is_main = False  # it takes the whole backlog from us
        self.wanted: set[int] = set()  # or these streams
        # What we take from it
        self.taken = 0  # items that are not acknowledged yet
        self.stopped: set[int] = set()  # streams that we pruned
        self.asked_floor = False

    def grow(self, streams: int) -> None:
        """There are that many streams now."""
        more = [0] * (streams - len(self.sent))
        self.have += more
        self.sent += more

    def skips(self, stream: int) -> bool:
        """Whether new entries of another's stream are not pushed."""
        return stream in self.pruned or stream in self.near or stream == self.stream

    def save(self) -> list[Any]:
        """Plain data."""
        return [
            self.peer, self.stage, self.stream, self.is_member, list(self.base), self.root, self.streams,
            self.depth, [list(level) for level in self.levels], self.start,
            [list(pair) for pair in self.theirs.items()], sorted(self.told), list(self.have), list(self.sent),
            [list(pair) for pair in self.floor.items()], self.credit, sorted(self.pruned), sorted(self.near),
            self.cursor, self.back, self.back_end, self.is_main, sorted(self.wanted), self.taken,
            sorted(self.stopped), self.asked_floor,
        ]  # fmt: skip

    @classmethod
    def restored(cls, saved: list[Any]) -> PeerSession:
        """The session that `save` described."""
        self = cls(saved[0], 0, 0, 0)
        (
            _, self.stage, self.stream, self.is_member, self.base, self.root, self.streams,
            self.depth, self.levels, self.start,
            theirs, told, self.have, self.sent, floor, self.credit, pruned, near,
            self.cursor, self.back, self.back_end, self.is_main, wanted, self.taken,
            stopped, self.asked_floor,
        ) = saved  # fmt: skip
        self.base, self.have, self.sent = list(self.base), list(self.have), list(self.sent)
        self.levels = [list(level) for level in self.levels]
        self.theirs, self.floor = dict(theirs), dict(floor)
        self.told, self.pruned, self.near = set(told), set(pruned), set(near)
        self.wanted, self.stopped = set(wanted), set(stopped)
        return self


def untold(session: PeerSession, names: list[str], indices: list[int]) -> tuple[Name, ...]:
    """The names of those indices that the peer does not know; it knows them from now on."""
    told = session.told
    fresh = sorted({index for index in indices if index not in told})
    told.update(fresh)
    return tuple((index, names[index]) for index in fresh)
