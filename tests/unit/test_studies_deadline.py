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
from support.tiny_study import TinyStudies, changed, drawn, failed
from whence.protocols import registry as protocols
from whence.sim.files import checked, run_id
from whence.sim.model import Poisson
from whence.studies import registry
from whence.studies.base import check_grid
from whence.studies.claims import Evidence
from whence.studies.deadline import bounds
from whence.studies.deadline.bounds import NEVER_US, Sent
from whence.studies.deadline.grid import MAIN, READINGS, SCALES, SIZES, STUDY, scenario
from whence.studies.deadline.measures import MapCell, contour, counted, derived, run_point
from whence.studies.results import Results, Row
from whence.studies.verdicts import NO_MEASURE, Judged, Verdict
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
def results(tiny_studies: TinyStudies) -> Results:
    """The smallest scale, without Spark."""
    return tiny_studies.carried_out(STUDY)[0]


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
        ("replies", 1, {"variant": "ODCA as printed"}, "replies of SOLICIT-RECV as printed"),
        ("late", 1, {"part": "main", "seed": 1}, "what the verifier found"),
        ("late_deliveries", 1, {"part": "main", "seed": 2}, "late deliveries"),
        ("optimum_ratio", 0.1, {"part": "optimum"}, "what TDCA delivered of the exact optimum"),
        ("direct_ratio", 0.1, {"part": "main"}, "what TDCA delivered of the direct bound"),
    ],
)
def test_expectations_can_fail(
    results: Results, measure: str, value: float, labels: dict[str, Any], name: str
) -> None:
    assert any(found.startswith(name) for found in failed(STUDY, changed(results, measure, value, **labels)))


def test_figure_9_is_judged_of_its_own_sizes(results: Results) -> None:
    """A reading that has the printed numbers is called fitted, and the one at face value by what it gives."""

    def verdicts(changed: Results) -> dict[str, Judged]:
        return {one.claim.id: one for one in STUDY.judge(changed) if "002-figure-9" in one.claim.id}

    rows = results.select(part="main", seed=1)
    five = [replace(row, labels={**row.labels, "seed": seed}) for seed in range(1, 6) for row in rows]
    as_published = renamed(Results(tuple(five)), {4: 16, 9: 100})
    for size, rise in ((16, 12.2), (100, 37.7)):
        ratio = (0.96 if size == 16 else 0.94) / (1 + rise / 100)
        odca = 0.96 if size == 16 else 0.94
        as_published = changed(as_published, "ratio", odca, variant="ODCA", nodes=size, reading="fitted")
        as_published = changed(as_published, "ratio", ratio, variant="TDCA", nodes=size, reading="fitted")
    for variant, ratio in (("TDCA", 0.780), ("ODCA", 0.783)):
        as_published = changed(as_published, "ratio", ratio, variant=variant, reading="face")
    found = verdicts(as_published)
    for name in ("rise-low", "rise-high", "range-ratio"):
        one = found[f"002-figure-9-{name}"]
        assert one.verdict is Verdict.DIFFERS
        assert one.fits_elsewhere == "fitted"
    assert found["002-figure-9-odca-stable"].verdict is Verdict.FITTED
    other = verdicts(changed(as_published, "ratio", 0.90, variant="TDCA", nodes=16, reading="fitted"))
    assert other["002-figure-9-rise-low"].fits_elsewhere == ""


def test_every_claim_of_the_paper_is_there_and_has_a_verdict_or_a_reason(results: Results) -> None:
    judged = [one for one in STUDY.judge(results) if one.claim.evidence is Evidence.PAPER]
    assert len(judged) == 38
    for one in judged:
        if one.verdict is Verdict.NOT_JUDGED:
            assert one.reason
            assert one.reason != NO_MEASURE


def test_the_parameters_are_those_that_are_printed() -> None:
    """Section 5: groups of 16 to 100, messages of 1 to 100 KB; pairs of message and receiver count."""
    made = scenario("face", 16, "TDCA", 1, 1_000_000)
    (load,) = made.workloads
    assert isinstance(load, Poisson)
    assert (load.payload_bytes, load.payload_max_bytes) == (1_000, 100_000)
    assert (SCALES["paper"].sizes[0], SCALES["paper"].sizes[-1]) == (16, 100)
    counts = counted(made, None, Level.MEASURES).measures
    assert counts["pairs"] % 15 == 0
    assert 0 < counts["delivered"] < counts["pairs"]


def test_the_map_has_a_contour() -> None:
    cell = MapCell("per hop", "LAN", 0)

    def row(spread_ms: int, variant: str, ratio: float) -> Row:
        at = {
            "part": "map",
            **cell._asdict(),
            "spread_ms": spread_ms,
            "nodes": 16,
            "variant": variant,
            "seed": 1,
        }
        return Row("r", at, {}, {"ratio": ratio}, {})

    rows = [row(30, "TDCA", 0.5), row(30, "ODCA", 0.55), row(60, "TDCA", 0.5), row(60, "ODCA", 0.60)]
    results = Results(tuple(rows))
    assert contour(results, cell, 16, 15) == pytest.approx(45)
    assert contour(results, cell, 16, 25) is None
    lines = [line for line in derived(results) if line.labels["part"] == "map rise"]
    assert [line.measures["rise_percent"] for line in lines] == pytest.approx([10, 20])


@pytest.mark.parametrize("part", ["main", "map", "large", "trouble", "optimum", "printed"])
def test_a_page_without_runs_of_a_kind_is_made_all_the_same(results: Results, part: str) -> None:
    left = Results(tuple(row for row in results.rows if row.labels["part"] != part))
    assert STUDY.judge(left)
    assert STUDY.findings(left)
    assert STUDY.tables(left)
    assert all(drawn(figure) for figure in STUDY.figures(left))


def test_a_run_without_a_trace_keeps_its_broadcasts(tmp_path: Path) -> None:
    outcome = run_point(scenario("fitted", 4, "default", 2, 300_000), tmp_path / "trace")
    counted = read_measures(tmp_path / "trace")
    assert counted is not None
    assert outcome.manifest is not None
    assert outcome.manifest.events == counted.measures["messages"]
