"""The number of arcs follows the size of the group, whoever comes and goes, and however they go.

The live overlay over real cores (tests/support/swarm_net.py): every join brings as many arcs, on average, as
a leave or a crash takes. A leave that takes fewer lets the views grow without end, and every message then
costs a copy for each link.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import log

import pytest

from support.swarm_net import SwarmNet
from whence.core.rng import stream
from whence.overlay.spray import Spray

SIZE = 30
PAIRS = 120  # a join and a departure each


@pytest.fixture(autouse=True)
def _draws() -> Iterator[None]:
    """What the nets seed is everybody's: put it back, or two workers would draw the same ports elsewhere."""
    state = random.getstate()
    yield
    random.setstate(state)


@pytest.mark.parametrize("how", ["leave", "crash", "mixed"])
def test_views_keep_their_size_when_as_many_come_as_go(how: str) -> None:
    net = SwarmNet(seed=3)
    while len(net.members) < SIZE:
        net.join()
    net.shuffle()
    net.made.clear()
    net.events.clear()
    for at in range(PAIRS):
        goes = random.choice(["leave", "crash"]) if how == "mixed" else how
        (net.leave if goes == "leave" else net.crash)()
        assert net.pieces() == 1
        net.join()
        if at % 6 == 5:
            net.shuffle()
    assert net.pieces() == 1
    each = {event: round(made / net.events[event], 2) for event, made in net.made.items()}
    print(f"{how}: arcs for each {each}, {net.arcs() / SIZE:.2f} per process, degree {net.degree():.2f}")
    surplus = (net.made["join"] + net.made["leave"] + net.made["crash"]) / PAIRS
    assert abs(surplus) < 0.6, f"arcs for each join and departure: {surplus}; each alone moves more than four"
    assert net.view_min < net.degree() < 1.5 * 2 * log(SIZE)


@pytest.mark.parametrize("how", ["leave", "crash"])
def test_those_who_stay_for_a_short_time_leave_no_arcs_behind(how: str) -> None:
    """Only the six youngest go, before or soon after their first shuffle."""
    net = SwarmNet(seed=3)
    while len(net.members) < SIZE:
        net.join()
    net.shuffle()
    for at in range(PAIRS // 2):
        name = random.choice(sorted(net.members)[-6:])
        (net.leave if how == "leave" else net.crash)(name)
        assert net.pieces() == 1
        net.join()
        if at % 6 == 5:
            net.shuffle()
    print(f"the youngest {how}: {net.arcs() / SIZE:.2f} arcs per process, degree {net.degree():.2f}")
    assert net.view_min < net.degree() < 1.7 * 2 * log(SIZE)


def test_an_arc_that_came_with_a_join_goes_with_the_joiner_until_it_has_moved() -> None:
    view: Spray[str] = Spray("me")
    view.take(["a", "b", "c", "d"])
    view.welcome("j")
    assert view.lost("j", stream(1, 1)) == []
    assert view.arcs == ["a", "b", "c", "d"]
    view.welcome("j")
    assert view.give("a", lambda name: name == "j", stream(1, 1), begins=False) == [("j", "j")]
    view.take(["j"])  # it comes back as one like any other
    assert any(view.lost("j", stream(seed, 1)) or view.take(["j"]) for seed in range(20))


def test_views_shrink_with_the_group() -> None:
    """All but ten of fifty leave, and nobody is cut off."""
    net = SwarmNet(seed=4)
    while len(net.members) < 50:
        net.join()
    net.shuffle()
    large = net.arcs() / len(net.members)
    while len(net.members) > 10:
        net.leave()
        assert net.pieces() == 1
        if len(net.members) % 10 == 0:
            net.shuffle()
    assert net.arcs() / len(net.members) < large
    assert net.degree() < 1.5 * 2 * log(10)


def test_arcs_given_to_a_process_that_leaves_come_back() -> None:
    net = SwarmNet(seed=5)
    while len(net.members) < 12:
        net.join()
    net.shuffle()
    shuffler = next(each.swarm for each in net.members.values() if each.swarm.view.arcs[3:])
    leaver = net.members[shuffler.view.arcs[0]].swarm
    before = sorted(shuffler.view.arcs)
    leaver.introduce_neighbours()
    shuffler.shuffle()  # to `leaver`, whose word has not arrived
    assert len(shuffler.view.arcs) < len(before)
    net.deliver()
    assert sorted(shuffler.view.arcs) == before
    assert leaver.is_settled()


def test_a_successor_is_named_without_an_arc_more() -> None:
    """As many arcs as a crash would leave, the successor among them; a second arc to somebody goes first."""
    sizes = set()
    for seed in range(200):
        draw = random.Random(seed)
        arcs = [draw.choice("abcdelp") for _ in range(draw.randrange(1, 8))]
        crashed, left = Spray("me"), Spray("me")
        crashed.take(arcs)
        left.take(arcs)
        key = stream(seed, 1)
        crashed.lost("l", key)
        left.left("l", "s", key)
        assert len(left.arcs) == max(1, len(crashed.arcs))
        assert "l" not in left.arcs
        assert "s" in left.arcs
        assert left.arcs.count("s") == 1
        sizes.add(len(left.arcs) - len(arcs))
        others = [name for name in arcs if name != "l"]
        if "l" not in arcs and len(set(others)) < len(others):
            assert set(left.arcs) == {*others, "s"}, "a double is given up before the only arc to a process"
    assert sizes >= {0, -1}


def test_a_successor_that_is_named_already_is_not_named_twice() -> None:
    view: Spray[str] = Spray("me")
    view.take(["a", "s"])
    view.left("l", "s", stream(1, 1))
    assert view.arcs == ["a", "s"]
