"""The network's arithmetic, exactly: queues, bandwidth, order, loss, hops, overrides, the control path."""

from __future__ import annotations

from itertools import pairwise

import pytest

from unit.simulated_links import WIDE, SimulatedLinks, constant
from whence.errors import InvariantError
from whence.overlay import graphs
from whence.sim import links, links_static
from whence.sim.faults import plan_faults
from whence.sim.files import from_dict
from whence.sim.links_static import make_outlets
from whence.sim.topology import link_specs, make_graph

# Queues


def test_a_plain_link_only_delays() -> None:
    net = SimulatedLinks(link={"delay": constant(70)})
    net.send("a", 5)
    net.send("b", 5)
    assert net.arrivals() == [(75, "a"), (75, "b")]  # the same time: in the order of sending


def test_service_time_is_a_queue_of_the_node_over_all_its_links() -> None:
    net = SimulatedLinks(nodes=3, link={"delay": constant(100), "service_us": 10})
    net.send("a", 0, to="n1")
    net.send("b", 0, to="n2")
    net.send("c", 5, to="n1")
    net.send("d", 100, to="n1")  # the queue has been empty since 30
    net.send("e", 0, source=1, to="n0")  # another node, another queue
    assert net.arrivals() == [(110, "e"), (110, "a"), (120, "b"), (130, "c"), (210, "d")]


def test_bandwidth_is_a_queue_of_the_link_and_rounds_up() -> None:
    net = SimulatedLinks(nodes=3, link={"delay": constant(100), "bandwidth_bytes_per_s": 1_000_000})
    net.send("a", 0, total_bytes=50)
    net.send("b", 0, total_bytes=50)
    net.send("c", 0, to="n2", total_bytes=50)  # another link: no waiting
    assert net.arrivals() == [(150, "a"), (150, "c"), (200, "b")]
    slow = SimulatedLinks(link={"delay": constant(0), "bandwidth_bytes_per_s": 3})
    slow.send("a", 0, total_bytes=1)
    assert slow.arrivals() == [(333_334, "a")]


def test_service_comes_before_bandwidth() -> None:
    net = SimulatedLinks(link={"delay": constant(0), "service_us": 30, "bandwidth_bytes_per_s": 1_000_000})
    net.send("a", 0, total_bytes=10)  # leaves the queue at 30, the link at 40
    net.send("b", 0, total_bytes=100)  # leaves the queue at 60, the link at 160
    net.send("c", 0, total_bytes=1)  # leaves the queue at 90, waits for the link until 160
    assert net.arrivals() == [(40, "a"), (160, "b"), (161, "c")]


# Order


def test_a_link_that_is_not_fifo_reorders() -> None:
    net = SimulatedLinks(link={"delay": WIDE})
    for number in range(100):
        net.send(f"{number:03d}", number)
    order = [packet for _, packet in net.arrivals()]
    assert sorted(order) == [f"{number:03d}" for number in range(100)]
    assert sum(one > two for one, two in pairwise(order)) > 20


def test_a_fifo_link_keeps_the_order_and_the_first_delay() -> None:
    fifo = SimulatedLinks(link={"delay": WIDE, "fifo": True})
    free = SimulatedLinks(link={"delay": WIDE})
    for number in range(100):
        fifo.send(f"{number:03d}", number)
        free.send(f"{number:03d}", number)
    own = {packet: time_us for time_us, packet in free.arrivals()}
    arrivals = fifo.arrivals()
    assert [packet for _, packet in arrivals] == [f"{number:03d}" for number in range(100)]
    latest = 0
    for time_us, packet in arrivals:
        latest = max(latest, own[packet])  # it waits for what was sent before it, and not a moment longer
        assert time_us == latest


def test_fifo_holds_per_link_and_direction() -> None:
    net = SimulatedLinks(nodes=3, link={"delay": WIDE, "fifo": True})
    for number in range(50):
        net.send(f"a{number:03d}", number, to="n1")
        net.send(f"b{number:03d}", number, to="n2")
    order = [packet for _, packet in net.arrivals()]
    for link in "ab":
        assert [packet for packet in order if packet[0] == link] == [f"{link}{at:03d}" for at in range(50)]
    assert order != sorted(order)


# Chance


def test_loss_loses_its_share_and_counts_it() -> None:
    net = SimulatedLinks(link={"delay": constant(1), "loss": 0.3})
    for number in range(5_000):
        net.send(str(number), number)
    arrived = len(net.arrivals())
    assert arrived + net.traffic.lost == 5_000
    assert net.traffic.lost == pytest.approx(1_500, rel=0.06)


def test_retransmission_brings_everything_late() -> None:
    net = SimulatedLinks(link={"delay": constant(7), "loss": 0.5, "retransmit_us": 100})
    for number in range(2_000):
        net.send(str(number), 0)
    times = [time_us for time_us, _ in net.arrivals()]
    assert len(times) == 2_000
    assert net.traffic.lost == 0
    assert {(time_us - 7) % 100 for time_us in times} == {0}
    share = [sum(time_us == 7 + 100 * attempt for time_us in times) / 2_000 for attempt in range(3)]
    assert share == pytest.approx([0.5, 0.25, 0.125], abs=0.03)


def test_duplicates_are_extra_copies_with_their_own_delay() -> None:
    net = SimulatedLinks(link={"delay": WIDE, "duplicate": 0.2})
    for number in range(1_000):
        net.send(str(number), 0)
    arrivals = net.arrivals()
    assert len(arrivals) == 1_000 + net.traffic.duplicated
    assert net.traffic.duplicated == pytest.approx(200, rel=0.15)
    times: dict[str, list[int]] = {}
    for time_us, packet in arrivals:
        times.setdefault(packet, []).append(time_us)
    twice = [found for found in times.values() if len(found) == 2]
    assert len(twice) == net.traffic.duplicated
    assert sum(one != two for one, two in twice) > 0.95 * len(twice)


def test_certain_duplication_doubles_everything() -> None:
    net = SimulatedLinks(link={"delay": constant(5), "duplicate": 1.0})
    net.send("a", 0)
    assert net.arrivals() == [(5, "a"), (5, "a")]


def test_the_short_way_draws_what_the_long_way_draws() -> None:
    """A link without options takes a fast path; an option that changes nothing takes the other."""
    for seed in range(20):
        plain = SimulatedLinks(nodes=3, seed=seed, link={"delay": WIDE})
        long = SimulatedLinks(
            nodes=3,
            seed=seed,
            link={"delay": WIDE},
            faults=[{"kind": "slow", "nodes": "all", "factor": 9.0, "start_us": 10**9}],
        )
        assert plain.outlets[0].__qualname__ != long.outlets[0].__qualname__
        for net in (plain, long):
            for number in range(50):
                net.send(f"a{number}", number, to="n1")
                net.send(f"b{number}", number, to="n2")
        assert plain.arrivals() == long.arrivals()


def test_delays_depend_on_the_place_in_the_link_not_on_other_links() -> None:
    alone = SimulatedLinks(nodes=3, link={"delay": WIDE})
    mixed = SimulatedLinks(nodes=3, link={"delay": WIDE})
    for number in range(20):
        alone.send(str(number), 0, to="n2")
        mixed.send("other", 0, to="n1")
        mixed.send(str(number), 0, to="n2")
    assert alone.arrivals() == [each for each in mixed.arrivals() if each[1] != "other"]


# Overrides, and what no core may do


def test_a_later_override_wins_and_the_rest_stays() -> None:
    net = SimulatedLinks(
        nodes=3,
        link={"delay": constant(10), "service_us": 1},
        overrides=[
            {"from_nodes": "n0", "delay": constant(20)},
            {"from_nodes": "n0", "to_nodes": ["n2"], "delay": constant(30)},
        ],
    )
    net.send("a", 0, to="n1")
    net.send("b", 0, to="n2")
    net.send("c", 0, source=1, to="n0")
    assert net.arrivals() == [(11, "c"), (21, "a"), (32, "b")]


def test_both_ways_covers_the_same_links() -> None:
    scenario = SimulatedLinks(
        nodes=4,
        topology={"kind": "ring"},
        overrides=[{"from_nodes": "n0", "fifo": True, "both_ways": True}],
    ).scenario
    assert set(link_specs(scenario, make_graph(scenario))) == {(0, 1), (0, 3), (1, 0), (3, 0)}


def test_sending_to_a_stranger_is_a_bug_of_the_core() -> None:
    net = SimulatedLinks(nodes=4, topology={"kind": "ring"})
    with pytest.raises(InvariantError, match="no neighbour"):
        net.send("a", 0, to="n2")


def test_priorities_leave_room_for_restarts_before_arrivals() -> None:
    order = [links.RESTART, links.CRASH, links.RECEIVE, links.TIMER, links.BROADCAST, links.REPLY]
    assert order == sorted(order)
    assert len(set(order)) == len(order)


# Hops on a grid, and the control path


def test_hops_are_steps_on_the_squarest_grid() -> None:
    assert [graphs.grid_hops(9, 4, other) for other in range(9)] == [2, 1, 2, 1, 0, 1, 2, 1, 2]
    assert graphs.grid_hops(100, 0, 99) == 18
    assert graphs.grid_hops(1, 0, 0) == 0


def test_each_hop_adds_its_delay() -> None:
    net = SimulatedLinks(nodes=9, link={"delay": constant(100), "hop_delay_us": 7})
    for to in ("n1", "n4", "n8"):
        net.send(to, 0, to=to)
    assert net.arrivals() == [(107, "n1"), (114, "n4"), (128, "n8")]


def test_each_hop_loses_its_share() -> None:
    net = SimulatedLinks(nodes=9, link={"delay": constant(1), "hop_loss": 0.2})
    for _ in range(4_000):
        net.send("near", 0, to="n1")
        net.send("far", 0, to="n8")
    kept = [packet for _, packet in net.arrivals()]
    assert abs(kept.count("near") / 4_000 - 0.8) < 0.03
    assert abs(kept.count("far") / 4_000 - 0.8**4) < 0.03
    assert net.traffic.lost == 8_000 - len(kept)


def test_loss_and_loss_per_hop_are_independent() -> None:
    link = from_dict(
        {
            "nodes": 9,
            "protocol": "fifo",
            "link": {"loss": 0.5, "hop_loss": 0.1},
            "workloads": [{"kind": "periodic", "interval_us": 1}],
            "stop": {"duration_us": 10},
        }
    ).link
    assert links_static.path_loss(link, 0) == 0.5
    assert links_static.path_loss(link, 2) == pytest.approx(1 - 0.5 * 0.9**2)


def test_the_control_path_has_its_own_delays_loss_and_numbers() -> None:
    net = SimulatedLinks(nodes=2, link={"delay": constant(100), "loss": 0.9}, control={"delay": constant(3)})
    plan = plan_faults(net.scenario)
    graph = make_graph(net.scenario)
    control = make_outlets(net.scenario, graph, plan, net.heap, net.traffic, control=True)
    for number in range(50):
        control[0](("n1",), (f"c{number}",), 10, 0)
    assert net.arrivals() == [(13, f"c{number}") for number in range(50)]
    assert net.traffic.lost == 0


def test_a_control_packet_may_tie_with_another() -> None:
    net = SimulatedLinks(nodes=2, link={"delay": constant(3)}, control={"delay": constant(3)})
    control = make_outlets(
        net.scenario, make_graph(net.scenario), plan_faults(net.scenario), net.heap, net.traffic, control=True
    )
    control[0](("n1",), (object(),), 10, 0)
    net.outlets[0](("n1",), (object(),), 10, 0)  # same time, receiver, sender and number on its path
    assert len(net.arrivals()) == 2  # objects cannot be compared: the heap never had to
