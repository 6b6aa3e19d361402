"""Which part of a group a node is in, where no node knows all the others, and who of it was lost.

The oldest process of a part counts, and what it counts goes over all links in use: so every process of the
part knows it, and whom the counting no longer reaches soon knows another one. A process whose link was lost
is called again and again: if it then knows another oldest process, the group was split, and the part with the
younger one gives way. It costs one small packet a second on each link.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from whence.core.message import NodeId
from whence.session.addresses import Address
from whence.session.overlay_wire import Oldest

COUNT_S = 1.0
SETTLED_S = 3.0  # so long nothing changed: what a process says of its part can be compared
LOST_MAX = 64
_OVER_MAX = 64
_PAUSE_S = (1.0, 15.0)  # between two calls to a lost process: a tenth of the time that it is lost

Process = tuple[int, NodeId]  # when it began, and its name


class Seen(Enum):
    """What another process says of its part."""

    SAME = 1
    OLDER = 2
    YOUNGER = 3


class Part:
    """What one process knows of its own part."""

    def __init__(self, me: NodeId, born_us: int, patience_s: float, now_s: float) -> None:
        self.patience_s = patience_s  # without a new count, until its oldest process is held for gone
        self.oldest = self._mine = (born_us, me)
        self._count = self._own_count = 0
        self._over: dict[Process, int] = {}  # held for gone -> the last count
        self._heard_s = now_s
        self._since_s = now_s + patience_s  # a node that was let in is not the oldest, and will hear who is
        self._told_s = 0.0
        self._is_news = False

    def founded(self, now_s: float) -> None:
        """This process is the first of its part."""
        self._since_s = now_s

    def is_settled(self, now_s: float) -> bool:
        """Whether the oldest process has been the same for some time."""
        return now_s - self._since_s >= SETTLED_S

    def word(self, now_s: float) -> Oldest:
        """What this process says of its part."""
        age_ms = 0 if self.oldest == self._mine else int(1000 * (now_s - self._heard_s))
        return Oldest(*self.oldest, self._count, age_ms, self.is_settled(now_s))

    def tick(self, now_s: float) -> bool:
        """Every `COUNT_S`: whether the neighbours must be told."""
        if self.oldest != self._mine and now_s - self._heard_s > self.patience_s:
            self._over[self.oldest] = self._count
            if len(self._over) > _OVER_MAX:
                del self._over[next(iter(self._over))]
            self._change(self._mine, self._own_count, now_s)
        if self.oldest == self._mine:
            self._own_count += 1
            self._count = self._own_count
            self._is_news = True
        if now_s - self._told_s >= COUNT_S:  # a new neighbour must hold the oldest for gone when we do
            self._is_news = True
        return self._is_due(now_s)

    def hear(self, said: Oldest, now_s: float) -> bool:
        """A neighbour's word; whether the others must be told at once, which is at most twice a second."""
        process, heard_s = (said.born_us, said.name), now_s - said.age_ms / 1000
        if process > self.oldest or process == self._mine or said.count <= self._over.get(process, -1):
            return False
        if now_s - heard_s > self.patience_s:  # so that all hold it for gone at the same time
            return False
        if process == self.oldest and said.count <= self._count:
            return False
        if process < self.oldest:
            # A neighbour that has known it for long has waited for older ones already.
            self._change(process, said.count, now_s - SETTLED_S if said.is_settled else now_s)
        self._count = said.count
        self._heard_s = heard_s
        self._is_news = True
        return self._is_due(now_s)

    def _change(self, oldest: Process, count: int, since_s: float) -> None:
        self.oldest, self._count, self._since_s = oldest, count, since_s

    def _is_due(self, now_s: float) -> bool:
        if not self._is_news or now_s - self._told_s < COUNT_S / 2:
            return False
        self._is_news = False
        self._told_s = now_s
        return True

    def judge(self, said: Oldest, now_s: float) -> Seen | None:
        """Compare with what a process says that is no neighbour; None: one of the two does not know yet."""
        if not said.is_settled or not self.is_settled(now_s):
            return None
        process = (said.born_us, said.name)
        if process == self.oldest:
            return Seen.SAME
        return Seen.OLDER if process < self.oldest else Seen.YOUNGER


@dataclass
class _Lost:
    address: Address
    since_s: float
    due_s: float


@dataclass
class Lost:
    """Processes whose links were lost: they may be dead, or in another part."""

    _processes: dict[NodeId, _Lost] = field(default_factory=dict)

    def add(self, name: NodeId, address: Address, now_s: float) -> None:
        """The link to `name` has gone, and neither end had let it go."""
        self._processes.pop(name, None)
        self._processes[name] = _Lost(address, now_s, now_s + _PAUSE_S[0])
        if len(self._processes) > LOST_MAX:
            del self._processes[next(iter(self._processes))]

    def found(self, name: NodeId) -> None:
        """It is in our part."""
        self._processes.pop(name, None)

    def lost_for_s(self, name: NodeId, now_s: float) -> float:
        """For how long it has been lost; 0 if it is not."""
        lost = self._processes.get(name)
        return 0.0 if lost is None else now_s - lost.since_s

    def due(self, busy: Iterable[NodeId], now_s: float) -> list[tuple[NodeId, Address]]:
        """Whom to call now."""
        waits = set(busy)
        found = [
            (name, lost)
            for name, lost in self._processes.items()
            if lost.due_s <= now_s and name not in waits
        ]
        for _, lost in found:
            lost.due_s = now_s + min(max(_PAUSE_S[0], (now_s - lost.since_s) / 10), _PAUSE_S[1])
        return [(name, lost.address) for name, lost in found]
