"""A known group: its members by index, the ids that a peer may name, what a node may not ask for.

Members are indexed by their place in the sorted list, so that all nodes agree without talking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from whence.core.effects import Reason
from whence.core.message import NUMBER_MAX as NUMBER_MAX  # noqa: PLC0414 - cores take it from here
from whence.core.message import MessageId, NodeId
from whence.errors import MisuseError, ParameterError

# A number further ahead than this can only be a mistake or an attack: it would be held forever.
WINDOW_MAX = 1_000_000

# A later life of a member is named by the millisecond in which it began, and its numbers begin after it <<
# 20:
# no node broadcasts 2^20 messages in a millisecond, so no two lives share a number. First lives begin at 0.
LIFE_BITS = 20
LATER_LIVES = 1_700_000_000_000 << LIFE_BITS  # no life before November 2023 was a later one


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
    return Reason.TOO_FAR_AHEAD if is_too_far(number, delivered[origin]) else None


def is_too_far(number: int, known: int) -> bool:
    """Return whether no member can have come to `number` of which `known` is known, but in a later life."""
    return number > known + WINDOW_MAX and number < LATER_LIVES


def base_of_life(now_us: int) -> int:
    """Return the number after which those of a later life begin, which begins now."""
    return now_us // 1000 << LIFE_BITS


def is_base(number: int) -> bool:
    """Return whether a life begins after `number`, so that no message has it."""
    return number & (1 << LIFE_BITS) - 1 == 0


def base_beyond(number: int) -> int:
    """Return the number after which a node begins anew whose name another has used up to `number`."""
    return (number >> LIFE_BITS) + 1 << LIFE_BITS


class Gaps:
    """The ids that are missing before each held message, asked in ascending order: linear in what is held."""

    def __init__(self, delivered: list[int]) -> None:
        self._seen = list(delivered)  # of each origin, the newest number that is delivered or was asked about
        self._missing: dict[int, list[tuple[int, int]]] = {}

    def before(self, origin: int, number: int) -> list[tuple[int, int]]:
        """Return the numbers of `origin` below `number` that are neither delivered nor held."""
        missing = self._missing.setdefault(origin, [])
        first = self._seen[origin] + 1
        if number - first > WINDOW_MAX:  # of a later life, of which nothing is here
            first = number - 1
        missing += [(origin, gap) for gap in range(first, number)]
        self._seen[origin] = number
        return list(missing)
