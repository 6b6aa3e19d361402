"""A late joiner between messages of different lifetimes: rule R9 of docs/barrier.md.

A joiner takes a neighbour's past for its own without being given it. What lies in that past can still have
happened before what the joiner says, by way of a message that is dead when it matters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.net import Net
from support.running import simulate_in
from whence.protocols.barrier.broadcast import Barrier
from whence.protocols.barrier.wire import BarrierEntry, BarrierPacket
from whence.sim.files import load
from whence.sim.replay import replay
from whence.trace.reader import open_trace
from whence.trace.schema import Kind, Level
from whence.verify.run import verify_trace
from zoo.mutants.barrier import NamesNothingAdopted, variant

SECOND_US = 1_000_000
EXAMPLE = Path(__file__).parents[2] / "examples" / "scenarios" / "late-joiner.toml"
NAIVE = variant(NamesNothingAdopted).over_links


def talk(make: Any = "barrier", *, restarts: bool = False) -> Net:
    """A says m1 (100 s); C meets A; A says m2 (5 s); C answers: m3 (60 s); D gets m3, and m1 later."""
    world = Net(make, "acd", [("a", "d"), ("c", "d")], check=make == "barrier")
    m1 = world.broadcast("a", 100 * SECOND_US)
    world.link("a", "c")
    world.move("c", sender="a")  # A's past: C adopts it
    if restarts:
        world.restart("c")
    m2 = world.broadcast("a", 5 * SECOND_US)
    world.move("c", m2)
    m3 = world.broadcast("c", 60 * SECOND_US)
    assert world.ids("c") == [str(m2), str(m3)]  # it was never given m1
    world.pass_time(10 * SECOND_US)
    world.move("d", m3)
    world.pass_time(11 * SECOND_US)
    world.move("d", m1)
    return world


def test_what_a_joiner_says_waits_for_what_it_was_not_given() -> None:
    world = talk()
    assert world.ids("d") == ["a:1", "c:1"]
    assert world.report().counts.causal == 0


def test_without_the_rule_it_overtakes() -> None:
    """The barrier of m3 names m2 alone, which is dead."""
    world = talk(NAIVE)
    assert world.ids("d") == ["c:1", "a:1"]
    assert world.report().counts.causal == 1


def test_a_joiner_that_restarts_still_knows_what_it_was_not_given() -> None:
    assert talk(restarts=True).ids("d") == ["a:1", "c:1"]


def test_a_state_saved_before_the_rule_is_restored_with_its_cut() -> None:
    """The format is what it was: the cut is in `adopted`."""
    core = joiner((BarrierEntry("a", 1, 100),))
    state = core.save()
    assert state["adopted"] == [["a", 1]]
    assert "cut" not in state["order"]
    again = Barrier("c", [])
    again.restore(state)
    assert again.order.cut == {"a": 1}


def joiner(past: tuple[BarrierEntry, ...]) -> Barrier:
    """C, which has adopted this past of its neighbour B."""
    core = Barrier("c", [])
    core.link_up("b", 0)
    core.receive("b", BarrierPacket("b", 0, None, past, b""), 0)
    return core


def named(core: Barrier) -> list[tuple[str, int, int | None]]:
    """What the next broadcast of a core names."""
    return [tuple(entry) for entry in core.order.broadcast(b"", None, core.order.now_us, []).barrier]


@pytest.mark.parametrize(
    ("barrier", "expected"),
    [
        ([("a", 2, 50)], [("a", 2, 50), ("b", 1, 20)]),
        ([("a", 2, 20)], [("b", 1, 20)]),  # covered: it dies no later than the message that follows it
        ([("a", 1, 90), ("a", 2, 50)], [("a", 1, 90), ("a", 2, 50), ("b", 1, 20)]),
        ([("a", 1, 50), ("a", 2, 50)], [("a", 2, 50), ("b", 1, 20)]),  # the newer covers the older
        ([("a", 2, None)], [("a", 2, 90), ("b", 1, 20)]),  # a lie: nothing of A below the cut lives longer
    ],
)
def test_what_is_named_is_what_the_message_does_not_cover(
    barrier: list[tuple[str, int, int | None]], expected: list[tuple[str, int, int | None]]
) -> None:
    core = joiner((BarrierEntry("a", 2, 90),))
    entries = tuple(BarrierEntry(*entry) for entry in barrier)
    core.receive("b", BarrierPacket("b", 1, 20, entries, b""), 10)
    core.check()
    assert named(core) == expected


def test_what_was_named_is_covered_and_forgotten_like_the_rest() -> None:
    core = joiner((BarrierEntry("a", 2, 90),))
    core.receive("b", BarrierPacket("b", 1, 20, (BarrierEntry("a", 2, 90),), b""), 10)
    again = (BarrierEntry("a", 2, 90), BarrierEntry("b", 1, 20))
    core.receive("b", BarrierPacket("b", 2, 30, again, b""), 11)  # names it a second time
    assert named(core) == [("a", 2, 90), ("b", 2, 30)]
    core = joiner((BarrierEntry("a", 2, 90),))
    core.receive("b", BarrierPacket("b", 1, 20, (BarrierEntry("a", 2, 90),), b""), 10)
    core.receive("b", BarrierPacket("b", 2, 200, again, b""), 11)  # outlives it
    assert named(core) == [("b", 2, 200)]
    core = joiner((BarrierEntry("a", 2, 90),))
    core.receive("b", BarrierPacket("b", 1, 20, (BarrierEntry("a", 2, 90),), b""), 10)
    core.timer("wake", 91)
    core.check()
    assert named(core) == []


def test_what_was_delivered_after_the_cut_is_not_named_again() -> None:
    core = joiner((BarrierEntry("a", 2, 90),))
    core.receive("b", BarrierPacket("a", 3, 80, (), b""), 5)
    core.receive("b", BarrierPacket("b", 1, 85, (BarrierEntry("a", 3, 80),), b""), 6)  # covers a3
    core.receive("b", BarrierPacket("b", 2, 20, (BarrierEntry("a", 3, 80), BarrierEntry("b", 1, 85)), b""), 7)
    assert named(core) == [("b", 1, 85), ("b", 2, 20)]


def test_the_example_holds_and_replays(tmp_path: Path) -> None:
    simulate_in(load(EXAMPLE), tmp_path, Level.ALL)
    [report] = verify_trace(tmp_path)
    assert (report.ok, report.counts.causal) == (True, 0)
    assert delivered_by("n2", tmp_path) == ["n0:1", "n1:1"]
    assert replay(tmp_path).ok


def test_the_example_breaks_without_the_rule(tmp_path: Path) -> None:
    simulate_in(load(EXAMPLE), tmp_path, Level.ALL, make=NAIVE)
    [report] = verify_trace(tmp_path)
    assert (report.ok, report.counts.causal) == (False, 1)
    assert delivered_by("n2", tmp_path) == ["n1:1", "n0:1"]


def delivered_by(node: str, folder: Path) -> list[str]:
    rows = open_trace(folder).events()
    return [f"{row.origin}:{row.number}" for row in rows if row.node == node and row.kind is Kind.DELIVER]
