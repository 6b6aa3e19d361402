"""What faults do to packets, exactly: partitions, crashes, slowness; the windows and clocks behind them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from unit.simulated_links import SimulatedLinks, constant
from whence.sim.faults import NEVER_US, FaultyClock, Windows

# Partitions and crashes


def cut(start_us: int, stop_us: int | None) -> list[dict[str, Any]]:
    return [{"kind": "partition", "start_us": start_us, "stop_us": stop_us, "groups": [["n0"]]}]


def test_a_partition_drops_what_is_under_way_while_it_stands() -> None:
    net = SimulatedLinks(link={"delay": constant(10)}, faults=cut(100, 200))
    for packet, now_us in (("before", 89), ("touches", 90), ("inside", 150), ("last", 199), ("after", 200)):
        net.send(packet, now_us)
    assert net.arrivals() == [(99, "before"), (210, "after")]
    assert net.traffic.lost == 3


def test_a_partition_leaves_the_same_side_alone() -> None:
    net = SimulatedLinks(nodes=3, link={"delay": constant(10)}, faults=cut(100, 200))
    net.send("a", 150, source=1, to="n2")
    assert net.arrivals() == [(160, "a")]


def test_a_retransmitting_link_holds_packets_until_the_partition_heals() -> None:
    net = SimulatedLinks(link={"delay": constant(10), "retransmit_us": 30}, faults=cut(100, 200))
    net.send("a", 95)  # attempts at 95, 125, 155, 185, 215
    net.send("b", 110)  # attempts at 110, 140, 170, 200
    assert net.arrivals() == [(210, "b"), (225, "a")]
    assert net.traffic.lost == 0


def test_a_partition_that_never_heals_loses_even_on_a_retransmitting_link() -> None:
    net = SimulatedLinks(link={"delay": constant(10), "retransmit_us": 30}, faults=cut(100, None))
    net.send("a", 95)
    assert net.arrivals() == []
    assert net.traffic.lost == 1


def test_two_partitions_in_a_row_are_both_waited_for() -> None:
    net = SimulatedLinks(
        link={"delay": constant(10), "retransmit_us": 30}, faults=[*cut(100, 200), *cut(205, 300)]
    )
    net.send("a", 100)  # attempts at 100, 220 (inside the second), 310
    assert net.arrivals() == [(320, "a")]


def crash(node: str, at_us: int, restart_us: int | None) -> list[dict[str, Any]]:
    return [{"kind": "crash", "nodes": node, "at_us": at_us, "restart_us": restart_us}]


def test_what_arrives_at_a_crashed_node_is_lost() -> None:
    net = SimulatedLinks(link={"delay": constant(10)}, faults=crash("n1", 100, 200))
    for packet, now_us in (("before", 89), ("at crash", 90), ("inside", 150), ("at restart", 190)):
        net.send(packet, now_us)
    assert net.arrivals() == [(99, "before"), (200, "at restart")]
    assert net.traffic.lost == 2


def test_a_retransmitting_link_brings_it_after_the_restart() -> None:
    net = SimulatedLinks(link={"delay": constant(10), "retransmit_us": 30}, faults=crash("n1", 100, 200))
    net.send("a", 95)  # it would arrive at 105; the first attempt after the restart is at 215
    assert net.arrivals() == [(225, "a")]


def test_a_node_that_never_restarts_loses_everything() -> None:
    net = SimulatedLinks(link={"delay": constant(10), "retransmit_us": 30}, faults=crash("n1", 100, None))
    net.send("a", 95)
    assert net.arrivals() == []
    assert net.traffic.lost == 1


def test_what_a_node_had_queued_when_it_crashed_leaves_after_its_restart_or_never() -> None:
    link = {"delay": constant(10), "service_us": 50}
    reliable = SimulatedLinks(link={**link, "retransmit_us": 30}, faults=crash("n0", 60, 200))
    lossy = SimulatedLinks(link=link, faults=crash("n0", 60, 200))
    for net in (reliable, lossy):
        net.send("out", 0)  # leaves at 50
        net.send("queued", 0)  # would leave at 100
    assert lossy.arrivals() == [(60, "out")]
    assert reliable.arrivals() == [(60, "out"), (230, "queued")]  # attempts at 100, 220


# Slowness


def slow(node: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"kind": "slow", "nodes": node, "start_us": 100, "stop_us": 200, **fields}]


def test_a_slow_sender_and_a_slow_receiver() -> None:
    sender = SimulatedLinks(link={"delay": constant(10)}, faults=slow("n0", factor=3.0, extra_us=5))
    receiver = SimulatedLinks(link={"delay": constant(10)}, faults=slow("n1", factor=3.0, extra_us=5))
    for net in (sender, receiver):
        for packet, now_us in (("before", 80), ("edge", 95), ("in", 100), ("late", 195), ("after", 200)):
            net.send(packet, now_us)
    # A sender is slow if it is so when the packet leaves, a receiver if it is so when it would arrive.
    assert sender.arrivals() == [(90, "before"), (105, "edge"), (135, "in"), (210, "after"), (230, "late")]
    assert receiver.arrivals() == [(90, "before"), (130, "edge"), (135, "in"), (205, "late"), (210, "after")]


def test_slowness_lengthens_the_service_time() -> None:
    net = SimulatedLinks(link={"delay": constant(0), "service_us": 10}, faults=slow("n0", factor=2.5))
    net.send("a", 100)
    net.send("b", 100)
    net.send("c", 300)
    assert net.arrivals() == [(125, "a"), (150, "b"), (310, "c")]


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
    clock = FaultyClock(offset, drift)
    assert clock.local(time_us) <= clock.local(time_us + step_us)
    shown = clock.local(time_us)
    first = clock.true(shown)
    assert first <= time_us
    assert clock.local(first) >= shown
    if first > 0:
        assert clock.local(first - 1) < shown


def test_a_clock_by_hand() -> None:
    assert FaultyClock(500, 100_000).local(1_000) == 1_600
    assert FaultyClock(-500, 0).local(100) == 0
    assert FaultyClock(-500, 0).true(1) == 501
