"""Messages that came too early, each kept under the first id that it was found to miss.

A held message cannot become deliverable before that one id is delivered, so nothing else needs to look at
it: a delivery costs what it releases, not what is held. Released messages go depth first, those that waited
for one id in order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

Item = TypeVar("Item")
Key: TypeAlias = tuple[int, int]  # (member, number): an id, or a place in the order of one pair of nodes


class HoldBack(Generic[Item]):
    """What a node holds back. A core may alias `held` and `waiters` for its fast path: they stay the same."""

    def __init__(self) -> None:
        self.held: dict[Key, tuple[Item, int]] = {}  # id -> the message, since when (us)
        self.waiters: dict[Key, list[Key]] = {}  # missing id -> what waits for it, in order of arrival

    def __len__(self) -> int:
        return len(self.held)

    def hold(self, key: Key, item: Item, since_us: int, missing: Key) -> None:
        """Keep a message until `missing` is delivered."""
        self.held[key] = (item, since_us)
        self.waiters.setdefault(missing, []).append(key)

    def release(self, key: Key, missing_of: Callable[[Item], Key | None]) -> Iterator[Item]:
        """Yield what waited for `key`, which is delivered, and misses nothing more.

        The caller delivers a message before it asks for the next one, because `missing_of` is then asked
        about what waited for that message too.
        """
        held, waiters = self.held, self.waiters
        stack: list[Key] = []
        freed = waiters.pop(key, None)
        while freed or stack:
            if freed:
                stack += freed[::-1] if len(freed) > 1 else freed
                freed = None
            waiter = stack.pop()
            item = held[waiter][0]
            missing = missing_of(item)
            if missing is not None:
                waiters.setdefault(missing, []).append(waiter)
                continue
            del held[waiter]
            yield item
            freed = waiters.pop(waiter, None)

    def take_all(self) -> list[tuple[Key, tuple[Item, int]]]:
        """Empty it; returns what was held."""
        held = list(self.held.items())
        self.held.clear()
        self.waiters.clear()
        return held

    def broken_rule(self, is_delivered: Callable[[Key], bool]) -> str | None:
        """Return the invariant that does not hold; None if all do."""
        for key in self.held:
            if is_delivered(key):
                return f"{key} is held and delivered"
        if sorted(key for keys in self.waiters.values() for key in keys) != sorted(self.held):
            return "each held message waits in exactly one place"
        for missing in self.waiters:
            if is_delivered(missing):
                return f"{missing} is delivered and waited for"
        return None

    def save_waiters(self) -> list[Any]:
        """Return who waits for what as plain data; the messages themselves are the core's to save."""
        return [[list(missing), [list(key) for key in keys]] for missing, keys in self.waiters.items()]

    def restore_waiters(self, saved: list[Any]) -> None:
        """Take back what `save_waiters` returned, into an empty hold-back."""
        for (member, number), keys in saved:
            self.waiters[member, number] = [(origin, count) for origin, count in keys]
