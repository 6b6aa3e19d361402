"""How measured times are judged: ratios, slopes, lines and crossings of curves that are known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from whence.report import plots
from whence.studies.domains import page
from whence.studies.domains.fit import BUS, FLAT, Kind, crossing, fit, gains, medians, ratios, slope
from whence.studies.domains.grid import STUDY
from whence.studies.results import Results, Row
from whence.studies.verdicts import Judged, Verdict

SIZES = (10, 25, 50, 100, 150)


def curve(kind: Kind, time_us: Callable[[int], float], sizes: tuple[int, ...] = SIZES) -> list[Row]:
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
    return [one for one in STUDY.judge(results) if one.claim.text.startswith("live")]


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
    assert ratios(results, Kind("live", "ping-pong", "daisy", "full"), "cpu_us") == {}


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


def test_the_papers_shapes_are_reproduced() -> None:
    found = live_claims(system(square, line))
    assert len(found) == 8
    assert [one.claim.text for one in found if one.verdict is not Verdict.AGREES] == []


@pytest.mark.parametrize(
    ("flat", "bus", "wrong"),
    [
        (line, line, ["ping-pong, flat", "broadcast, flat", "bus is faster"]),
        (square, square, ["ping-pong, bus", "bus is faster"]),
        (square, lambda nodes: 10 * square(nodes), ["ping-pong, bus", "bus is faster"]),
    ],
)
def test_other_shapes_are_not(
    flat: Callable[[int], float], bus: Callable[[int], float], wrong: list[str]
) -> None:
    failed = [one.claim.text for one in live_claims(system(flat, bus)) if one.failed]
    assert len(failed) == len(wrong)
    for part, name in zip(wrong, failed, strict=True):
        assert part in name


def test_a_slope_through_two_sizes_is_shown_and_not_demanded() -> None:
    results = Results((*curve(FLAT, line, (10, 50, 100)), *curve(BUS, line, (10, 50, 100))))
    slopes = [one for one in live_claims(results) if "slope" in one.claim.text]
    assert [one.demanded for one in slopes] == [False] * 4
    assert [one.verdict for one in slopes[:2]] == [Verdict.DIFFERS] * 2


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
