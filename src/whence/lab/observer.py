"""Observers: they watch a run through the cores, its rows, its packets, and the cores at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from whence.core.message import NodeId, Packet
from whence.core.protocol import Protocol as Core
from whence.sim.driver import Sent
from whence.trace.measures import Value
from whence.trace.schema import Kind, Level, Recorder


class Observer:
    """Subclass it. A hook that is not overridden costs nothing: it is asked for once, before the run."""

    level: Level = Level.MEASURES  # which rows `event` hears, whatever the trace keeps

    def event(
        self,
        node: str,
        time_us: int,
        kind: Kind,
        origin: str | None = None,
        number: int = 0,
        peer: str | None = None,
        total_bytes: int = 0,
        control_bytes: int = 0,
        detail: str | None = None,
    ) -> None:
        """Hear a row of the trace."""

    def sent(self, core: Core, to: tuple[NodeId, ...], packet: Packet, time_us: int) -> None:
        """See a packet that a core gives to its links."""

    def finished(self, cores: Sequence[Core], time_us: int) -> Mapping[str, Value]:
        """Return the measures of a run that is over."""
        return {}


def sent_hooks(observers: Sequence[Observer]) -> list[Sent]:
    """Return the hooks of those that see packets."""
    return [each.sent for each in observers if type(each).sent is not Observer.sent]


# The rows that are below a level and not above it: trace/rows.py writes them.
_KINDS = {
    Level.MEASURES: frozenset((Kind.BROADCAST, Kind.CRASH, Kind.RESTART, Kind.SAMPLE)),
    Level.DELIVERIES: frozenset((Kind.DELIVER, Kind.EXPIRE)),
    Level.ALL: frozenset(Kind),
}


class Fanout:
    """A recorder that passes the rows of a run on to several, to each those of its level."""

    def __init__(self, recorder: Recorder | None, level: Level, observers: Sequence[Observer]) -> None:
        told = [] if recorder is None else [(level, recorder.event)]
        told += [(each.level, each.event) for each in observers if type(each).event is not Observer.event]
        self.listeners = len(told)
        self.level = max((one for one, _ in told), default=Level.MEASURES)
        self._by_kind: dict[Kind, list[Callable[..., None]]] = {
            kind: [event for one, event in told if any(kind in _KINDS[at] for at in Level if at <= one)]
            for kind in Kind
        }

    def event(
        self,
        node: str,
        time_us: int,
        kind: Kind,
        origin: str | None = None,
        number: int = 0,
        peer: str | None = None,
        total_bytes: int = 0,
        control_bytes: int = 0,
        detail: str | None = None,
    ) -> None:
        """Pass on one row."""
        for event in self._by_kind[kind]:
            event(node, time_us, kind, origin, number, peer, total_bytes, control_bytes, detail)
