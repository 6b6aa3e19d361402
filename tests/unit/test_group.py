"""Members by index, the ids that a peer may name, gaps before what is held."""

from __future__ import annotations

import pytest

from whence.core.effects import Reason
from whence.core.group import (
    NUMBER_MAX,
    WINDOW_MAX,
    Gaps,
    check_payload,
    check_peer,
    group_of,
    id_of,
    refuse_id,
)
from whence.core.message import MessageId
from whence.errors import MisuseError, ParameterError


def test_members_are_indexed_by_their_place_in_the_sorted_list() -> None:
    members, places, mine = group_of("b", ["c", "a", "b", "a"])
    assert members == ("a", "b", "c")
    assert places == {"a": 0, "b": 1, "c": 2}
    assert mine == 1


def test_a_stranger_has_no_place() -> None:
    with pytest.raises(ParameterError, match=r"not among the group's members"):
        group_of("d", "abc")


def test_a_node_has_no_link_to_itself_and_a_payload_is_bytes() -> None:
    check_peer("a", "b")
    with pytest.raises(MisuseError, match="no link to itself"):
        check_peer("a", "a")
    check_payload(b"")
    with pytest.raises(MisuseError, match="str, not bytes"):
        check_payload("text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("origin", "number", "found"),
    [
        (0, 1, MessageId("a", 1)),
        (1, NUMBER_MAX - 1, MessageId("b", NUMBER_MAX - 1)),
        (2, 1, None),
        (-1, 1, None),
        (0, 0, None),
        (0, NUMBER_MAX, None),
    ],
)
def test_an_id_names_a_member_and_a_number(origin: int, number: int, found: MessageId | None) -> None:
    assert id_of(("a", "b"), origin, number) == found


@pytest.mark.parametrize(
    ("origin", "number", "reason"),
    [
        (3, 1, Reason.UNKNOWN_ORIGIN),
        (-1, 1, Reason.UNKNOWN_ORIGIN),
        (1, 0, Reason.MALFORMED),
        (1, 5, Reason.DUPLICATE),
        (0, 2, Reason.DUPLICATE),
        (0, 3, Reason.FORGED),
        (1, 6 + WINDOW_MAX, Reason.TOO_FAR_AHEAD),
        (1, 5 + WINDOW_MAX, None),
        (2, 1, None),
    ],
)
def test_ids_that_end_at_the_door(origin: int, number: int, reason: Reason | None) -> None:
    assert refuse_id(origin, number, [2, 5, 0], 0) == reason


def test_gaps_are_what_is_neither_delivered_nor_asked_about() -> None:
    gaps = Gaps([1, 0])
    assert gaps.before(0, 4) == [(0, 2), (0, 3)]
    assert gaps.before(0, 6) == [(0, 2), (0, 3), (0, 5)]
    assert gaps.before(1, 1) == []
