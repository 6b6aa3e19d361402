"""The kernel gives what the core gives: every packet, every time, every delivery, every measure."""

from __future__ import annotations

import struct
from collections import Counter

import msgspec
import numba
import numpy as np
import pytest

from equivalence.vcube_runs import random_scenario, run_core, without_links
from support.hashing import HashingRecorder
from support.parts import parts
from support.running import simulate
from support.simulating import KeptRows
from whence.core import rng
from whence.errors import MisuseError
from whence.kernels import rng as kernel_rng
from whence.kernels.compile import fingerprint
from whence.kernels.contract import TESTED
from whence.kernels.vcube import kernel as vcube
from whence.kernels.vcube import kernel as vcube_tables
from whence.kernels.vcube import state as vcube_arrays
from whence.kernels.vcube import step as vcube_engine
from whence.lab.run import path_of, run
from whence.protocols import registry
from whence.protocols.vcube.core import VCube
from whence.sim.distributions import Constant, Exponential, Normal, Uniform, sampler
from whence.sim.model import (
    Crash,
    Full,
    Hypercube,
    Link,
    Override,
    Random,
    Record,
    Replies,
    Scenario,
    Stop,
    Window,
)
from whence.sim.outcome import Outcome
from whence.trace.schema import Level


def compare(scenario: Scenario, *, check: bool = False) -> int:
    """Hold one run of the kernel to the core's; answers how many packets there were."""
    result, rows, measures = run_core(scenario, check=check)
    told = KeptRows()
    outcome = vcube.run(scenario, told, Level.ALL, {"trail": True})
    assert without_links(told) == rows
    assert outcome.detail.measures == measures
    assert (outcome.steps, outcome.deliveries, outcome.drained) == (result.steps, result.deliveries, True)
    assert result.undelivered == 0
    trail = outcome.detail.trail
    came = trail.received_us >= 0
    assert int((trail.received_us - trail.broadcast_us)[came].sum()) == measures.reception_us
    assert int(came.sum()) == measures.receptions
    return result.packets


ALWAYS, ALL = 100, 1_000


def one_run(seed: int) -> int:
    return compare(random_scenario(seed))


@pytest.mark.parametrize("part", parts(ALL // ALWAYS, fast=1))
def test_a_thousand_random_configurations(part):
    assert sum(map(one_run, range(part * ALWAYS, part * ALWAYS + ALWAYS))) > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_more(part):
    for seed in range(10_000 + part * 1000, 11_000 + part * 1000):
        compare(random_scenario(seed), check=seed % 10 == 0)


def paper(nodes: int, **params: object) -> Scenario:
    """The paper's model (R0)."""
    return Scenario(
        nodes=nodes,
        protocol="vcube",
        params={"size_model": "paper", **params},
        topology=Hypercube(rooted=True),
        link=Link(delay=Normal(mean_us=100_000, deviation_us=25_000), service_us=1_000, process_us=1_000),
        workloads=[Window(count=1, stop_us=500_000, payload_bytes=50)],
        stop=Stop(duration_us=500_000),
    )


@pytest.mark.parametrize("nodes", [64, 100, pytest.param(128, marks=pytest.mark.slow)])
def test_the_papers_model(nodes):
    compare(paper(nodes))
    assert compare(paper(nodes, aggregate=False)) == nodes * (nodes - 1)
    assert compare(paper(nodes, aggregate=False, tree="single")) == nodes * (nodes - 1) + nodes - 1


def recorded(scenario: Scenario) -> tuple[list[object], object]:
    """Every row of the kernel's run, and its measures."""
    rows = KeptRows()
    outcome = vcube.run(scenario, rows, Level.ALL)
    return rows.rows, outcome.detail.measures


def test_whatever_must_grow_grows(monkeypatch):
    scenario = paper(64)
    expected = recorded(scenario)
    monkeypatch.setattr(vcube_tables, "ROOM_MIN", 4)
    grown: set[int] = set()
    grow = vcube_arrays.grown
    monkeypatch.setattr(vcube_arrays, "grown", lambda state, what: (grown.add(what), grow(state, what))[1])
    outcome = recorded(scenario)
    assert grown == {
        vcube_arrays.MORE_PACKETS,
        vcube_arrays.MORE_CELLS,
        vcube_arrays.MORE_PENDING,
        vcube_arrays.MORE_DEPENDENCIES,
        vcube_arrays.MORE_EVENTS,
    }
    assert outcome == expected


@pytest.mark.parametrize("span_us", [1, 1_000, 10**12])
def test_a_bad_guess_of_the_run_time_changes_nothing_but_the_speed(monkeypatch, span_us):
    scenario = paper(32)
    expected = recorded(scenario)
    monkeypatch.setattr(vcube_tables, "guess_span_us", lambda *_: span_us)
    assert recorded(scenario) == expected


def test_the_random_configurations_reach_every_branch():
    seen: Counter[str] = Counter()
    for seed in range(ALWAYS):
        scenario = random_scenario(seed)
        measures = vcube.run(scenario).detail.measures
        split = vcube.run(without_mtu(scenario)).detail.measures.packets < measures.packets
        seen["aggregated"] += measures.aggregated_packets > 0
        seen["split at the MTU"] += split
        seen["several messages per node"] += measures.messages > scenario.nodes
        seen["not a power of two"] += scenario.nodes.bit_count() > 1
        seen["delayed"] += measures.delayed > 0
        seen["queued"] += measures.queued_us > 0
        seen[str(scenario.params["tree"])] += 1
    assert min(seen.values()) >= 4, seen
    assert len(seen) == 8


def without_mtu(scenario: Scenario) -> Scenario:
    return msgspec.structs.replace(scenario, params={**scenario.params, "mtu_bytes": 0})


def test_the_trace_has_the_same_hash():
    scenario = paper(24)
    for level in (Level.MEASURES, Level.DELIVERIES, Level.ALL):
        hashes = []
        for choice in ("never", "always"):
            recorder = HashingRecorder()
            run(scenario, recorder=recorder, level=level, kernel=choice)
            hashes.append(recorder.hexdigest())
        assert hashes[0] == hashes[1]


def test_what_is_cached_on_disk_is_named_by_the_text_of_all_kernels():
    (cell,) = vcube_engine.advance.py_func.__closure__  # numba takes it for a part of the key
    assert cell.cell_contents == fingerprint() > 0
    # Nor is the index of another release read, which may name classes that are no more.
    assert vcube_engine.advance.py_func.__qualname__.endswith(f"_{fingerprint():x}")


# Draws


@numba.njit
def compiled_draw(kind, a, b, key, index):
    return kernel_rng.draw(kind, a, b, key, index)


@numba.njit
def compiled_quantile(probability):
    return kernel_rng.normal_quantile(probability)


@pytest.mark.parametrize(
    "distribution",
    [
        Constant(value_us=7),
        Uniform(low_us=5, high_us=5),
        Uniform(low_us=3, high_us=4_000_000_000),
        Normal(mean_us=100_000, deviation_us=25_000),
        Normal(mean_us=1_000, deviation_us=25_000),  # half of the draws are drawn again
    ],
)
def test_delays_have_the_same_bits(distribution):
    key = rng.stream(11, rng.purpose("link delay"), 3, 5)
    draw, code = sampler(distribution), kernel_rng.delay_code(distribution)
    assert code is not None
    for index in range(25_000):
        assert draw(key, index) == compiled_draw(*code, np.uint64(key), index)


def test_normal_quantiles_have_the_same_bits():
    key = rng.stream(12, rng.purpose("quantiles"))
    edges = [0.0, 2.0**-53, 1e-300, 1e-12, 0.075, 0.5, 0.925, 1.0 - 2.0**-53]
    for probability in [*(rng.uniform(key, index) for index in range(100_000)), *edges]:
        ours, theirs = compiled_quantile(probability), rng.normal_quantile(probability)
        assert struct.pack("d", ours) == struct.pack("d", theirs)


# The choice


def same(one: Outcome, other: Outcome) -> bool:
    """All but the path, and what only one of the paths has."""
    apart = {"path": "core", "why": "", "measures": {}, "detail": None}
    return msgspec.structs.replace(one, **apart) == msgspec.structs.replace(other, **apart)


def test_a_run_says_that_the_kernel_made_it():
    scenario = paper(16)
    outcome = run(scenario, kernel="always")
    assert (outcome.path, outcome.why) == ("kernel", TESTED)
    assert same(outcome, simulate(scenario))


def changed(**changes: object) -> Scenario:
    return msgspec.structs.replace(paper(4), **{"topology": Full()} | changes)


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        (changed(protocol="vector", params={}), "no kernel for protocol 'vector'"),
        (changed(link=Link(loss=0.1, retransmit_us=10)), "lose"),
        (changed(link=Link(duplicate=0.1)), "duplicate"),
        (changed(link=Link(fifo=True)), "FIFO"),
        (changed(link=Link(bandwidth_bytes_per_s=1_000)), "bandwidth"),
        (changed(faults=[Crash(nodes="n1", at_us=1, restart_us=2)]), "faults"),
        (
            changed(workloads=[Window(count=1, stop_us=9), Replies(probability=0.5)]),
            "reply",
        ),
        (changed(stop=Stop(duration_us=500_000, drain=False)), "cut off"),
    ],
)
def test_a_run_says_why_the_cores_made_it(scenario, reason):
    outcome = run(scenario, kernel="always")
    assert outcome.path == "core"
    assert reason in outcome.why
    assert same(outcome, simulate(scenario))


def test_another_core_under_the_same_name_is_not_the_kernels(monkeypatch):
    class Other(VCube):
        pass

    info = registry.lookup("vcube")
    monkeypatch.setitem(registry._REGISTRY, "vcube", registry.ProtocolInfo(**vars(info) | {"make": Other}))
    path, why = path_of(paper(4), kernel="always")
    assert path == "core"
    assert "Other" in why


def test_the_kernel_refuses_what_it_cannot_run():
    assert "topology" in str(vcube.refusal(changed(topology=Random(degree=3))))
    assert "nodes" in str(vcube.refusal(changed(nodes=100_000, topology=Hypercube())))
    assert "sampled" in str(vcube.refusal(changed(record=Record(sample_every_us=5))))
    assert "differ" in str(vcube.refusal(changed(overrides=[Override(loss=0.5)])))
    assert "delay" in str(vcube.refusal(changed(link=Link(delay=Exponential(mean_us=5)))))
    assert "VCubeMembers" in str(vcube.refusal(changed(params={"detect": True})))
    with pytest.raises(MisuseError, match="FIFO"):
        vcube.run(changed(link=Link(fifo=True)))
    with pytest.raises(MisuseError, match="it keeps no registries"):
        vcube.run(paper(2), keep={"registries": True})
