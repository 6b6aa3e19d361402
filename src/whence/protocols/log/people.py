"""Who is there: news of names and lives for the application (R3, R26). Nothing here changes a delivery."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from whence.core.effects import Effects, Tell
from whence.core.lives import Joined, Left, OtherLife, RolledBack, Stream, Suspected, split_stream
from whence.core.message import NodeId
from whence.protocols.log.session import PeerSession


class People:
    """The names that were heard of, and the lives of this node's own name."""

    def __init__(self, me: NodeId, lives: Iterable[Stream], suspect_us: int) -> None:
        self.me = me
        self.lives = set(lives)  # that this node's store knows
        self.suspect_us = suspect_us
        self.streams: dict[NodeId, list[int]] = {}
        self.here: set[NodeId] = set()  # joined, and neither left nor suspected
        self.away: dict[NodeId, tuple[int, int]] = {}  # no session: since when, with how many messages known
        self._noted = 0  # streams that were looked at
        self._told: dict[int, int] = {}  # stream of an earlier life -> what was told about it

    # rule 001 R3: a life of this node's name that its store does not know
    def note(self, names: Sequence[Stream], effects: Effects, *, quiet: bool = False) -> None:
        """Look at streams that are new."""
        for index in range(self._noted, len(names)):
            name, life = split_stream(names[index])
            self.streams.setdefault(name, []).append(index)
            if name == self.me:
                if names[index] not in self.lives and not quiet:
                    effects.append(Tell(OtherLife(life)))
            elif not quiet:
                self._join(name, effects)
        self._noted = len(names)

    # rule 001 R26: comings and goings are events
    def _join(self, name: NodeId, effects: Effects) -> None:
        if name not in self.here:
            self.here.add(name)
            effects.append(Tell(Joined(name)))

    def met(self, name: NodeId, effects: Effects) -> None:
        """A session with a node has begun."""
        self.away.pop(name, None)
        self._join(name, effects)

    def parted(self, name: NodeId, now_us: int, newest: Sequence[int]) -> None:
        """A session with a node has ended."""
        self.away[name] = (now_us, self._known(name, newest))

    def left(self, name: NodeId, effects: Effects) -> None:
        """A node has said that it goes."""
        if name in self.here:
            self.here.discard(name)
            effects.append(Tell(Left(name)))

    def _known(self, name: NodeId, newest: Sequence[int]) -> int:
        return sum(newest[stream] for stream in self.streams.get(name, ()))

    def tick(self, now_us: int, newest: Sequence[int], effects: Effects) -> bool:
        """Suspect who is away and gave no sign of life; returns whether anybody is still waited for."""
        for name, (since_us, known) in list(self.away.items()):
            if now_us - since_us < self.suspect_us:
                continue
            fresh = self._known(name, newest)
            if fresh != known:
                self.away[name] = (now_us, fresh)
                continue
            del self.away[name]
            if name in self.here:
                self.here.discard(name)
                effects.append(Tell(Suspected(name)))
        return bool(self.away)

    # rule 001 R3: a peer has more of an earlier life of this node than its store
    def look_back(
        self, names: Sequence[Stream], own: int, have: Sequence[int], newest: Sequence[int], effects: Effects
    ) -> None:
        """A peer has said what it has: look at the earlier lives of this node."""
        for stream in self.streams.get(self.me, ()):
            seen = have[stream]
            if stream == own or seen <= newest[stream] or names[stream] not in self.lives:
                continue
            if seen > self._told.get(stream, 0):
                self._told[stream] = seen
                effects.append(Tell(RolledBack(split_stream(names[stream])[1], newest[stream], seen)))

    # rule 001 R17: a life is admitted when all that its node has of its earlier lives is here
    def is_level(self, session: PeerSession, newest: Sequence[int]) -> bool:
        """Whether this node has of a peer's lives all that the peer has: only then may they be retired."""
        lives = self.streams.get(session.peer, ())
        return all(session.have[stream] <= newest[stream] for stream in lives)

    def save(self) -> dict[str, Any]:
        """Plain data; the streams of names follow from the ledger."""
        return {
            "here": sorted(self.here),
            "away": [[name, *pair] for name, pair in self.away.items()],
            "told": [list(pair) for pair in self._told.items()],
        }

    def restore(self, state: dict[str, Any], names: Sequence[Stream]) -> None:
        """Become what `save` described."""
        self.note(names, [], quiet=True)
        self.here = set(state["here"])
        self.away = {name: (since_us, known) for name, since_us, known in state["away"]}
        self._told = dict(state["told"])
