"""The rules of VCube for changing groups, in worlds small enough to follow by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from support.vcube_worlds import INTERVAL_US, TIMEOUT_US, World, message, quiet
from whence.core.effects import CountOn, Deliver, Discard, Effects, Reason, Send, SetTimer, Stop
from whence.core.message import MessageId
from whence.core.protocol import LEAVE
from whence.errors import MisuseError
from whence.protocols.vcube.control import LIFE_BITS, Control, ControlKind, MemberPacket
from whence.protocols.vcube.members import TEST, Phase, VCubeMembers


def others_of(world: World, name: str) -> list[VCubeMembers]:
    return [process.core for process in world.live() if process.name != name]


def test_a_crash_is_noticed_and_passed_on() -> None:
    world = World(5, 1)
    world.run(2 * INTERVAL_US)
    world.crash("n3")
    world.run(2 * INTERVAL_US + TIMEOUT_US + 3 * INTERVAL_US)
    assert {core.roster.present for core in others_of(world, "n3")} == {(0, 1, 2, 4)}


def test_a_founder_that_has_not_started_yet_is_waited_for() -> None:
    world = World(3, 1, start_timeout_us=10 * TIMEOUT_US)
    world.crash("n1")
    world.run(5 * TIMEOUT_US)
    assert {core.roster.present for core in others_of(world, "n1")} == {(0, 1, 2)}
    world.run(12 * TIMEOUT_US)
    assert {core.roster.present for core in others_of(world, "n1")} == {(0, 2)}


def test_a_node_that_slept_itself_accuses_nobody() -> None:
    core = VCubeMembers("a", "ab", test_interval_us=10, test_timeout_us=30, start_timeout_us=30)
    assert core.link_up("b", 0) == [SetTimer(TEST, 10)]
    core.timer(TEST, 10)
    assert core.awaiting == {1: 10}
    core.timer(TEST, 1_000)
    assert core.roster.present == (0, 1)
    assert core.awaiting == {1: 1_000}
    for now_us in (1_010, 1_020, 1_030):
        effects = core.timer(TEST, now_us)
    assert core.roster.present == (0,)
    assert CountOn("b", False) in effects


def test_a_false_suspect_is_told_and_stops() -> None:
    world = World(3, 1)
    world.run(2 * INTERVAL_US)
    core = world.current["n0"].core
    effects: Effects = []
    core._learn(core.roster.without([2]), effects)
    world.net.carry_out("n0", effects)
    quiet(world, rounds=2)
    suspect = world.current["n2"]
    assert (suspect.up, suspect.end) == (False, Reason.GONE)
    assert suspect.core.timer(TEST, world.now_us) == []
    with pytest.raises(MisuseError, match="stopped"):
        suspect.core.broadcast(b"", world.now_us)
    world.broadcast("n1")
    quiet(world)
    assert world.disagreements() == []


def test_what_a_crashed_node_gave_to_one_reaches_all() -> None:
    world = World(4, 1)
    world.run(INTERVAL_US)
    world.current["n0"].crash_after = 0
    world.broadcast("n0")
    packet = MemberPacket(0, (message(0, 1),), None)
    world.net.receive("n2", "n0", packet)
    quiet(world)
    assert [process.ids for process in world.live()] == [[(0, 1)]] * 3
    assert world.disagreements() == []


def test_an_orphan_is_explained_until_it_is_discarded() -> None:
    world = World(4, 1)
    world.run(INTERVAL_US)
    world.pasts |= {(0, 1): [0] * 4, (0, 2): [0] * 4}
    core = world.current["n2"].core
    effects = core.receive("n0", MemberPacket(0, (message(0, 2),), None), world.now_us)
    follower = message(3, 1, (0, 2))
    effects += core.receive("n3", MemberPacket(0, (follower,), None), world.now_us)
    assert not any(isinstance(effect, Deliver) for effect in effects)
    for name in ("n0", "n3"):
        world.crash(name)
    waiting = core.explain()
    assert [(each.id, each.missing) for each in waiting] == [
        (MessageId("n0", 2), (MessageId("n0", 1),)),
        (MessageId("n3", 1), (MessageId("n0", 2),)),
    ]
    quiet(world, rounds=60)
    assert core.explain() == []
    assert world.discards[Reason.ORPHAN] >= 2
    assert core.caps == {0: 0, 3: 0}
    assert world.disagreements() == []


def test_two_halves_of_a_split_group_do_not_both_go_on() -> None:
    world = World(5, 1)
    world.run(2 * INTERVAL_US)
    half = {"n0", "n3"}
    heal_us = 4 * TIMEOUT_US

    def delay_us(sender: str, to: str, _: bool) -> int:
        is_cut = (sender in half) != (to in half) and world.now_us < heal_us
        return (heal_us - world.now_us if is_cut else 0) + world.draw.randrange(500, 3_000)

    world.delay_us = delay_us
    for name in world.names:
        world.at(TIMEOUT_US, world.broadcast, name)
        world.at(3 * TIMEOUT_US, world.broadcast, name)
    world.run(heal_us)
    assert len(world.live()) == 5, "as long as they cannot talk, each goes on"
    quiet(world)
    assert sorted(process.name for process in world.live()) == ["n1", "n2", "n4"]
    assert world.disagreements() == []
    assert world.verdict().ok


def test_a_packet_of_a_life_that_is_over_is_not_taken() -> None:
    world = World(3, 1)
    world.run(2 * INTERVAL_US)
    old = world.current["n1"]
    world.crash("n1")
    world.run(2 * TIMEOUT_US)
    world.join("n1")
    quiet(world)
    assert world.current["n1"].core.ready
    core = world.current["n0"].core
    effects = core.receive("n1", MemberPacket(0, (message(1, 1),), None), world.now_us)
    assert effects == [Discard(MessageId("n1", 1), "n1", Reason.GONE)]
    asked = Control(ControlKind.ASK, old.core.roster.stamps, (0, 0, 0), (), (0, 0, 0), (), (), ())
    effects = core.receive("n1", MemberPacket(0, (), asked), world.now_us)
    assert [effect.packet.control.kind for effect in effects if isinstance(effect, Send)] == [
        ControlKind.NEWS
    ]


def test_a_joiner_begins_at_what_all_have_and_numbers_after_its_earlier_life() -> None:
    world = World(4, 1)
    for number in range(5):
        world.at(10_000 * number + 1, world.broadcast, "n2")
    quiet(world)
    world.crash("n2")
    quiet(world)
    world.join("n2")
    world.broadcast("n0")
    with pytest.raises(MisuseError, match="out"):
        world.current["n2"].core.broadcast(b"", world.now_us)
    quiet(world)
    joiner = world.current["n2"]
    assert joiner.core.phase is Phase.IN
    assert joiner.cut[2] == joiner.core.life << LIFE_BITS
    assert joiner.ids in ([], [(0, 1)])
    world.broadcast("n2")
    quiet(world)
    assert {process.ids[-1] for process in world.live()} == {(2, joiner.cut[2] + 1)}
    assert world.disagreements() == []
    assert world.verdict().ok


def test_a_joiner_survives_the_crash_of_whoever_let_it_in() -> None:
    caught = 0
    for seed in range(12):
        world = World(5, seed)
        world.run(2 * INTERVAL_US)
        world.crash("n4")
        world.run(2 * TIMEOUT_US)
        world.join("n4")
        for _ in range(600):  # until one member has let it in, and nobody else knows
            knowing = [core for core in others_of(world, "n4") if core.roster.is_present(4)]
            if knowing:
                break
            world.run(world.now_us + 500)
        if len(knowing) == 1:
            caught += 1
            world.crash(knowing[0].me)
        world.broadcast("n0")
        world.broadcast("n1")
        quiet(world, rounds=80)
        assert world.current["n4"].core.ready
        assert world.disagreements() == []
    assert caught > 3


def test_a_leaver_waits_until_the_others_have_what_it_has() -> None:
    world = World(4, 1)
    world.run(INTERVAL_US)
    world.broadcast("n1")
    world.leave("n1")
    leaver = world.current["n1"]
    assert not leaver.core.ready
    assert leaver.up
    quiet(world)
    assert leaver.end == Reason.LEFT
    assert [process.ids for process in world.live()] == [[(1, 1)]] * 3
    assert {core.roster.present for core in others_of(world, "n1")} == {(0, 2, 3)}
    assert world.disagreements() == []


def test_a_knock_ends_the_earlier_life_that_nobody_ever_met() -> None:
    """A founder that never started is waited for; when it comes and says that it joins, it is not."""
    world = World(3, 1, start_timeout_us=100 * TIMEOUT_US)
    world.crash("n1")
    world.run(5 * INTERVAL_US)
    world.join("n1", noticed=False)
    quiet(world)
    assert world.current["n1"].core.ready
    assert world.disagreements() == []


def test_links_are_counted_on_while_the_peer_is_there() -> None:
    core = VCubeMembers("a", "abc", test_interval_us=10, test_timeout_us=30)
    for peer in "bc":
        core.link_up(peer, 0)
    effects = core.link_down("b", 5)
    assert CountOn("b", False) in effects
    assert not any("b" in effect.to for effect in effects if isinstance(effect, Send)), "there is no link"
    view = Control(ControlKind.ASK, (0, 2 * 7, 0), (0, 0, 0), (), (0, 7 << LIFE_BITS, 0), (), (), ())
    assert CountOn("b", True) in core.receive("c", MemberPacket(0, (), view), 6)


def test_the_link_of_an_earlier_life_may_end_after_the_later_one_was_let_in() -> None:
    """A process comes back and is admitted by others before we notice that our link is its earlier one's."""
    core = VCubeMembers("a", "abc", test_interval_us=10, test_timeout_us=30, start_timeout_us=30)
    for peer in "bc":
        core.link_up(peer, 0)
    core._heard(2)
    core._learn((0, 0, 2 * 7), [])  # b has let c in again, in life 7
    core.link_down("c", 5)
    assert core.roster.present == (0, 1, 2)
    core.link_up("c", 6)
    core._heard(2)
    core.link_down("c", 9)
    assert core.roster.present == (0, 1)


def test_whoever_has_nothing_that_others_lack_leaves_at_once() -> None:
    world = World(3, 1)
    world.broadcast("n1")
    quiet(world)
    world.leave("n1")
    assert world.current["n1"].end == Reason.LEFT


def test_a_group_of_one_keeps_nothing() -> None:
    core = VCubeMembers("a", "a")
    for _ in range(3):
        core.broadcast(b"", 0)
    assert not len(core.store)
    core.check()


def test_the_last_one_may_leave_at_once() -> None:
    core = VCubeMembers("a", "a")
    assert Stop(Reason.LEFT) in core.timer(LEAVE, 5)
    assert core.is_stopped


def test_memory_returns_to_the_floor() -> None:
    world = World(6, 1)
    quiet(world)
    floor = [process.core.entries() for process in world.live()]
    for number in range(200):
        world.at(world.now_us + 500 * number, world.broadcast, world.names[number % 6])
    world.run(world.now_us + 60_000)
    assert min(process.core.entries() for process in world.live()) > 2 * max(floor)
    quiet(world)
    cores = [process.core for process in world.live()]
    # What the next message will say of its past is not kept for anybody: five others have broadcast.
    assert [core.entries() - len(core.clock.changed) for core in cores] == floor


def test_without_faults_hardly_anything_is_sent_twice() -> None:
    world = World(8, 1, test_interval_us=100_000, test_timeout_us=500_000)
    for number in range(400):
        world.at(1_000 * number, world.broadcast, world.names[number % 8])
    world.run(2_000_000)
    assert world.discards.get(Reason.DUPLICATE, 0) == 0
    assert len(world.processes[0].ids) == 400
    assert all(earlier != later for earlier, later in pairwise(world.processes[0].ids))


def test_where_all_are_out_one_begins_and_lets_the_others_in() -> None:
    """Parts of a split that yielded to each other, one after the other: nobody is left who could admit."""
    options = {"joins": True, "test_interval_us": 10, "test_timeout_us": 30, "start_timeout_us": 10_000}
    cores = {name: VCubeMembers(name, "abc", **options) for name in "abc"}
    letters: list[tuple[str, str, MemberPacket]] = []

    def post(name: str, effects: Effects) -> None:
        letters.extend(
            (name, to, each.packet) for each in effects if isinstance(each, Send) for to in each.to
        )

    for name, core in cores.items():
        for peer in set("abc") - {name}:
            post(name, core.link_up(peer, 1_000_000))
    for now_us in range(1_000_010, 1_000_600, 10):
        for name, core in cores.items():
            post(name, core.timer(TEST, now_us))
        while letters:
            source, to, packet = letters.pop(0)
            post(to, cores[to].receive(source, packet, now_us))
    assert {core.phase for core in cores.values()} == {Phase.IN}
    assert {core.roster.stamps for core in cores.values()} == {cores["a"].roster.stamps}
    assert all(core.roster.present == (0, 1, 2) for core in cores.values())
    post("b", cores["b"].broadcast(b"again", 1_000_600))
    while letters:
        source, to, packet = letters.pop(0)
        post(to, cores[to].receive(source, packet, 1_000_600))
    assert all(core.clock.counts[1] == cores["b"].last for core in cores.values())
