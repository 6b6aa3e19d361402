"""A known group: its members by index, the ids that a peer may name, what a node may not ask for.

Members are indexed by their place in the sorted list, so that all nodes agree without talking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from whence.core.effects import Reason
from whence.core.message import MessageId, NodeId
from whence.errors import MisuseError, ParameterError

# A number further ahead than this can only be a mistake or an attack: it would be held forever.
WINDOW_MAX = 1_000_000
NUMBER_MAX = 2**62  # what a trace's 64-bit column can hold, with room to compute


class Members(NamedTuple):
    """The members of a group as one of them sees it; a core keeps the parts as attributes of its own."""

    members: tuple[NodeId, ...]  # sorted
    places: dict[NodeId, int]
    my_index: int


def group_of(me: NodeId, members: Iterable[NodeId]) -> Members:
    """Return the group of `members` with `me` in it; `ParameterError` if it is not."""
    names = tuple(sorted(set(members)))
    check_member(me, names)
    places = {name: at for at, name in enumerate(names)}
    return Members(names, places, places[me])


def check_member(me: NodeId, members: Iterable[NodeId]) -> None:
    """Refuse a node that is not among the members of its group."""
    if me not in members:
        raise ParameterError(f"node {me!r}", "it is not among the group's members", "Add it to the members")


def check_peer(me: NodeId, peer: NodeId) -> None:
    """Refuse a link from a node to itself."""
    if peer == me:
        raise MisuseError(f"link {peer!r}", "a node has no link to itself", "Name another node")


def check_payload(payload: bytes) -> None:
    """Refuse anything but bytes: text needs an encoding that only the application knows."""
    if not isinstance(payload, bytes):
        raise MisuseError(
            "payload", f"it is {type(payload).__name__}, not bytes", "Encode it, as in text.encode()"
        )


def id_of(members: Sequence[NodeId], origin: int, number: int) -> MessageId | None:
    """Return the id of a message that a peer names, or None where no member or message can be meant."""
    if 0 <= origin < len(members) and 0 < number < NUMBER_MAX:
        return MessageId(members[origin], number)
    return None


def refuse_id(origin: int, number: int, delivered: list[int], my_index: int) -> Reason | None:
    """Return why a message ends here, as far as its id and what is delivered of each member tell."""
    if not 0 <= origin < len(delivered):
        return Reason.UNKNOWN_ORIGIN
    if number < 1:
        return Reason.MALFORMED
    if number <= delivered[origin]:
        return Reason.DUPLICATE
    if origin == my_index:
        return Reason.FORGED
    return Reason.TOO_FAR_AHEAD if number > delivered[origin] + WINDOW_MAX else None


class Gaps:
    """The ids that are missing before each held message, asked in ascending order: linear in what is held."""

    def __init__(self, delivered: list[int]) -> None:
        self._seen = list(delivered)  # of each origin, the newest number that is delivered or was asked about
        self._missing: dict[int, list[tuple[int, int]]] = {}

    def before(self, origin: int, number: int) -> list[tuple[int, int]]:
        """Return the numbers of `origin` below `number` that are neither delivered nor held."""
        missing = self._missing.setdefault(origin, [])
        missing += [(origin, gap) for gap in range(self._seen[origin] + 1, number)]
        self._seen[origin] = number
        return list(missing)
