"""Paper 000, sections 3, 4.3 and 4.4: the examples, and the algorithm as it is printed (corrected)."""

from __future__ import annotations

import random

import pytest

from printed.vcube import printed_cube
from support.net import Net
from support.parts import parts
from support.vcube_worlds import cube

ALWAYS, ALL = 20, 60  # runs of each size beside the algorithm as printed
SIZES = (1, 2, 3, 4)  # dimensions


def arrive_at(net: Net, to: str, ids: list[str]) -> None:
    """The packet with just these messages arrives at a node."""
    net.arrive(next(at for at, fly in enumerate(net.flying) if (fly.to, net.carried(fly)) == (to, ids)))


def sent_by_4(net: Net) -> list[tuple[str, list[str]]]:
    return [(fly.to, net.carried(fly)) for fly in net.flying if fly.sender == "4"]


def test_section_3_figure_2_clocks_and_delivery():
    """m2 -> m1 -> m0, received at node 3 out of causal order."""
    net = cube(4, aggregate=False)
    net.broadcast("2")
    for to in "01":
        arrive_at(net, to, ["2:1"])
    net.broadcast("1")
    arrive_at(net, "0", ["1:1"])
    net.broadcast("0")
    (m0,) = {fly.packet.messages for fly in net.flying if net.carried(fly) == ["0:1"]}
    assert (m0[0].number, m0[0].after) == (1, (1, 1, 2, 1))  # m0.vc = (1, 1, 1, 0), its own entry apart
    arrive_at(net, "2", ["0:1"])
    for id_, delivered in (("0:1", []), ("1:1", []), ("2:1", ["2:1", "1:1", "0:1"])):
        arrive_at(net, "3", [id_])
        assert net.ids("3") == delivered


def figure_5() -> Net:
    """m2 -> m1 -> m0 in a system of 8 nodes; node 4 has received nothing yet."""
    net = cube(8)
    net.broadcast("2")
    for to in "01":
        arrive_at(net, to, ["2:1"])
    net.broadcast("1")
    arrive_at(net, "0", ["1:1"])
    net.broadcast("0")
    return net


def test_section_4_3_figure_5_node_4_keeps_m0_from_5_and_not_from_6():
    net = figure_5()
    arrive_at(net, "4", ["0:1"])
    assert sent_by_4(net) == [("6", ["0:1"])]
    arrive_at(net, "6", ["2:1"])
    arrive_at(net, "4", ["2:1"])  # it does not wait for m1: node 5 is no child of 4 in the tree of 1
    assert [(to, sorted(ids)) for to, ids in sent_by_4(net)] == [("6", ["0:1"]), ("5", ["0:1", "2:1"])]
    net.settle()
    assert net.problems() == set()


def test_section_4_3_no_aggregation_if_m2_comes_first():
    net = figure_5()
    arrive_at(net, "6", ["2:1"])
    arrive_at(net, "4", ["2:1"])
    arrive_at(net, "4", ["0:1"])
    assert sent_by_4(net) == [("5", ["2:1"]), ("5", ["0:1"]), ("6", ["0:1"])]


def test_section_4_4_first_example():
    """m2^1 -> m2^2 -> m2^3 -> m0^1; node 4 lacks m2^2: all that waits for it goes to 5 in one packet."""
    net = cube(8)
    for _ in range(3):
        net.broadcast("2")
    for number in (1, 2, 3):
        arrive_at(net, "0", [f"2:{number}"])
    net.broadcast("0")
    for number in (1, 2, 3):
        arrive_at(net, "6", [f"2:{number}"])
    for id_ in ("2:1", "2:3", "0:1"):
        arrive_at(net, "4", [id_])
    assert net.cores["4"].received[2] == 1
    assert sent_by_4(net) == [("5", ["2:1"]), ("6", ["0:1"])]
    arrive_at(net, "4", ["2:2"])
    assert net.cores["4"].received[2] == 3
    assert sent_by_4(net)[2:] == [("5", ["2:3", "0:1", "2:2"])]


def test_section_4_4_second_example():
    """m2^1 -> m0^1 -> m0^2, received at 4 as m0^1, m0^2, m2^1: nothing goes to 6 twice."""
    net = cube(8)
    net.broadcast("2")
    arrive_at(net, "0", ["2:1"])
    net.broadcast("0")
    net.broadcast("0")
    arrive_at(net, "6", ["2:1"])
    for id_ in ("0:1", "0:2", "2:1"):
        arrive_at(net, "4", [id_])
    assert sent_by_4(net) == [("6", ["0:1"]), ("6", ["0:2"]), ("5", ["0:1", "0:2", "2:1"])]


def steps(net: Net, node: str, sent: int, had: int) -> tuple[list[tuple[str, str, list[str]]], set[str]]:
    """What a step at `node` has sent and delivered: all of `net.sent` and of its deliveries from here on."""
    return [(fly.sender, fly.to, net.carried(fly)) for fly in net.sent[sent:]], set(net.ids(node)[had:])


def one_run(d: int, seed: int) -> bool:
    """Both nets hold the same packets in flight: the same ones leave them, and each step adds the same ones.

    Answers whether packets were aggregated.
    """
    draw = random.Random(seed)
    printed, core = printed_cube(d), cube(2**d, mtu_bytes=0, check=True)
    for _ in range(150):
        sent = len(core.sent)
        if core.flying and draw.random() < 0.7:
            at, keep = draw.randrange(len(core.flying)), draw.random() < 0.05
            node = core.flying[at].to
            had = len(core.delivered[node])
            for net in (printed, core):
                net.arrive(at, keep=keep)
        else:
            node = core.names[draw.randrange(2**d)]
            had = len(core.delivered[node])
            for net in (printed, core):
                net.broadcast(node)
        assert steps(core, node, sent, had) == steps(printed, node, sent, had)
    assert list(map(core.carried, core.flying)) == list(map(printed.carried, printed.flying))
    return any(len(core.carried(fly)) > 1 for fly in core.flying)


@pytest.mark.parametrize("part", parts(ALL // ALWAYS, fast=1))
@pytest.mark.parametrize("d", SIZES)
def test_the_core_sends_the_packets_of_the_algorithm_as_printed(d, part):
    """Levels, watched dependencies and differences of clocks change nothing: packet by packet."""
    aggregated = sum(one_run(d, seed) for seed in range(part * ALWAYS, part * ALWAYS + ALWAYS))
    assert d < 2 or aggregated > 0
