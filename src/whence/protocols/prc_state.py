"""What a node keeps while links are being opened: as opener, as target, as mediator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whence.core.message import Message, NodeId

WAIT_BETA, WAIT_RHO, WAIT_RETURN = 0, 1, 2  # what the opener waits for


@dataclass
class Opening:
    """Our attempt to open a link (@Sender of Algorithm 2, and receiver of the way back)."""

    epoch: int
    route: tuple[NodeId, ...]
    attempt: int = 1
    phase: int = WAIT_BETA
    delivered: list[Message] = field(default_factory=list)  # since β: Bβ up to `cut`, then Bπ of the way back
    cut: int = 0  # how many were delivered before ρ

    def save(self) -> list[Any]:
        """As plain data."""
        delivered = [list(message) for message in self.delivered]
        return [self.epoch, list(self.route), self.attempt, self.phase, delivered, self.cut]

    @classmethod
    def load(cls, saved: list[Any]) -> Opening:
        """From what `save` gave."""
        epoch, route, attempt, phase, delivered, cut = saved
        return cls(epoch, tuple(route), attempt, phase, [Message(*each) for each in delivered], cut)


@dataclass
class Accepting:
    """Somebody's attempt to open a link to us (S[from], @Receiver of Algorithm 2)."""

    epoch: int
    route: tuple[NodeId, ...]
    before: list[tuple[NodeId, int]] = field(default_factory=list)  # Bα: α to π
    after: list[Message] = field(default_factory=list)  # Bπ: since π; also Bβ of the way back
    has_pi: bool = False

    def save(self) -> list[Any]:
        """As plain data."""
        after = [list(message) for message in self.after]
        return [self.epoch, list(self.route), [list(key) for key in self.before], after, self.has_pi]

    @classmethod
    def load(cls, saved: list[Any]) -> Accepting:
        """From what `save` gave."""
        epoch, route, before, after, has_pi = saved
        keys = [(origin, number) for origin, number in before]
        return cls(epoch, tuple(route), keys, [Message(*each) for each in after], has_pi)
