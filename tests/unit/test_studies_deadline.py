"""The deadline study: its grid, its bounds against brute force, expectations that can fail. No Spark."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.running import simulate
from support.tiny_study import carried_out, changed, failed
from whence.protocols import registry as protocols
from whence.sim.files import checked, run_id
from whence.studies import registry
from whence.studies.base import check_grid
from whence.studies.deadline import bounds
from whence.studies.deadline.bounds import NEVER_US, Sent
from whence.studies.deadline.grid import MAIN, READINGS, SCALES, SIZES, STUDY, scenario
from whence.studies.deadline.measures import run_point
from whence.studies.results import Results
from whence.studies.verdicts import Verdict
from whence.trace.measures import read_measures
from whence.trace.schema import Kind, Level

# The grid


@pytest.mark.parametrize("scale", SCALES)
def test_the_grid(scale: str) -> None:
    points = STUDY.grid(scale)
    check_grid(STUDY, points)
    assert len({run_id(point.scenario) for point in points}) == len(points)
    for point in points[::7]:
        assert checked(point.scenario) == point.scenario
    assert scale == "tiny" or len({point.labels["seed"] for point in points}) >= 3


def test_the_papers_scale_has_every_size_and_variants_share_a_workload() -> None:
    points = [point for point in STUDY.grid("paper") if point.labels["part"] == "main"]
    for reading in READINGS:
        for variant in MAIN:
            found = {p.labels["nodes"] for p in points if p.labels["reading"] == reading}
            assert found == set(SIZES), variant
    places: dict[tuple[Any, ...], set[str]] = {}
    for point in points:
        plain = msgspec.structs.replace(point.scenario, protocol="tdca", params={})
        labels = point.labels
        places.setdefault((labels["reading"], labels["nodes"], labels["seed"]), set()).add(run_id(plain))
    assert all(len(alike) == 1 for alike in places.values())


def test_the_default_is_the_default() -> None:
    made = scenario("fitted", 16, "default", 1, 1_000)
    assert (made.protocol, made.params) == ("odca", {})
    assert protocols.lookup("odca").parameters["copies"] == 2


def test_it_is_registered() -> None:
    assert registry.lookup("deadline") is STUDY


# The bounds


def best_by_trying(sent: list[Sent], arrived: list[list[int]], node: int) -> int:
    """The largest set that can be delivered in some order that is causal and in time, by trying all."""
    mine = [
        at
        for at, message in enumerate(sent)
        if message.origin != node and arrived[at][node] <= message.deadline_us
    ]

    def feasible(chosen: tuple[int, ...]) -> bool:
        times_us: dict[int, int] = {}
        # Broadcast order is a linear extension: deliver each as early as it can be.
        for at in sorted(chosen, key=lambda at: (sent[at].time_us, sent[at].origin)):
            before = [
                times_us[other]
                for other in times_us
                if sent[other].number <= sent[at].after[sent[other].origin]
            ]
            times_us[at] = max([arrived[at][node], *before])
            if times_us[at] > sent[at].deadline_us:
                return False
        return True

    for size in range(len(mine), 0, -1):
        if any(feasible(chosen) for chosen in combinations(mine, size)):
            return size
    return 0


def random_run(draw: random.Random) -> tuple[list[Sent], list[list[int]]]:
    """Three senders whose messages follow random earlier ones (closed under the past), and one receiver."""
    sent: list[Sent] = []
    counts = [0, 0, 0, 0]
    pasts = [[0, 0, 0, 0] for _ in range(3)]
    for time_us in range(0, 90, 10):
        origin = draw.randrange(3)
        for other in sent:
            if draw.random() < 0.3:
                past = pasts[origin]
                past[other.origin] = max(past[other.origin], other.number)
                pasts[origin] = [max(a, b) for a, b in zip(past, other.after, strict=True)]
        counts[origin] += 1
        after = list(pasts[origin])
        after[origin] = counts[origin] - 1
        sent.append(Sent(time_us, origin, counts[origin], time_us + draw.randrange(10, 120), tuple(after)))
        pasts[origin][origin] = counts[origin]
    arrived = [
        [NEVER_US] * 3 + [each.time_us + draw.randrange(5, 90) if draw.random() < 0.85 else NEVER_US]
        for each in sent
    ]
    return sent, arrived


def test_the_optimum_is_the_optimum() -> None:
    gaps = 0
    for seed in range(150):
        sent, arrived = random_run(random.Random(f"optimum/{seed}"))
        best = best_by_trying(sent, arrived, 3)
        assert bounds.optimum(sent, arrived, 4) == best, seed
        gaps += best < bounds.direct(sent, arrived)
    assert gaps > 20  # in many of these runs order costs something


class Watch:
    """A recorder that keeps broadcasts and receptions."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.received: dict[tuple[str, str | None, int], int] = {}

    def event(self, node, time_us, kind, origin=None, number=0, *rest):
        if kind == Kind.RECEIVE:
            self.received[node, origin, number] = time_us
        if kind == Kind.BROADCAST:
            self.sent.append(Sent(time_us, int(node[1:]), number, time_us + int(rest[-1])))


@pytest.mark.parametrize("reading", READINGS)
def test_arrivals_are_those_of_the_simulated_run(reading: str) -> None:
    made = scenario(reading, 5, "TDCA", 3, 400_000)
    watch = Watch()
    simulate(made, watch, level=Level.ALL)
    arrived = bounds.arrivals(made, watch.sent)
    found = {
        (f"n{node}", f"n{message.origin}", message.number): time_us
        for message, times_us in zip(watch.sent, arrived, strict=True)
        for node, time_us in enumerate(times_us)
        if time_us != NEVER_US
    }
    assert found == watch.received
    pairs, relayed = bounds.relay(made, watch.sent, arrived)
    assert pairs == 4 * len(watch.sent)
    assert pairs >= relayed >= bounds.direct(watch.sent, arrived)


# Expectations


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The smallest scale, without Spark."""
    return carried_out(STUDY, STUDY.grid("tiny"), tmp_path_factory.mktemp("runs"))


def renamed(results: Results, sizes: dict[int, int]) -> Results:
    rows = [
        replace(row, labels={**row.labels, "nodes": sizes[int(row.labels["nodes"])]}) for row in results.rows
    ]
    return Results(tuple(rows))


def test_the_smallest_scale_holds(results: Results) -> None:
    assert failed(STUDY, results) == set()
    assert STUDY.tables(results)
    assert STUDY.figures(results)
    assert len(STUDY.findings(results)) >= 5
    assert STUDY.headline(results).rows


@pytest.mark.parametrize(
    ("measure", "value", "labels", "name"),
    [
        (
            "ratio",
            0.1,
            {"variant": "default", "reading": "face"},
            "our default delivers more than ODCA",
        ),
        ("ratio", 0.1, {"variant": "default", "nodes": 9}, "our default delivers more than ODCA"),
        ("replies", 1, {"variant": "ODCA as printed"}, "replies of SOLICIT-RECV as printed"),
        ("solicitations", 0, {"variant": "ODCA as printed"}, "solicitations that it was sent"),
        ("causal", 0, {"part": "printed"}, "Figure 8, answering"),
        ("late", 1, {"part": "main", "seed": 1}, "what the verifier found"),
        ("late_deliveries", 1, {"part": "main", "seed": 2}, "late deliveries"),
        ("optimum_ratio", 0.1, {"part": "optimum"}, "the exact optimum"),
        ("direct_ratio", 0.1, {"part": "main"}, "TDCA beyond the direct bound"),
    ],
)
def test_expectations_can_fail(
    results: Results, measure: str, value: float, labels: dict[str, Any], name: str
) -> None:
    assert any(found.startswith(name) for found in failed(STUDY, changed(results, measure, value, **labels)))


def test_figure_9_is_demanded_of_its_own_sizes(results: Results) -> None:
    as_published = renamed(results, {4: 16, 9: 100})
    for size, ratio in ((16, 0.96), (100, 0.94)):
        as_published = changed(as_published, "ratio", ratio, variant="ODCA", nodes=size, reading="fitted")
    for size, rise in ((16, 12.2), (100, 37.7)):
        ratio = (0.96 if size == 16 else 0.94) / (1 + rise / 100)
        as_published = changed(as_published, "ratio", ratio, variant="TDCA", nodes=size, reading="fitted")
    for variant in ("TDCA", "ODCA"):
        as_published = changed(as_published, "ratio", 0.78, variant=variant, reading="face")
    as_published = changed(as_published, "direct_ratio", 1.0)
    assert not {name for name in failed(STUDY, as_published) if name.startswith("Figure 9")}
    for variant, size, ratio, reading, name in (
        ("TDCA", 16, 0.90, "fitted", "rise of ODCA over TDCA, 16 members"),
        ("TDCA", 100, 0.75, "fitted", "rise of ODCA over TDCA, 100 members"),
        ("TDCA", 16, 0.60, "fitted", "the rise grows"),
        ("TDCA", 100, 0.90, "fitted", "TDCA falls"),
        ("ODCA", 100, 0.85, "fitted", "ODCA is stable"),
        ("ODCA", 16, 0.80, "face", "face value"),
    ):
        other = changed(as_published, "ratio", ratio, variant=variant, nodes=size, reading=reading)
        assert any(name in found for found in failed(STUDY, other)), name
    prototype = [one for one in STUDY.judge(as_published) if "prototype" in one.claim.text]
    assert prototype
    assert not any(one.demanded for one in prototype)
    assert {one.verdict for one in prototype} <= set(Verdict)


def test_a_run_without_a_trace_keeps_its_broadcasts(tmp_path: Path) -> None:
    outcome = run_point(scenario("fitted", 4, "default", 2, 300_000), tmp_path / "trace")
    counted = read_measures(tmp_path / "trace")
    assert counted is not None
    assert outcome.manifest is not None
    assert outcome.manifest.events == counted.measures["messages"]
