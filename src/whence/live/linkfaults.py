"""A testing aid: datagrams that are lost, doubled and overtaken on purpose, the same ones for the same seed.

What is drawn for the n-th datagram from one member to another is a function of (seed, both, n), so a run
meets the same faults however its processes are scheduled; which messages a datagram carries still depends
on timing. Faults are made where datagrams leave, and meet every kind of them: greetings and good-byes too.
"""

from __future__ import annotations

import msgspec

from whence.core.rng import chance, purpose, stream
from whence.errors import ParameterError

_LOSS, _DUPLICATE, _REORDER = (
    purpose("datagram loss"),
    purpose("datagram copy"),
    purpose("datagram held back"),
)


class LinkFaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do to the datagrams that a node sends. For tests and demonstrations, never for production."""

    loss: float = 0.0  # this share is not sent
    duplicate: float = 0.0  # this share is sent twice
    reorder: float = 0.0  # this share is held back for `reorder_s`, so that later ones overtake it
    reorder_s: float = 0.02
    seed: int = 0

    def check(self) -> None:
        """Refuse values that mean nothing, naming the field."""
        for name in ("loss", "duplicate", "reorder"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise ParameterError(f"fault {name!r}", f"{value!r} is not a share from 0 to 1", "Change it")
        held_s = self.reorder_s
        if isinstance(held_s, bool) or not isinstance(held_s, int | float) or not 0 < held_s <= 60:
            raise ParameterError(
                "fault 'reorder_s'", f"{held_s!r} is not above 0 and up to 60 seconds", "Change it"
            )
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise ParameterError("fault 'seed'", f"{self.seed!r} is not a whole number", "Change it")


class FaultyRoute:
    """The way from one member to another: decides what becomes of each datagram."""

    def __init__(self, faults: LinkFaults, sender: int, receiver: int) -> None:
        self._faults = faults
        self._keys = [stream(faults.seed, what, sender, receiver) for what in (_LOSS, _DUPLICATE, _REORDER)]
        self._sent = 0

    def copies(self) -> list[float]:
        """How much later each copy of the next datagram leaves; nothing if it is lost."""
        faults, index = self._faults, self._sent
        self._sent += 1
        loss, duplicate, reorder = self._keys
        if chance(loss, index, faults.loss):
            return []
        held_s = faults.reorder_s if chance(reorder, index, faults.reorder) else 0.0
        return [held_s, 0.0] if chance(duplicate, index, faults.duplicate) else [held_s]
