"""Packets that do nothing: a copy of what a node has may be taken from its link at any moment.

A packet is stale for a node if its receipt changes nothing: no state, nothing sent, nothing ended. Once no
fault is left to spend, such a receipt commutes with every other move, provided that a stale packet stays
stale whatever its node does meanwhile. That is not assumed: every local step that a search takes is compared
(each packet that is stale before it has to be stale after it), and the search goes without where that fails.
"""

from __future__ import annotations

from whence.explore.machine import UP, Machine


class NotStale(Exception):
    """A step of a node makes a packet count that would have done nothing before it."""


class Stale:
    """What is known to do nothing, and the local steps that were compared."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.found: dict[tuple[int, int, int, int], int] = {}  # (local, sender, packet, now_us) -> node
        self.steps: dict[tuple[int, int], int] = {}  # (local, after) -> node
        self._found_at: dict[int, list[tuple[int, int, int]]] = {}  # by local state
        self._after: dict[int, list[int]] = {}

    def is_stale(self, node: int, local: int, sender: int, packet: int, now_us: int) -> bool:
        """Whether the receipt of a packet changes nothing."""
        if (local, sender, packet, now_us) in self.found:
            return True
        if not self._changes_nothing(node, local, sender, packet, now_us):
            return False
        self.add(node, local, sender, packet, now_us)
        return True

    def _changes_nothing(self, node: int, local: int, sender: int, packet: int, now_us: int) -> bool:
        step = self._machine.step(node, local, ("receive", sender, packet, now_us))
        return step == (local, (), (), (), None, None)

    def add(self, node: int, local: int, sender: int, packet: int, now_us: int) -> None:
        """A packet is stale in a local state, so it has to be so in every later one."""
        pending = [local]
        while pending:
            local = pending.pop()
            if (local, sender, packet, now_us) in self.found or self._machine.status(local) != UP:
                continue
            if not self._changes_nothing(node, local, sender, packet, now_us):
                raise NotStale
            self.found[local, sender, packet, now_us] = node
            self._found_at.setdefault(local, []).append((sender, packet, now_us))
            pending += self._after.get(local, ())

    def stepped(self, node: int, local: int, after: int) -> None:
        """A node has gone from one local state to another."""
        if local == after or (local, after) in self.steps:
            return
        self.steps[local, after] = node
        self._after.setdefault(local, []).append(after)
        for sender, packet, now_us in self._found_at.get(local, ()):
            self.add(node, after, sender, packet, now_us)
