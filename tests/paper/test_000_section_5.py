"""Paper 000, section 5: packets, sizes, the MTU, the single tree. (The study has the tables and figures.)"""

from __future__ import annotations

from statistics import mean

import pytest

from support.vcube_cores import cube, drive
from whence.kernels.vcube import kernel as vcube
from whence.protocols.vcube.wire import (
    SIZE_MODELS,
    VCubeMessage,
    paper_message_bytes,
    paper_packet_bytes,
    split,
)
from whence.sim.distributions import Normal
from whence.sim.model import Hypercube, Link, Scenario, Stop, Window


def test_section_5_1_without_aggregation_n_times_n_minus_1_packets():
    for count in (2, 5, 8, 16):
        net = cube(count, aggregate=False)
        for node in net.names:
            net.broadcast(node)
        net.settle()
        assert len(net.sent) == count * (count - 1)
        assert net.problems() == set()


def test_section_5_2_size_of_a_packet():
    alone = VCubeMessage(0, 1, (), bytes(50))
    after_three = VCubeMessage(1, 1, (0, 1, 2, 1, 3, 4), bytes(50))
    assert paper_packet_bytes(1) + paper_message_bytes(alone) == 20 + 50 + 4
    assert paper_message_bytes(after_three) == 50 + 4 * (3 + 1)


def test_section_5_a_packet_that_reaches_the_mtu_is_sent_and_the_rest_goes_into_a_new_one():
    model = SIZE_MODELS["paper"]
    messages = [VCubeMessage(0, number, (), bytes(50)) for number in range(1, 60)]  # 54 bytes each
    packets = split(messages, model, 1500)
    assert [len(packet.messages) for packet in packets] == [27, 27, 5]  # 20 + 27 x 54 = 1478
    assert [message for packet in packets for message in packet.messages] == messages
    assert len(split(messages, model, 0)) == 1
    huge = VCubeMessage(0, 1, (), bytes(5000))
    assert [len(packet.messages) for packet in split([huge, *messages[:2], huge], model, 1500)] == [1, 2, 1]


@pytest.mark.parametrize("aggregate", [True, False])
@pytest.mark.parametrize("count", [1, 2, 7, 16])
def test_section_5_5_everything_goes_to_the_root_and_over_its_tree(count, aggregate):
    net = cube(count, tree="single", aggregate=aggregate)
    drive(net, 1, replies=True)
    assert net.problems() == set()
    kids = {name: core.view.cube.children(net.names.index(name), 0) for name, core in net.cores.items()}
    tree = {(name, net.names[child]) for name in net.names for child in kids[name]}
    assert {(flight.sender, flight.to) for flight in net.sent} <= tree | {(name, "0") for name in net.names}


def test_section_5_5_packets_of_the_single_tree():
    """One to the root, and N - 1 over its tree, of which one brings the message back to its source."""
    net = cube(8, tree="single", aggregate=False)
    for node in net.names:
        net.broadcast(node)
        net.settle()
    assert len(net.sent) == 8 * 7 + 7


def scenario(nodes: int, seed: int, **params: object) -> Scenario:
    return Scenario(
        nodes=nodes,
        protocol="vcube",
        seed=seed,
        params={"size_model": "paper", **params},
        topology=Hypercube(rooted=True),
        link=Link(delay=Normal(mean_us=100_000, deviation_us=25_000), service_us=1_000, process_us=1_000),
        workloads=[Window(count=1, stop_us=500_000, payload_bytes=50)],
        stop=Stop(duration_us=500_000),
    )


@pytest.mark.parametrize(
    ("nodes", "reduction", "aggregated", "deviation"),
    [(16, 2.57, 2.49, 1.4), (64, 8.46, 7.12, 1.1), (256, 18.16, 13.02, 0.7)],
)
def test_table_1_is_what_the_specification_expects_of_r0(nodes, reduction, aggregated, deviation):
    """Within three standard errors of the prototype, whose own mean (of 10 runs or more) has one too."""
    runs = 30
    measures = [vcube.run(scenario(nodes, seed)).detail.measures for seed in range(runs)]
    allowed = 3 * deviation * (1 / runs + 1 / 10) ** 0.5
    assert mean(100 * each.reduction() for each in measures) == pytest.approx(reduction, abs=allowed)
    assert mean(100 * each.aggregated_share() for each in measures) == pytest.approx(aggregated, abs=allowed)


def test_figure_11_the_single_tree_aggregates_and_delays_far_less():
    many, one = (
        [vcube.run(scenario(64, seed, tree=tree)).detail.measures for seed in range(5)]
        for tree in ("source", "single")
    )
    assert mean(m.aggregated_messages for m in one) < 0.15 * mean(m.aggregated_messages for m in many)
    assert mean(m.delayed for m in one) < 0.2 * mean(m.delayed for m in many)
