"""The bug zoo: every broken variant is caught by the verifier, and no right protocol is flagged."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import asdict

from support.running import simulate
from whence.core.protocol import Protocol
from whence.protocols.baselines.fifo import Fifo
from whence.protocols.baselines.vector import Vector
from whence.sim.files import from_dict
from whence.trace.memory import MemoryTrace
from whence.trace.schema import PromisesMade
from whence.verify.report import RunReport
from whence.verify.run import verify_table
from zoo.mutants.baselines import ZOO, Mutant

SEEDS = range(12)
EVERYTHING = PromisesMade(causal=True, fifo=True, no_duplicates=True, complete=True)
ONLY_FIFO = PromisesMade(causal=False, fifo=True, no_duplicates=True, complete=True)

BASE = {
    "nodes": 6,
    "protocol": "vector",
    "topology": {"kind": "random", "degree": 3},
    "link": {"delay": {"kind": "exponential", "mean_us": 20_000}},
    "workloads": [
        {"kind": "poisson", "interval_us": 30_000, "count": 8},
        {"kind": "replies", "probability": 0.5, "depth": 3, "count": 10},
    ],
    "stop": {"duration_us": 400_000},
}
RELIABLE = {**BASE["link"], "retransmit_us": 5_000}
SCENARIOS = {
    "replies": BASE,
    "duplicates": {**BASE, "link": {**BASE["link"], "duplicate": 0.3}},
    "restarts": {
        **BASE,
        "link": RELIABLE,
        "faults": [
            {"kind": "random_crashes", "count": 6, "stop_us": 300_000,
             "lasting": {"kind": "uniform", "low_us": 5_000, "high_us": 40_000}},
        ],
    },
}  # fmt: skip


def judge(make: type[Protocol], scenario: str, seed: int, promises: PromisesMade) -> RunReport:
    trace = MemoryTrace()
    described = from_dict({**SCENARIOS[scenario], "seed": seed})
    simulate(described, trace, make=make)
    nodes = [f"n{index}" for index in range(described.nodes)]
    return verify_table(trace.table("zoo"), promises, nodes)


@pytest.mark.parametrize("mutant", ZOO, ids=lambda mutant: mutant.name)
def test_every_mutant_is_caught(mutant: Mutant):
    found: Counter[str] = Counter()
    for seed in SEEDS:
        found += Counter(asdict(judge(mutant.make, mutant.scenario, seed, EVERYTHING).counts))
        if mutant.gives_away & found.keys():
            return
    pytest.fail(f"{mutant.name} was not caught for what it does: {dict(found)}")


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(("make", "promises"), [(Vector, EVERYTHING), (Fifo, ONLY_FIFO)])
def test_no_right_protocol_is_flagged(make, promises, scenario):
    for seed in SEEDS:
        report = judge(make, scenario, seed, promises)
        assert report.ok, report.findings


def test_fifo_is_caught_when_causal_order_is_demanded():
    reports = [judge(Fifo, "replies", seed, EVERYTHING) for seed in SEEDS]
    assert sum(report.counts.causal for report in reports) > 0
    assert all(report.counts.fifo == 0 for report in reports)


def test_the_zoo_is_large_enough():
    assert len(ZOO) >= 8
    assert len({mutant.name for mutant in ZOO}) == len(ZOO)
