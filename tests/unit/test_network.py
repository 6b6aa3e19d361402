"""The network's arithmetic, exactly: queues, bandwidth, order, loss, retransmission, obstacles, clocks."""

from __future__ import annotations

from heapq import heappop
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.errors import InvariantError
from whence.overlay import graphs
from whence.sim import network
from whence.sim.faults import NEVER_US, Clock, Windows, plan_faults
from whence.sim.network import Entry, Traffic, link_specs, make_graph, make_outlets
from whence.sim.scenario import from_dict


class Net:
    """A network without protocol: give it packets, see when they arrive."""

    def __init__(self, nodes: int = 2, **sections: Any) -> None:
        data = {
            "nodes": nodes,
            "protocol": "fifo",
            "workloads": [{"kind": "periodic", "interval_us": 1}],
            "stop": {"duration_us": 1_000},
            **sections,
        }
        self.scenario = from_dict(data)
        self.heap: list[Entry] = []
        self.traffic = Traffic()
        graph = make_graph(self.scenario)
        self.outlets = make_outlets(self.scenario, graph, plan_faults(self.scenario), self.heap, self.traffic)

    def send(
        self, packet: str, now_us: int, *, source: int = 0, to: str = "n1", total_bytes: int = 0
    ) -> None:
        self.outlets[source]((to,), (packet,), now_us, total_bytes)

    def arrivals(self) -> list[tuple[int, str]]:
        """(time, packet) in the order in which the engine would hand them over."""
        found = []
        while self.heap:
            entry = heappop(self.heap)
            found.append((entry[0], entry[5][0]))
        return found


def constant(value_us: int) -> dict[str, Any]:
    return {"kind": "constant", "value_us": value_us}


WIDE = {"kind": "uniform", "low_us": 0, "high_us": 10_000}


# Queues


def test_a_plain_link_only_delays() -> None:
    net = Net(link={"delay": constant(70)})
    net.send("a", 5)
    net.send("b", 5)
    assert net.arrivals() == [(75, "a"), (75, "b")]  # the same time: in the order of sending


def test_service_time_is_a_queue_of_the_node_over_all_its_links() -> None:
    net = Net(nodes=3, link={"delay": constant(100), "service_us": 10})
    net.send("a", 0, to="n1")
    net.send("b", 0, to="n2")
    net.send("c", 5, to="n1")
    net.send("d", 100, to="n1")  # the queue has been empty since 30
    net.send("e", 0, source=1, to="n0")  # another node, another queue
    assert net.arrivals() == [(110, "e"), (110, "a"), (120, "b"), (130, "c"), (210, "d")]


def test_bandwidth_is_a_queue_of_the_link_and_rounds_up() -> None:
    net = Net(nodes=3, link={"delay": constant(100), "bandwidth_bytes_per_s": 1_000_000})
    net.send("a", 0, total_bytes=50)
    net.send("b", 0, total_bytes=50)
    net.send("c", 0, to="n2", total_bytes=50)  # another link: no waiting
    assert net.arrivals() == [(150, "a"), (150, "c"), (200, "b")]
    slow = Net(link={"delay": constant(0), "bandwidth_bytes_per_s": 3})
    slow.send("a", 0, total_bytes=1)
    assert slow.arrivals() == [(333_334, "a")]


def test_service_comes_before_bandwidth() -> None:
    net = Net(link={"delay": constant(0), "service_us": 30, "bandwidth_bytes_per_s": 1_000_000})
    net.send("a", 0, total_bytes=10)  # leaves the queue at 30, the link at 40
    net.send("b", 0, total_bytes=100)  # leaves the queue at 60, the link at 160
    net.send("c", 0, total_bytes=1)  # leaves the queue at 90, waits for the link until 160
    assert net.arrivals() == [(40, "a"), (160, "b"), (161, "c")]


# Order


def test_a_link_that_is_not_fifo_reorders() -> None:
    net = Net(link={"delay": WIDE})
    for number in range(100):
        net.send(f"{number:03d}", number)
    order = [packet for _, packet in net.arrivals()]
    assert sorted(order) == [f"{number:03d}" for number in range(100)]
    assert sum(one > two for one, two in pairwise(order)) > 20


def test_a_fifo_link_keeps_the_order_and_the_first_delay() -> None:
    fifo = Net(link={"delay": WIDE, "fifo": True})
    free = Net(link={"delay": WIDE})
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
    net = Net(nodes=3, link={"delay": WIDE, "fifo": True})
    for number in range(50):
        net.send(f"a{number:03d}", number, to="n1")
        net.send(f"b{number:03d}", number, to="n2")
    order = [packet for _, packet in net.arrivals()]
    for link in "ab":
        assert [packet for packet in order if packet[0] == link] == [f"{link}{at:03d}" for at in range(50)]
    assert order != sorted(order)


# Chance


def test_loss_loses_its_share_and_counts_it() -> None:
    net = Net(link={"delay": constant(1), "loss": 0.3})
    for number in range(5_000):
        net.send(str(number), number)
    arrived = len(net.arrivals())
    assert arrived + net.traffic.lost == 5_000
    assert net.traffic.lost == pytest.approx(1_500, rel=0.06)


def test_retransmission_brings_everything_late() -> None:
    net = Net(link={"delay": constant(7), "loss": 0.5, "retransmit_us": 100})
    for number in range(2_000):
        net.send(str(number), 0)
    times = [time_us for time_us, _ in net.arrivals()]
    assert len(times) == 2_000
    assert net.traffic.lost == 0
    assert {(time_us - 7) % 100 for time_us in times} == {0}
    share = [sum(time_us == 7 + 100 * attempt for time_us in times) / 2_000 for attempt in range(3)]
    assert share == pytest.approx([0.5, 0.25, 0.125], abs=0.03)


def test_duplicates_are_extra_copies_with_their_own_delay() -> None:
    net = Net(link={"delay": WIDE, "duplicate": 0.2})
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
    net = Net(link={"delay": constant(5), "duplicate": 1.0})
    net.send("a", 0)
    assert net.arrivals() == [(5, "a"), (5, "a")]


def test_the_short_way_draws_what_the_long_way_draws() -> None:
    """A link without options takes a fast path; an option that changes nothing takes the other."""
    for seed in range(20):
        plain = Net(nodes=3, seed=seed, link={"delay": WIDE})
        long = Net(
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
    alone = Net(nodes=3, link={"delay": WIDE})
    mixed = Net(nodes=3, link={"delay": WIDE})
    for number in range(20):
        alone.send(str(number), 0, to="n2")
        mixed.send("other", 0, to="n1")
        mixed.send(str(number), 0, to="n2")
    assert alone.arrivals() == [each for each in mixed.arrivals() if each[1] != "other"]


# Partitions and crashes


def cut(start_us: int, stop_us: int | None) -> list[dict[str, Any]]:
    return [{"kind": "partition", "start_us": start_us, "stop_us": stop_us, "groups": [["n0"]]}]


def test_a_partition_drops_what_is_under_way_while_it_stands() -> None:
    net = Net(link={"delay": constant(10)}, faults=cut(100, 200))
    for packet, now_us in (("before", 89), ("touches", 90), ("inside", 150), ("last", 199), ("after", 200)):
        net.send(packet, now_us)
    assert net.arrivals() == [(99, "before"), (210, "after")]
    assert net.traffic.lost == 3


def test_a_partition_leaves_the_same_side_alone() -> None:
    net = Net(nodes=3, link={"delay": constant(10)}, faults=cut(100, 200))
    net.send("a", 150, source=1, to="n2")
    assert net.arrivals() == [(160, "a")]


def test_a_retransmitting_link_holds_packets_until_the_partition_heals() -> None:
    net = Net(link={"delay": constant(10), "retransmit_us": 30}, faults=cut(100, 200))
    net.send("a", 95)  # attempts at 95, 125, 155, 185, 215
    net.send("b", 110)  # attempts at 110, 140, 170, 200
    assert net.arrivals() == [(210, "b"), (225, "a")]
    assert net.traffic.lost == 0


def test_a_partition_that_never_heals_loses_even_on_a_retransmitting_link() -> None:
    net = Net(link={"delay": constant(10), "retransmit_us": 30}, faults=cut(100, None))
    net.send("a", 95)
    assert net.arrivals() == []
    assert net.traffic.lost == 1


def test_two_partitions_in_a_row_are_both_waited_for() -> None:
    net = Net(link={"delay": constant(10), "retransmit_us": 30}, faults=[*cut(100, 200), *cut(205, 300)])
    net.send("a", 100)  # attempts at 100, 220 (inside the second), 310
    assert net.arrivals() == [(320, "a")]


def crash(node: str, at_us: int, restart_us: int | None) -> list[dict[str, Any]]:
    return [{"kind": "crash", "nodes": node, "at_us": at_us, "restart_us": restart_us}]


def test_what_arrives_at_a_crashed_node_is_lost() -> None:
    net = Net(link={"delay": constant(10)}, faults=crash("n1", 100, 200))
    for packet, now_us in (("before", 89), ("at crash", 90), ("inside", 150), ("at restart", 190)):
        net.send(packet, now_us)
    assert net.arrivals() == [(99, "before"), (200, "at restart")]
    assert net.traffic.lost == 2


def test_a_retransmitting_link_brings_it_after_the_restart() -> None:
    net = Net(link={"delay": constant(10), "retransmit_us": 30}, faults=crash("n1", 100, 200))
    net.send("a", 95)  # it would arrive at 105; the first attempt after the restart is at 215
    assert net.arrivals() == [(225, "a")]


def test_a_node_that_never_restarts_loses_everything() -> None:
    net = Net(link={"delay": constant(10), "retransmit_us": 30}, faults=crash("n1", 100, None))
    net.send("a", 95)
    assert net.arrivals() == []
    assert net.traffic.lost == 1


def test_what_a_node_had_queued_when_it_crashed_leaves_after_its_restart_or_never() -> None:
    link = {"delay": constant(10), "service_us": 50}
    reliable = Net(link={**link, "retransmit_us": 30}, faults=crash("n0", 60, 200))
    lossy = Net(link=link, faults=crash("n0", 60, 200))
    for net in (reliable, lossy):
        net.send("out", 0)  # leaves at 50
        net.send("queued", 0)  # would leave at 100
    assert lossy.arrivals() == [(60, "out")]
    assert reliable.arrivals() == [(60, "out"), (230, "queued")]  # attempts at 100, 220


# Slowness


def slow(node: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"kind": "slow", "nodes": node, "start_us": 100, "stop_us": 200, **fields}]


def test_a_slow_sender_and_a_slow_receiver() -> None:
    sender = Net(link={"delay": constant(10)}, faults=slow("n0", factor=3.0, extra_us=5))
    receiver = Net(link={"delay": constant(10)}, faults=slow("n1", factor=3.0, extra_us=5))
    for net in (sender, receiver):
        for packet, now_us in (("before", 80), ("edge", 95), ("in", 100), ("late", 195), ("after", 200)):
            net.send(packet, now_us)
    # A sender is slow if it is so when the packet leaves, a receiver if it is so when it would arrive.
    assert sender.arrivals() == [(90, "before"), (105, "edge"), (135, "in"), (210, "after"), (230, "late")]
    assert receiver.arrivals() == [(90, "before"), (130, "edge"), (135, "in"), (205, "late"), (210, "after")]


def test_slowness_lengthens_the_service_time() -> None:
    net = Net(link={"delay": constant(0), "service_us": 10}, faults=slow("n0", factor=2.5))
    net.send("a", 100)
    net.send("b", 100)
    net.send("c", 300)
    assert net.arrivals() == [(125, "a"), (150, "b"), (310, "c")]


# Overrides, and what no core may do


def test_a_later_override_wins_and_the_rest_stays() -> None:
    net = Net(
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
    scenario = Net(
        nodes=4,
        topology={"kind": "ring"},
        overrides=[{"from_nodes": "n0", "fifo": True, "both_ways": True}],
    ).scenario
    assert set(link_specs(scenario, make_graph(scenario))) == {(0, 1), (0, 3), (1, 0), (3, 0)}


def test_sending_to_a_stranger_is_a_bug_of_the_core() -> None:
    net = Net(nodes=4, topology={"kind": "ring"})
    with pytest.raises(InvariantError, match="no neighbour"):
        net.send("a", 0, to="n2")


def test_priorities_leave_room_for_restarts_before_arrivals() -> None:
    from whence.sim import engine

    order = [engine.RESTART, engine.CRASH, network.RECEIVE, engine.TIMER, engine.BROADCAST, engine.REPLY]
    assert order == sorted(order)
    assert len(set(order)) == len(order)


# Windows and clocks


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=6),
    st.integers(0, 90),
    st.integers(0, 20),
)
def test_windows_agree_with_a_plain_search(raw: list[tuple[int, int]], first: int, length: int) -> None:
    intervals = [(start, start + size) for start, size in raw]
    windows = Windows(intervals)
    covered = {moment for start, stop in intervals for moment in range(start, stop)}
    hits = [moment for moment in range(first, first + length + 1) if moment in covered]
    end = windows.end_of(first, first + length)
    assert (end is None) == (not hits)
    if end is not None:
        assert end - 1 in covered
        assert end not in covered
        assert all(moment in covered for moment in range(hits[0], end))
    assert bool(windows) == bool(raw)


def test_windows_without_end() -> None:
    windows = Windows([(5, NEVER_US), (7, 9)])
    assert windows.end_of(8, 8) == NEVER_US
    assert windows.end_of(0, 4) is None


@given(
    st.integers(-(10**12), 10**12),
    st.integers(-500_000, 500_000),
    st.integers(0, 10**12),
    st.integers(0, 10**6),
)
def test_clocks_never_go_back_and_can_be_inverted(
    offset: int, drift: int, time_us: int, step_us: int
) -> None:
    clock = Clock(offset, drift)
    assert clock.local(time_us) <= clock.local(time_us + step_us)
    shown = clock.local(time_us)
    first = clock.true(shown)
    assert first <= time_us
    assert clock.local(first) >= shown
    if first > 0:
        assert clock.local(first - 1) < shown


def test_a_clock_by_hand() -> None:
    assert Clock(500, 100_000).local(1_000) == 1_600
    assert Clock(-500, 0).local(100) == 0
    assert Clock(-500, 0).true(1) == 501


# Hops on a grid, and the control path


def test_hops_are_steps_on_the_squarest_grid() -> None:
    assert [graphs.grid_hops(9, 4, other) for other in range(9)] == [2, 1, 2, 1, 0, 1, 2, 1, 2]
    assert graphs.grid_hops(100, 0, 99) == 18
    assert graphs.grid_hops(1, 0, 0) == 0


def test_each_hop_adds_its_delay() -> None:
    net = Net(nodes=9, link={"delay": constant(100), "hop_delay_us": 7})
    for to in ("n1", "n4", "n8"):
        net.send(to, 0, to=to)
    assert net.arrivals() == [(107, "n1"), (114, "n4"), (128, "n8")]


def test_each_hop_loses_its_share() -> None:
    net = Net(nodes=9, link={"delay": constant(1), "hop_loss": 0.2})
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
    assert network.path_loss(link, 0) == 0.5
    assert network.path_loss(link, 2) == pytest.approx(1 - 0.5 * 0.9**2)


def test_the_control_path_has_its_own_delays_loss_and_numbers() -> None:
    net = Net(nodes=2, link={"delay": constant(100), "loss": 0.9}, control={"delay": constant(3)})
    plan = plan_faults(net.scenario)
    graph = make_graph(net.scenario)
    control = make_outlets(net.scenario, graph, plan, net.heap, net.traffic, control=True)
    for number in range(50):
        control[0](("n1",), (f"c{number}",), 10, 0)
    assert net.arrivals() == [(13, f"c{number}") for number in range(50)]
    assert net.traffic.lost == 0


def test_a_control_packet_may_tie_with_another() -> None:
    net = Net(nodes=2, link={"delay": constant(3)}, control={"delay": constant(3)})
    control = make_outlets(
        net.scenario, make_graph(net.scenario), plan_faults(net.scenario), net.heap, net.traffic, control=True
    )
    control[0](("n1",), (object(),), 10, 0)
    net.outlets[0](("n1",), (object(),), 10, 0)  # same time, receiver, sender and number on its path
    assert len(net.arrivals()) == 2  # objects cannot be compared: the heap never had to
