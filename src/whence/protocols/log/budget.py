"""How much a peer may ask of a node in a span of time; by name, so that a new session begins nothing anew."""

from __future__ import annotations

NAMES_MAX = 4_096  # names that are counted at a time; the oldest span is forgotten first


class Budget:
    """So much for each name in every span of time; a span begins with the first use."""

    def __init__(self, most: int, span_us: int) -> None:
        self.most = most
        self.span_us = span_us
        self.used: dict[str, tuple[int, int]] = {}  # name -> when its span began, what it has used since

    def take(self, name: str, wanted: int, now_us: int) -> int:
        """Use some; returns how much of it there was."""
        since_us, used = self.used.get(name, (now_us, 0))
        if not since_us <= now_us < since_us + self.span_us:
            since_us, used = now_us, 0
        granted = min(wanted, self.most - used)
        self.used.pop(name, None)
        self.used[name] = (since_us, used + granted)
        if len(self.used) > NAMES_MAX:
            del self.used[next(iter(self.used))]
        return granted
