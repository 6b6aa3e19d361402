"""How measured times are judged: ratios, slopes, lines and crossings of curves that are known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from whence.report import plots
from whence.studies.domains import page
from whence.studies.domains.fit import (
    BUS,
    FLAT,
    WAY_BUS,
    WAY_FLAT,
    FittedKind,
    crossing,
    exponent,
    fit,
    gains,
    medians,
    ratios,
    slope,
)
from whence.studies.domains.grid import STUDY
from whence.studies.results import Results, Row
from whence.studies.verdicts import Judged, Verdict

SIZES = (10, 25, 50, 100, 150)


def curve(kind: FittedKind, time_us: Callable[[int], float], sizes: tuple[int, ...] = SIZES) -> list[Row]:
    """Three rounds on a machine that is three times as slow in the second one."""
    return [
        Row(
            f"{kind}-{nodes}-{round_}",
            {**kind._asdict(), "nodes": nodes, "seed": round_},
            {},
            {"cpu_us": slower * time_us(nodes), "wall_us": slower * time_us(nodes), "live_hops": 3.0},
            {},
        )
        for round_, slower in ((1, 1.0), (2, 3.0), (3, 1.0))
        for nodes in sizes
    ]


def system(flat: Callable[[int], float], bus: Callable[[int], float]) -> Results:
    rows = [
        *curve(FLAT, flat),
        *curve(FLAT._replace(workload="broadcast"), flat),
        *curve(BUS, bus),
        *curve(BUS._replace(workload="broadcast"), bus),
    ]
    return Results(tuple(rows))


def live_claims(results: Results) -> list[Judged]:
    return [one for one in STUDY.judge(results) if one.claim.text.startswith("real servers")]


def square(nodes: int) -> float:
    return 100 + nodes**2 / 2


def line(nodes: int) -> float:
    return 400 + 2 * nodes


def test_ratios_are_taken_within_a_round() -> None:
    results = system(square, line)
    assert medians(results, FLAT, "cpu_us")[10] == 150
    assert {nodes: found.mean for nodes, found in ratios(results, FLAT, "cpu_us").items()} == {
        nodes: pytest.approx(square(nodes) / 150) for nodes in SIZES
    }
    assert ratios(results, FittedKind("live", "ping-pong", "daisy", "full"), "cpu_us") == {}


def test_slopes_and_lines_of_known_curves() -> None:
    assert slope({nodes: nodes**1.5 for nodes in SIZES}) == pytest.approx(1.5)
    assert slope({10: 1.0, 50: 2.0}) is None
    found = fit({nodes: line(nodes) for nodes in SIZES}, 1)
    assert found is not None
    assert found == pytest.approx((400, 2, 1, 1.0))
    assert found.at(1000) == pytest.approx(2400)
    squared = fit({nodes: square(nodes) for nodes in SIZES}, 1)
    assert squared is not None
    assert squared.share < 0.97
    assert fit({10: 1.0, 20: 2.0}, 1) is None


def test_the_crossing_is_between_the_sizes_around_it() -> None:
    results = system(square, line)
    where = crossing(gains(results, FLAT, BUS, "cpu_us"))
    assert where is not None
    assert 25 < where < 50
    assert crossing(gains(results, BUS, FLAT, "cpu_us")) is None  # faster at first, and slower for good
    assert crossing({10: 2.0, 20: 3.0}) is None  # it always was


def way(flat: Callable[[int], float], bus: Callable[[int], float]) -> Results:
    rows = [*curve(WAY_FLAT, flat, WAY_SIZES), *curve(WAY_BUS, bus, WAY_SIZES)]
    return Results((*system(flat, bus).rows, *rows))


WAY_SIZES = (10, 100, 400, 900)


def test_the_papers_shapes_hold_and_agree() -> None:
    results = way(square, line)
    found = live_claims(results)
    assert [one.claim.id for one in found if one.failed] == []
    assert len([one for one in found if one.demanded]) == 5
    paper = {one.claim.id: one for one in STUDY.judge(results) if one.claim.is_printed}
    for name in ("004-figure-8", "004-figure-9", "004-figure-11", "004-abstract"):
        assert paper[name].verdict is Verdict.AGREES, name
    assert paper["004-figure-12"].reason == "3 of the 5 runs that it takes"


@pytest.mark.parametrize(
    ("flat", "bus", "wrong"),
    [
        (line, line, {"power-live-way-ping-pong-flat", "crossing-150", "complexity-flat"}),
        (square, square, {"power-live-way-ping-pong-bus", "crossing-150", "complexity-bus"}),
        # A constant is no line: what the old limit, a slope of at most 1.1, let pass.
        (square, lambda nodes: 400 + 5 * (nodes % 7), {"power-live-way-ping-pong-bus", "complexity-bus"}),
        (lambda nodes: 100 + nodes**4, line, {"power-live-way-ping-pong-flat", "crossing-150"}),
    ],
)
def test_other_shapes_are_not(
    flat: Callable[[int], float], bus: Callable[[int], float], wrong: set[str]
) -> None:
    failed = {one.claim.id.removeprefix("004-") for one in live_claims(way(flat, bus)) if one.failed}
    assert wrong <= failed


def test_the_exponent_is_that_of_the_part_that_grows() -> None:
    assert exponent({nodes: square(nodes) for nodes in SIZES}) == 2
    assert exponent({nodes: line(nodes) for nodes in SIZES}) == 1
    assert exponent({nodes: 7 + nodes**1.5 for nodes in SIZES}) == 1.5
    assert exponent({10: 1.0, 20: 2.0, 30: 3.0}) is None


def test_small_systems_prove_nothing() -> None:
    results = Results((*curve(FLAT, square, (4, 9)), *curve(BUS, line, (4, 9))))
    assert live_claims(results) == []
    assert page.live_finding(results) == ""


def test_every_figure_can_be_drawn_and_every_size_is_in_a_table() -> None:
    results = system(square, line)
    for figure in page.live_figures(results):
        assert plots.svg(figure).startswith("<svg")
    growth, times = page.live_tables(results)
    assert len(growth.rows) == 4
    assert len(times.rows) == 4 * len(SIZES)
    assert f"takes {square(150) / square(10):.1f} times as long" in page.live_finding(results)
