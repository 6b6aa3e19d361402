"""VCube in the simulator: faults that heal, traces that verify and replay, and the network of the study."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from support.running import simulate, simulate_to
from support.simulating import KeptRows
from whence.errors import ScenarioError
from whence.lab.run import run
from whence.protocols.vcube.core import VCube
from whence.sim.distributions import Constant, Exponential, Normal, Uniform
from whence.sim.files import checked
from whence.sim.model import (
    Full,
    Hypercube,
    Link,
    RandomCrashes,
    RandomPartitions,
    Replies,
    Ring,
    Scenario,
    Slow,
    Stop,
    Window,
    node_names,
)
from whence.sim.replay import replay
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind, Level
from whence.verify.run import verify_table, verify_trace


def troubled(seed: int) -> Scenario:
    """Loss, copies, partitions, crashes with restart, slow nodes: where links retransmit, all of it heals."""
    draw = random.Random(seed)
    nodes = draw.randrange(2, 14)
    return Scenario(
        nodes=nodes,
        protocol="vcube",
        seed=seed,
        params={
            "aggregate": draw.random() < 0.7,
            "tree": draw.choice(["source", "single"]),
            "mtu_bytes": draw.choice([0, 200]),
        },
        link=Link(
            delay=draw.choice([Normal(mean_us=900, deviation_us=900), Exponential(mean_us=2_000)]),
            loss=0.1,
            duplicate=0.1,
            retransmit_us=700,
            service_us=draw.choice([0, 20]),
            process_us=draw.choice([0, 15]),
        ),
        workloads=[
            Window(count=4, stop_us=20_000, payload_bytes=9),
            Replies(probability=0.1, depth=2, count=5),
        ],
        faults=[
            RandomPartitions(count=2, stop_us=15_000, lasting=Uniform(low_us=1_000, high_us=4_000)),
            RandomCrashes(count=3, stop_us=15_000, lasting=Uniform(low_us=1_000, high_us=4_000)),
            Slow(nodes=1, factor=3.0),
        ],
        stop=Stop(duration_us=40_000),
    )


@pytest.mark.parametrize("part", range(4))
def test_faults_that_heal_lose_nothing(part):
    for seed in range(part * 15, part * 15 + 15):
        result = simulate(troubled(seed), check=True)
        assert (result.undelivered, result.waiting) == (0, {}), seed
        assert result.promises.complete
        assert set(result.discards) <= {"duplicate"}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_traces_verify_and_replay(tmp_path, seed):
    scenario = troubled(seed)
    simulate_to(scenario, tmp_path / "trace")
    (report,) = verify_trace(tmp_path / "trace")
    assert report.ok
    assert report.deliveries == report.broadcasts * scenario.nodes
    replayed = replay(tmp_path / "trace")
    assert replayed.ok, replayed.mismatches
    assert replayed.inputs > 0


def calm(nodes: int, **params: object) -> Scenario:
    return Scenario(
        nodes=nodes,
        protocol="vcube",
        params=params,
        topology=Hypercube(rooted=True),
        link=Link(delay=Normal(mean_us=100_000, deviation_us=25_000), service_us=1_000, process_us=1_000),
        workloads=[Window(count=1, stop_us=500_000, payload_bytes=50)],
        stop=Stop(duration_us=500_000),
    )


@pytest.mark.parametrize("params", [{}, {"aggregate": False}, {"tree": "single"}])
def test_the_verifier_judges_what_the_kernel_did(params):
    scenario = calm(48, **params)
    trace = MemoryTrace()
    result = run(scenario, recorder=trace, level=Level.DELIVERIES, kernel="always")
    assert result.path == "kernel"
    report = verify_table(trace.table(result.run), result.promises, node_names(scenario.nodes))
    assert report.ok
    assert (report.broadcasts, report.deliveries) == (48, 48 * 48)


def test_the_verifier_catches_a_vcube_that_delivers_at_once():
    class Hasty(VCube):
        def _obstacle(self, message):
            return None

    trace = MemoryTrace()
    scenario = calm(32)
    result = simulate(scenario, trace, level=Level.DELIVERIES, make=Hasty)
    report = verify_table(trace.table(result.run), result.promises, node_names(scenario.nodes))
    assert not report.ok
    assert report.counts.causal > 0


# What the study needs of the simulator


def test_further_messages_of_a_packet_are_in_the_trace():
    rows = KeptRows()
    simulate(calm(64), rows)
    details = [row[8] for row in rows.rows if row[2] in (Kind.SEND, Kind.RECEIVE) and row[8] is not None]
    assert details
    for detail in details:
        for id_ in detail.split(" "):
            name, number = id_.split(":")
            assert (name[0], number) == ("n", "1")
    named = sum(1 + len(row[8].split(" ")) if row[8] else 1 for row in rows.rows if row[2] is Kind.SEND)
    assert named == 64 * 63  # each message once over each link of its tree


def test_processing_takes_its_time_for_every_packet_by_itself():
    def arrivals(process_us: int) -> list[int]:
        rows = KeptRows()
        link = Link(delay=Constant(value_us=100), service_us=10, process_us=process_us)
        workload = Window(count=1, stop_us=1, senders="n0")
        stop = Stop(duration_us=1)
        simulate(Scenario(nodes=4, protocol="vcube", link=link, workloads=[workload], stop=stop), rows)
        return [row[1] for row in rows.rows if row[2] is Kind.RECEIVE]

    assert arrivals(0) == [110, 120, 230]  # 0 -> 1, 0 -> 2, 2 -> 3
    assert arrivals(7) == [117, 127, 244]


def test_trees_need_their_links():
    scenario = calm(8)
    for topology in (Full(), Hypercube(), Hypercube(rooted=True)):
        checked(replace(scenario, topology=topology))
    with pytest.raises(ScenarioError, match="topology"):
        checked(replace(scenario, topology=Ring()))
    with pytest.raises(ScenarioError, match="rooted"):
        checked(replace(scenario, topology=Hypercube(), params={"tree": "single"}))
