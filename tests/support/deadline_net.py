"""A few cores of paper 002 with packets, time and timers in the test's hands."""

from __future__ import annotations

from collections.abc import Callable

from whence.core.effects import CancelTimer, Deliver, Discard, Effects, Expire, Send, SetTimer
from whence.core.message import NodeId
from whence.core.protocol import Protocol
from whence.protocols.deadline.wire import DeadlinePacket


class Net:
    """Cores on a full mesh; a packet stays in flight until the test lets it arrive."""

    def __init__(self, make: Callable[..., Protocol], members: str = "abc", **params: object) -> None:
        self.make = make
        self.cores = {me: make(me, list(members), **params) for me in members}
        self.now_us = 0
        self.flying: list[tuple[NodeId, NodeId, DeadlinePacket]] = []
        self.timers: dict[NodeId, tuple[int, str]] = {}
        self.delivered: dict[NodeId, list[str]] = {me: [] for me in members}
        self.times_us: dict[tuple[NodeId, str], int] = {}  # when a node delivered a message, the last time
        self.expired: dict[NodeId, list[str]] = {me: [] for me in members}
        self.discarded: dict[NodeId, list[Discard]] = {me: [] for me in members}
        self.offsets_us = dict.fromkeys(members, 0)  # what each clock shows beyond the true time
        for one in members:
            for other in members:
                if one != other:
                    self._carry_out(one, self.cores[one].link_up(other, 0))

    def at(self, time_us: int) -> None:
        """Let time pass; timers fire when they are due."""
        while True:
            due = [(when, node, key) for node, (when, key) in self.timers.items() if when <= time_us]
            if not due:
                break
            when, node, key = min(due)
            self.now_us = max(when, self.now_us)
            del self.timers[node]
            self._carry_out(node, self.cores[node].timer(key, self.local_us(node)))
        self.now_us = time_us

    def skip(self, time_us: int) -> None:
        """Let time pass while the hosts are too busy to fire timers."""
        self.now_us = time_us

    def local_us(self, node: NodeId) -> int:
        return self.now_us + self.offsets_us[node]

    def broadcast(self, node: NodeId, lifetime_us: int = 1_000_000) -> None:
        core = self.cores[node]
        self._carry_out(node, core.broadcast_within(b"x", lifetime_us, self.local_us(node)))

    def arrive(self, sender: NodeId, to: NodeId, message: str | None = None, *, keep: bool = False) -> None:
        """The oldest packet between the two arrives: the one with that message, if one is named."""
        at = self._find(sender, to, message)
        packet = self.flying[at][2] if keep else self.flying.pop(at)[2]
        self._carry_out(to, self.cores[to].receive(sender, packet, self.local_us(to)))

    def lose(self, sender: NodeId, to: NodeId, message: str | None = None) -> None:
        del self.flying[self._find(sender, to, message)]

    def restart(self, node: NodeId) -> None:
        fresh = self.make(node, list(self.cores))
        fresh.restore(self.cores[node].save())
        self.cores[node] = fresh

    def _find(self, sender: NodeId, to: NodeId, message: str | None) -> int:
        for at, (one, other, packet) in enumerate(self.flying):
            carried = [str(id_) for id_ in self._ids(one, packet)]
            if (one, other) == (sender, to) and (message is None or message in carried):
                return at
        raise AssertionError(f"nothing of {message} is on its way from {sender} to {to}")

    def _ids(self, node: NodeId, packet: DeadlinePacket) -> list[object]:
        core = self.cores[node]
        first = core.message_of(packet)
        return [first, *core.further_messages_of(packet)] if first else []

    def _carry_out(self, node: NodeId, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                for to in effect.to:
                    assert isinstance(effect.packet, DeadlinePacket)
                    self.flying.append((node, to, effect.packet))
            elif isinstance(effect, Deliver):
                self.delivered[node].append(str(effect.message.id))
                self.times_us[node, str(effect.message.id)] = self.now_us
            elif isinstance(effect, Expire):
                self.expired[node].append(f"{effect.id} {effect.reason}")
            elif isinstance(effect, Discard):
                self.discarded[node].append(effect)
            elif isinstance(effect, SetTimer):
                self.timers[node] = (effect.at_us - self.offsets_us[node], effect.key)
            elif isinstance(effect, CancelTimer):
                self.timers.pop(node, None)
