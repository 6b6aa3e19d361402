"""Paper 000, sections 3, 4.3 and 4.4: the examples, and the algorithm as it is printed (corrected)."""

from __future__ import annotations

import random

import pytest

from support.published_vcube import PublishedNet
from support.vcube_net import CoreNet


def test_section_3_figure_2_clocks_and_delivery():
    """m2 -> m1 -> m0, received at node 3 out of causal order."""
    net = CoreNet(4, aggregate=False)
    net.broadcast(2)
    for to in (0, 1):
        net.arrive_at(to, ["2:1"])
    net.broadcast(1)
    net.arrive_at(0, ["1:1"])
    net.broadcast(0)
    (m0,) = {fly.packet.messages for fly in net.flying if fly.ids == ["0:1"]}
    assert (m0[0].number, m0[0].after) == (1, (1, 1, 2, 1))  # m0.vc = (1, 1, 1, 0), its own entry apart
    net.arrive_at(2, ["0:1"])
    for id_, delivered in (("0:1", []), ("1:1", []), ("2:1", ["2:1", "1:1", "0:1"])):
        net.arrive_at(3, [id_])
        assert net.delivered[3] == delivered


def figure_5() -> CoreNet:
    """m2 -> m1 -> m0 in a system of 8 nodes; node 4 has received nothing yet."""
    net = CoreNet(8)
    net.broadcast(2)
    for to in (0, 1):
        net.arrive_at(to, ["2:1"])
    net.broadcast(1)
    net.arrive_at(0, ["1:1"])
    net.broadcast(0)
    return net


def test_section_4_3_figure_5_node_4_keeps_m0_from_5_and_not_from_6():
    net = figure_5()
    net.arrive_at(4, ["0:1"])
    assert [(fly.to, fly.ids) for fly in net.flying if fly.sender == 4] == [(6, ["0:1"])]
    net.arrive_at(6, ["2:1"])
    net.arrive_at(4, ["2:1"])  # it does not wait for m1: node 5 is no child of 4 in the tree of 1
    sent = [(fly.to, sorted(fly.ids)) for fly in net.flying if fly.sender == 4]
    assert sent == [(6, ["0:1"]), (5, ["0:1", "2:1"])]
    net.settle()
    assert net.problems() == set()


def test_section_4_3_no_aggregation_if_m2_comes_first():
    net = figure_5()
    net.arrive_at(6, ["2:1"])
    net.arrive_at(4, ["2:1"])
    net.arrive_at(4, ["0:1"])
    sent = [(fly.to, fly.ids) for fly in net.flying if fly.sender == 4]
    assert sent == [(5, ["2:1"]), (5, ["0:1"]), (6, ["0:1"])]


def test_section_4_4_first_example():
    """m2^1 -> m2^2 -> m2^3 -> m0^1; node 4 lacks m2^2: all that waits for it goes to 5 in one packet."""
    net = CoreNet(8)
    for _ in range(3):
        net.broadcast(2)
    for number in (1, 2, 3):
        net.arrive_at(0, [f"2:{number}"])
    net.broadcast(0)
    for number in (1, 2, 3):
        net.arrive_at(6, [f"2:{number}"])

    def sent_by_4() -> list[tuple[int, list[str]]]:
        return [(fly.to, fly.ids) for fly in net.flying if fly.sender == 4]

    for id_ in ("2:1", "2:3", "0:1"):
        net.arrive_at(4, [id_])
    assert net.cores[4].received[2] == 1
    assert sent_by_4() == [(5, ["2:1"]), (6, ["0:1"])]
    net.arrive_at(4, ["2:2"])
    assert net.cores[4].received[2] == 3
    assert sent_by_4()[2:] == [(5, ["2:3", "0:1", "2:2"])]


def test_section_4_4_second_example():
    """m2^1 -> m0^1 -> m0^2, received at 4 as m0^1, m0^2, m2^1: nothing goes to 6 twice."""
    net = CoreNet(8)
    net.broadcast(2)
    net.arrive_at(0, ["2:1"])
    net.broadcast(0)
    net.broadcast(0)
    net.arrive_at(6, ["2:1"])
    for id_ in ("0:1", "0:2", "2:1"):
        net.arrive_at(4, [id_])
    sent = [(fly.to, fly.ids) for fly in net.flying if fly.sender == 4]
    assert sent == [(6, ["0:1"]), (6, ["0:2"]), (5, ["0:1", "0:2", "2:1"])]


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_the_core_sends_the_packets_of_the_algorithm_as_printed(d):
    """Levels, watched dependencies and differences of clocks change nothing: packet by packet."""
    aggregated = 0
    for seed in range(60):
        draw = random.Random(seed)
        printed, core = PublishedNet(d), CoreNet(2**d, mtu_bytes=0)
        for _ in range(150):
            if core.flying and draw.random() < 0.7:
                at, keep = draw.randrange(len(core.flying)), draw.random() < 0.05
                for net in (printed, core):
                    net.arrive(at, keep=keep)
            else:
                node = draw.randrange(2**d)
                for net in (printed, core):
                    net.broadcast(node)
            core.check()
            assert [fly[:3] for fly in core.flying] == [fly[:3] for fly in printed.flying]
            assert [set(ids) for ids in core.delivered] == [set(ids) for ids in printed.delivered]
        aggregated += any(len(fly.ids) > 1 for fly in core.flying)
    assert d < 2 or aggregated > 0
