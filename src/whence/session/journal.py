"""The journal of the links: recent events, errors counted by type, and a log that cannot be flooded."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from whence.errors import WhenceError

log = logging.getLogger("whence.live")

EVENTS_KEPT = 1000
_SOURCES_KEPT = 256


class GroupEvent(NamedTuple):
    """Something that an operator may want to know."""

    time_s: float  # wall clock
    kind: str  # "connected", "disconnected", "left", "given up", "refused", "fault", "waiting", "lost"
    peer: str | None
    detail: str
    error: WhenceError | None = None


class Journal:
    """Counts everything, keeps the newest events, logs each problem once until it is over."""

    def __init__(self, node: str, wall_s: Callable[[], float]) -> None:
        self._node = node
        self._wall_s = wall_s  # the wall clock, in seconds
        self.events: deque[GroupEvent] = deque(maxlen=EVENTS_KEPT)
        self.peer_errors: Counter[str] = Counter()
        self._logged: dict[tuple[str, str, str], None] = {}  # in order of age, bounded

    def note(self, kind: str, peer: str | None, detail: str, level: int = logging.INFO) -> None:
        """Something happened that is not a peer's fault."""
        self.events.append(GroupEvent(self._wall_s(), kind, peer, detail))
        self._log(level, kind, peer or kind, detail, (peer or kind, kind, detail))

    def fault(self, kind: str, source: str, error: WhenceError) -> None:
        """A peer (or a stranger at `source`) did what it must not do."""
        self.peer_errors[type(error).__name__] += 1
        self.events.append(GroupEvent(self._wall_s(), kind, source, str(error), error))
        self._log(logging.WARNING, kind, source, str(error), (source, type(error).__name__, error.reason))

    def _log(self, level: int, kind: str, source: str, text: str, key: tuple[str, str, str]) -> None:
        """Say it once until it is over, with its parts for handlers that keep them."""
        if level >= logging.WARNING:
            level = logging.DEBUG if key in self._logged else level
            self._logged[key] = None
            if len(self._logged) > _SOURCES_KEPT:
                del self._logged[next(iter(self._logged))]
        parts = {"whence_node": self._node, "whence_kind": kind, "whence_source": source}
        log.log(level, "%s: %s: %s", self._node, source, text, extra=parts)

    def recovered(self, source: str) -> None:
        """The link works again: the next problem is news."""
        for key in [key for key in self._logged if key[0] == source or key[0].startswith(f"{source!r} at ")]:
            del self._logged[key]
