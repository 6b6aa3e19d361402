"""Where a node without a list of members finds the others: contacts, and the addresses that peers tell.

A group of up to `MESH_MAX` nodes becomes a full mesh; in a larger one a node makes `DIALS_MAX` links of its
own choice, so that the group stays connected and no node but a contact has many. An address that was heard of
only leads to a call: who is there is found out in the handshake. A node passes on no hearsay: it names the
peers that it is linked to, with the addresses that these gave themselves.

No address is ever given up while there is room: two halves of a group must find each other again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from whence.core.message import NodeId
from whence.session.addresses import Address

MESH_MAX = 64  # nodes, up to which everyone is linked to everyone: to relay costs more (docs/performance.md)
DIALS_MAX = 5  # links that a node of a larger group makes itself: about twice as many in all
KNOWN_MAX = 1024
TOLD_MAX = 64  # addresses in one HELLO
LAST_RESORT_S = 300.0  # how often an address is tried that has not worked for long
_PATIENT_AFTER = 12  # attempts
_COURTESY_S = 1.0  # of two nodes the smaller name dials; the other one only if that does not come about


class Shuffler(Protocol):
    """A source of randomness, as `random.Random` is one."""

    def random(self) -> float:
        """From 0 to 1."""

    def shuffle(self, x: list[Acquaintance]) -> None:
        """Put a list into any order."""


@dataclass
class Acquaintance:
    """A node that may be dialled."""

    name: NodeId | None  # None: the node that listens there
    address: Address
    is_contact: bool  # it was configured: never forgotten
    due_s: float
    attempts: int = 0  # in a row, without a link


class Acquaintances:
    """The addresses that one node knows."""

    def __init__(
        self, me: NodeId, listens: Address | None, first_s: float, max_s: float, draw: Shuffler
    ) -> None:
        self._me = me
        self._listens = listens
        self._first_s = first_s
        self._max_s = max_s
        self._draw = draw
        self._nameless: list[Acquaintance] = []
        self._named: dict[NodeId, Acquaintance] = {}

    def __len__(self) -> int:
        return len(self._nameless) + len(self._named)

    @property
    def names(self) -> Collection[NodeId]:
        """The nodes that are known by name."""
        return self._named.keys()

    # Learning

    def add_contact(self, name: NodeId | None, address: Address, now_s: float) -> None:
        """A node that the configuration names, perhaps only by its address."""
        if name is not None:
            self._named[name] = Acquaintance(name, address, True, self._polite_s(name, now_s))
        elif address != self._listens:
            self._nameless.append(Acquaintance(None, address, True, now_s))

    def heard_of(self, told: Iterable[tuple[NodeId, Address]], now_s: float) -> None:
        """A peer, or a beacon, has named nodes; what a node said of itself counts more."""
        for name, address in told:
            if name == self._me or name in self._named or address == self._listens:
                continue
            if len(self._named) >= KNOWN_MAX and not self._make_room():
                return
            self._named[name] = Acquaintance(name, address, False, self._polite_s(name, now_s))

    def met(self, name: NodeId, address: Address | None, dialled: Acquaintance | None) -> None:
        """A link to `name` is up; `address` is where it says that it listens, if it does."""
        known = self._named.get(name)
        if dialled is not None and dialled.name is None:  # the contact has a name now
            self._nameless = [each for each in self._nameless if each is not dialled]
            dialled.name = name
            known = self._named[name] = dialled
        elif known is None and address is not None and (len(self._named) < KNOWN_MAX or self._make_room()):
            known = self._named[name] = Acquaintance(name, address, False, 0.0)
        if known is not None:
            known.attempts = 0
            if address is not None and not known.is_contact:
                known.address = address

    def lost(self, name: NodeId, now_s: float, *, left: bool, dialled: bool) -> None:
        """The link to `name` has ended; one that said good-bye is forgotten, unless it is a contact.

        The one that `dialled` it dials again.
        """
        known = self._named.get(name)
        if known is None:
            return
        if left and not known.is_contact:
            del self._named[name]
        else:
            known.due_s = now_s if dialled else self._polite_s(name, now_s)
            known.due_s += self._first_s * self._jitter()

    def failed(self, dialled: Acquaintance, now_s: float) -> None:
        """A call led to no link: the next one waits longer."""
        dialled.attempts += 1
        limit_s = self._max_s if dialled.attempts < _PATIENT_AFTER or dialled.is_contact else LAST_RESORT_S
        dialled.due_s = (
            now_s + min(limit_s, self._first_s * 2.0 ** min(dialled.attempts, 30)) * self._jitter()
        )

    def _polite_s(self, name: NodeId, now_s: float) -> float:
        return now_s if self._me < name else now_s + _COURTESY_S

    def _jitter(self) -> float:
        return 0.5 + self._draw.random() / 2

    def _make_room(self) -> bool:
        """Forget the address that has failed most often; False if all of them are contacts or work."""
        failing = [each for each in self._named.values() if each.attempts and not each.is_contact]
        if not failing:
            return False
        worst = max(failing, key=lambda each: (each.attempts, each.name or ""))
        del self._named[worst.name or ""]
        return True

    # Dialling

    def due(
        self, now_s: float, linked: Collection[NodeId], calling: Sequence[Acquaintance], dialled: int
    ) -> list[Acquaintance]:
        """Whom to call now. `dialled` links of those that are up were made from here."""
        busy = {id(each) for each in calling}
        at = {each.address for each in calling}
        candidates = [
            each
            for each in (*self._nameless, *self._named.values())
            if each.due_s <= now_s
            and each.name not in linked
            and id(each) not in busy
            and each.address not in at
        ]
        if self.is_mesh(linked):
            return candidates
        wanted = DIALS_MAX - dialled - len(calling)
        if wanted <= 0 and linked:
            return []
        self._draw.shuffle(candidates)
        return candidates[: max(wanted, 1)]

    def is_mesh(self, linked: Collection[NodeId]) -> bool:
        """Whether everyone is to be linked to everyone."""
        return len({*linked, *self._named}) < MESH_MAX

    def next_s(self, linked: Collection[NodeId]) -> float | None:
        """When the next of them is due; None: never."""
        return min(
            (each.due_s for each in (*self._nameless, *self._named.values()) if each.name not in linked),
            default=None,
        )

    def missing(self, linked: Collection[NodeId]) -> list[Acquaintance]:
        """The contacts to which there is no link."""
        return [
            each
            for each in (*self._nameless, *self._named.values())
            if each.is_contact and each.name not in linked
        ]
