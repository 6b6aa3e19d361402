"""The parts of VCube for changing groups: view, repair, tally, packets and parameters."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from support.vcube_cores import message
from support.vcube_world import INTERVAL_US
from whence.core.effects import Discard, Reason
from whence.errors import ParameterError
from whence.overlay.hypercube import cluster_nodes
from whence.protocols import registry
from whence.protocols.vcube.control import LIFE_BITS, Control, ControlKind, MemberPacket, is_malformed
from whence.protocols.vcube.core import VCube
from whence.protocols.vcube.members import TEST, VCubeMembers
from whence.protocols.vcube.repair import RepairStore, SampleTally
from whence.protocols.vcube.roster import Roster
from whence.protocols.vcube.wire import VCubeMessage
from whence.session.wire import data_frame

# The view


def rosters(size: int, gone: set[int]) -> dict[int, Roster]:
    stamps = [int(member in gone) for member in range(size)]
    found = {member: Roster(size, member) for member in range(size) if member not in gone}
    for roster in found.values():
        roster.merge(tuple(stamps))
    return found


def some_views() -> list[tuple[int, set[int]]]:
    draw = random.Random(1)
    sizes = [1, 2, 3, 4, 5, 7, 8, 12, 16]
    return [(size, set(draw.sample(range(size), draw.randrange(size)))) for size in sizes for _ in range(6)]


@pytest.mark.parametrize(("size", "gone"), some_views())
def test_testers_are_the_first_fault_free_nodes_of_the_clusters(size: int, gone: set[int]) -> None:
    found = rosters(size, gone)
    for tested, roster in found.items():
        testers = set()
        for s in range(1, (size - 1).bit_length() + 1):
            there = [node for node in cluster_nodes(tested, s) if node < size and node not in gone]
            testers |= set(there[:1])
        assert {other for other in found if tested in found[other].testees} == testers
        assert set(roster.partners) == {*testers, *roster.testees}, "tests go both ways"


@pytest.mark.parametrize(("size", "gone"), some_views())
def test_the_tree_of_the_tally_reaches_everybody_over_links_that_are_tested(
    size: int, gone: set[int]
) -> None:
    found = rosters(size, gone)
    roots = [member for member, roster in found.items() if roster.parent is None]
    assert roots == [min(found)]
    reached = list(roots)
    for member in reached:
        for kid in found[member].kids:
            assert found[kid].parent == member
            assert member in found[kid].testees, "the child's test carries its sample"
            reached.append(kid)
    assert sorted(reached) == sorted(found)


def test_merging_views_takes_the_newer_of_each_counter() -> None:
    roster = Roster(3, 0)
    assert roster.merge((0, 1, 0)) == [(1, 0)]
    assert roster.merge((0, 0, 0)) == []
    assert roster.merge((0, 8, 1)) == [(1, 1), (2, 0)]
    assert (roster.present, roster.gone) == ((0, 1), (2,))
    assert (roster.life(1), roster.base(1)) == (4, 4 << LIFE_BITS)


def test_sealed_views_that_do_not_follow_each_other_are_a_split() -> None:
    roster = Roster(4, 0)
    roster.sealed = (0, 0, 1, 1)
    assert not roster.has_split((0, 0, 0, 1))
    assert not roster.has_split((0, 1, 1, 1))
    assert roster.has_split((1, 1, 0, 0))
    assert not roster.yields_to((1, 1, 0, 0), (1, 1, 0, 0)), "of equals the one with the first member goes on"
    assert roster.yields_to((1, 0, 0, 0), (1, 0, 1, 2)), "the larger goes on"


# Repair and tally


def test_what_may_be_on_its_way_is_not_given() -> None:
    store = RepairStore(3)
    store.keep(message(0, 1))
    assert store.lacking(2, (0, 0, 0), ()) == ()
    store.tick()
    assert store.lacking(2, (0, 0, 0), ()) == ()
    store.tick()
    assert store.lacking(2, (0, 0, 0), ()) == (message(0, 1),)
    assert store.lacking(2, (0, 0, 0), ()) == (), "once is enough in one view"
    assert store.lacking(1, (1, 0, 0), ()) == ()
    assert store.lacking(1, (0, 0, 0), (0, 1)) == (), "it has it beyond a hole"


def test_after_a_change_of_the_view_all_that_lacks_is_given_at_once_in_order_of_arrival() -> None:
    store = RepairStore(3)
    for number in (3, 1, 2):
        store.keep(message(0, number))
    store.new_view()
    assert [each.number for each in store.lacking(2, (1, 0, 0), ())] == [3, 2]
    store.new_view()
    assert [each.number for each in store.lacking(2, (0, 0, 0), (0, 3))] == [1, 2]


def test_what_is_stable_is_forgotten() -> None:
    store = RepairStore(2)
    for number in (1, 2, 3):
        store.keep(message(1, number))
    store.prune((0, 2))
    assert list(store.kept[1]) == [3]
    store.keep(message(1, 5 << LIFE_BITS | 1))  # another life: far away, and found without counting up to it
    store.new_view()
    assert [each.number for each in store.lacking(0, (0, 2), ())] == [3, 5 << LIFE_BITS | 1]
    store.prune((0, 6 << LIFE_BITS))
    assert not len(store)


def test_a_tally_is_complete_only_with_all_children() -> None:
    tally = SampleTally()
    assert tally.sum((5, 7), (), 1) == (5, 7)
    tally.ups[1] = (3, 9)
    assert tally.sum((5, 7), (1, 2), 1) == ()
    tally.ups[2] = (4, 8)
    assert tally.sum((5, 7), (1, 2), 1) == (3, 9), "the first is the least, the second the most"


# Packets


def some_packets() -> list[MemberPacket]:
    control = Control(
        ControlKind.ASK, (0, 5, 2 << 40), (0, 1, 0), (1, 300), (7, 0, 1 << 50), (0, 9), (), (1,) * 20
    )
    return [
        MemberPacket(
            0, (VCubeMessage(1, 70_000, (0, 3), b"payload"), VCubeMessage(2, 1, (), b"x" * 300)), None
        ),
        MemberPacket(1 << 40, (), control),
        MemberPacket(9, (), Control(ControlKind.JOIN, (), (), (), (), (), (), ())),
    ]


@pytest.mark.parametrize("packet", some_packets())
def test_stated_sizes_are_the_bytes_on_the_wire(packet: MemberPacket) -> None:
    core = VCubeMembers("a", "abc")
    frame = data_frame(packet)
    assert core.sizes(packet).total_bytes == len(frame)
    assert core.sizes(packet).control_bytes == len(frame) - sum(len(each.payload) for each in packet.messages)
    assert msgspec.msgpack.decode(frame[5:], type=MemberPacket) == packet


def test_malformed_packets_end_at_the_door() -> None:
    good = Control(ControlKind.ASK, (0, 0, 0), (0, 0, 0), (), (0, 0, 0), (), (), ())
    assert not is_malformed(MemberPacket(0, (), good), 3)
    changes: list[dict[str, Any]] = [
        {"kind": 6}, {"kind": -1}, {"stamps": (0, 0)}, {"stamps": (0, 0, -1)}, {"stamps": (0, 0, 1 << 60)},
        {"sealed": ()}, {"caps": (1,)}, {"caps": (3, 1)}, {"caps": (-1, 1)}, {"caps": (0, -1)},
        {"received": (1,)}, {"received": (0, 0, 1 << 63)}, {"early": (0, 1, 2)}, {"up": (-1,)},
        {"down": (1 << 63,)}, {"kind": ControlKind.JOIN}, {"kind": ControlKind.WELCOME, "received": ()},
    ]  # fmt: skip
    core = VCubeMembers("a", "abc")
    core.link_up("b", 0)
    for change in changes:
        packet = MemberPacket(0, (), good._replace(**change))
        assert core.receive("b", packet, 1) == [Discard(None, "b", Reason.MALFORMED)], change
    for packet in (
        MemberPacket(0, (), None),
        MemberPacket(-1, (), good),
        MemberPacket(0, (message(1, 1),), good),
    ):
        assert core.receive("b", packet, 1) == [Discard(None, "b", Reason.MALFORMED)], packet
    assert core.receive("zoe", MemberPacket(0, (), good), 1)[0] == Discard(
        None, "zoe", Reason.NOT_A_NEIGHBOUR
    )


def test_no_control_makes_a_core_raise() -> None:
    """Whatever a peer claims: at the worst this node stops."""
    draw = random.Random(3)
    stopped = 0
    for seed in range(150):
        core = VCubeMembers("b", "abcd", joins=seed % 4 == 0)
        for peer in "acd":
            core.link_up(peer, 0)
        for now_us in range(0, 40 * INTERVAL_US, INTERVAL_US // 3):
            kind = ControlKind(draw.randrange(6))
            size = 0 if kind is ControlKind.JOIN else 4

            def vector(size: int, *choices: int) -> tuple[int, ...]:
                return tuple(draw.choice(choices) for _ in range(size))

            control = Control(
                kind, vector(size, 0, 0, 0, 1, 2), vector(size, 0, 0, 0, 1),
                (draw.randrange(4), draw.randrange(4)) * draw.randrange(2),
                vector(4 if kind is ControlKind.WELCOME else 4 * draw.randrange(2), 0, 1, 2, 5 << LIFE_BITS),
                (draw.randrange(4), draw.randrange(4)) * draw.randrange(2),
                vector(draw.choice([0, 8, 10, 12]), 0, 1, 2), vector(draw.choice([0, 8, 10, 12]), 0, 1, 2),
            )  # fmt: skip
            messages = (
                message(draw.randrange(5), draw.randrange(6), (draw.randrange(4), 1) * draw.randrange(2)),
            )
            is_control = draw.random() < 0.6
            packet = MemberPacket(
                draw.choice([0, 0, 1]), *(((), control) if is_control else (messages, None))
            )
            core.message_of(packet)
            core.receive(draw.choice("acd"), packet, now_us)
            core.check()
            core.timer(TEST, now_us)
            core.check()
            if core.ready and draw.random() < 0.1:
                core.broadcast(b"", now_us)
        stopped += core.is_stopped
    assert 0 < stopped < 150


# Parameters


@pytest.mark.parametrize(
    "params",
    [
        {"detect": 1}, {"joins": True}, {"detect": True, "joins": "yes"}, {"detect": True, "tree": "single"},
        {"detect": True, "test_interval_us": 0}, {"detect": True, "test_timeout_us": "1"},
        {"detect": True, "start_timeout_us": True},
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused_by_name(params: dict[str, Any]) -> None:
    with pytest.raises(ParameterError) as error:
        registry.make("vcube", "a", "abc", params)
    assert error.value.what.split("'")[0] in params or error.value.what in params


def test_the_registered_protocol_detects_only_when_told_so() -> None:
    assert type(registry.make("vcube", "a", "abc")) is VCube
    assert type(registry.make("vcube", "a", "abc", {"detect": True})) is VCubeMembers
