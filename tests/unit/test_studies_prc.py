"""The PRC study: its grid, what it counts, its fits, expectations that can fail. No Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.tiny_study import TinyStudies, drawn
from whence.kernels.prc import kernel
from whence.overlay.spray import Spray
from whence.sim.engine import Engine
from whence.sim.files import checked, run_id
from whence.sim.links_overlay import join_us
from whence.sim.model import Anyone, Overlay
from whence.studies import registry
from whence.studies.base import check_grid
from whence.studies.claims import Evidence, printed
from whence.studies.prc import measures as m
from whence.studies.prc.counting import CASES
from whence.studies.prc.grid import SCALES, STUDY, hour, opening, static
from whence.studies.prc.measures import HOUR, OPENING, run_point
from whence.studies.results import Results, Row
from whence.studies.verdicts import NO_MEASURE, Verdict
from whence.trace.measures import read_measures
from whence.verify.run import verify_trace

# The grid


@pytest.mark.parametrize("scale", SCALES)
def test_the_grid(scale: str) -> None:
    points = STUDY.grid(scale)
    check_grid(STUDY, points)
    assert len({run_id(point.scenario) for point in points}) == len(points)
    for point in points[::5]:
        assert checked(point.scenario) == point.scenario


def test_the_papers_scale_has_the_papers_sizes() -> None:
    points = [point for point in STUDY.grid("paper") if point.labels["part"] == HOUR]
    assert hour(10_000) in [point.scenario for point in points]
    assert points[-1].scenario == hour(10_000, 1, "authors")
    sizes = {point.labels["nodes"] for point in points}
    assert {f"003-view-{nodes}" for nodes in sizes} <= set(printed(STUDY.claims))
    assert sizes == {100, 1_000, 10_000}


def test_a_run_is_a_scenario_and_its_id_follows_every_parameter() -> None:
    scenario = hour(100, 3)
    assert checked(scenario) == scenario
    overlay = scenario.topology
    assert isinstance(overlay, Overlay)
    later = msgspec.structs.replace(overlay, shuffle_every_us=overlay.shuffle_every_us + 1)
    assert run_id(msgspec.structs.replace(scenario, topology=later)) != run_id(scenario)


def test_it_is_registered() -> None:
    assert registry.lookup("prc") is STUDY


# What a run counts


def measured(scenario: Any, folder: Path) -> dict[str, Any]:
    run_point(scenario, folder)
    found = read_measures(folder)
    assert found is not None
    return dict(found.measures)


def test_messages_carry_one_number_or_as_many_as_changed(tmp_path: Path) -> None:
    def numbers(protocol: str) -> float:
        counts = measured(static(protocol, 8, 4, 20, 100, 1, "measures"), tmp_path / protocol)
        assert counts["deliveries"] == 8 * counts["broadcasts"]
        return float(counts["numbers"] / counts["copies"])

    assert [numbers(each) for each in ("reliable", "preventive", "link_memory")] == [1, 1, 1]
    assert 2 < numbers("vector") < 8


def test_link_memory_tags_its_other_links_and_ends_empty(tmp_path: Path) -> None:
    counts = measured(static("link_memory", 10, 4, 20, 100, 1, "measures"), tmp_path / "run")
    own, others = counts["broadcasts"], counts["deliveries"] - counts["broadcasts"]
    assert counts["work"] == own * (1 + 4) + others * (1 + 3)
    assert counts["entries_left"] == 0


def test_who_remembers_origins_ends_with_all_of_them(tmp_path: Path) -> None:
    for protocol in ("reliable", "preventive"):
        counts = measured(static(protocol, 8, 4, 20, 100, 1, "measures"), tmp_path / protocol)
        assert counts["entries_left"] == 8 * 8


def test_a_new_link_costs_flooding_nothing_and_a_barrier_its_registry(tmp_path: Path) -> None:
    for protocol, packets in (("reliable", 0), ("vector", 0), ("barrier", 2)):
        counts = measured(static(protocol, 8, 4, 20, 100, 1, "measures"), tmp_path / protocol)
        assert counts["opened_packets"] == packets
    assert counts["opened_bytes"] > 2 * 8  # a name and a number of each source at least


def test_a_recorded_opening_is_the_kernels_run_and_verifies(tmp_path: Path) -> None:
    scenario = opening("prc", 12, 10, 1, "all")
    counts = measured(scenario, tmp_path / "run")
    series = kernel.run(scenario).series
    assert series is not None
    assert counts["expected_us"] == [window.expected_us for window in series.windows]
    assert sum(counts["control"]) == 8 * counts["opened"] == 8 * series.opened
    (report,) = verify_trace(tmp_path / "run")
    assert report.ok
    assert report.promises.complete  # everybody has joined before the first broadcast
    engine = Engine(scenario)
    engine.run()
    assert engine.series() == series


# Fits


def test_a_power_law_is_found() -> None:
    factor, exponent = m.power([(x, 3 * x**1.5) for x in (2.0, 4.0, 16.0)])
    assert (factor, exponent) == (pytest.approx(3), pytest.approx(1.5))
    with pytest.raises(ValueError, match="two points"):
        m.slope([(1.0, 1.0)])


# The whole, without Spark


@pytest.fixture(scope="module")
def results(tiny_studies: TinyStudies) -> Results:
    """The tiny scale, run here."""
    return tiny_studies.carried_out(STUDY)[0]


def test_all_that_is_demanded_holds(results: Results) -> None:
    judged = STUDY.judge(results)
    assert [one.claim.id for one in judged if one.failed] == []
    assert sum(one.demanded for one in judged) > 15


def test_every_claim_of_the_paper_is_there_and_has_a_verdict_or_a_reason(results: Results) -> None:
    judged = [one for one in STUDY.judge(results) if one.claim.evidence is Evidence.PAPER]
    assert len(judged) == 64
    for one in judged:
        if one.verdict is Verdict.NOT_JUDGED:
            assert one.reason
            assert one.reason != NO_MEASURE


def test_the_page_has_its_parts(results: Results) -> None:
    names = {table.name for table in STUDY.tables(results)}
    assert names == {"views", "figure-5b", "table-1", "links", "routes", "frontier", "costs"}
    names = {figure.name for figure in STUDY.figures(results)}
    assert {"figure-5a", "figure-5b", "law", "growth", "memory", "frontier"} <= names
    for figure in STUDY.figures(results):
        assert drawn(figure).startswith("<svg")
    assert STUDY.headline(results).rows[0][:2] == ("text", 24)
    assert len(STUDY.findings(results)) >= 8


def spoiled(results: Results, part: str, protocol: str, **changes: float) -> set[str]:
    """The names of what differs when measures of a part are replaced."""

    def change(row: Row) -> Row:
        if row.labels["part"] != part or row.labels["protocol"] != protocol:
            return row
        return replace(row, measures={**row.measures, **changes})

    changed = Results(tuple(map(change, results.rows)))
    return {one.claim.text for one in STUDY.judge(changed) if one.failed}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"law_ratio": 0.969}, "E over"),
        ({"early_per_link": 0.0104}, "before the delay rises"),
        ({"early_per_link": 0.0096}, "before the delay rises"),
        ({"space_end": 0.001}, "space from minute 52"),
        ({"left": 1.0}, "when the hour ends"),
        ({"control_end": 0.01}, "control traffic from minute 52"),
        ({"undelivered": 1.0}, "deliveries missing"),
        ({"hops_per_link": 7.99}, "control hops"),
    ],
)
def test_each_check_of_the_hour_can_fail(results: Results, change: dict[str, float], words: str) -> None:
    failed = spoiled(results, HOUR, "prc", **change)
    assert len(failed) == len(m.PROFILES)
    assert all(words in text for text in failed)


def test_what_the_cores_and_the_ways_of_control_must_give_can_fail(results: Results) -> None:
    assert len(spoiled(results, OPENING, "prc", hops_per_link=6.0)) == 1
    assert len(spoiled(results, OPENING, "prc", entries_left=1.0)) == 1
    assert len(spoiled(results, "routes", "prc", routes_made=0)) == 1


def test_table_1_is_judged_by_exponents(results: Results) -> None:
    def verdicts(changed: Results) -> dict[str, Verdict]:
        return {one.claim.id: one.verdict for one in STUDY.judge(changed) if "003-table-1" in one.claim.id}

    assert len(verdicts(results)) == 16
    flat = Results(
        tuple(
            replace(row, measures={**row.measures, "space": 5.0}) if row.labels["part"] == "growth" else row
            for row in results.rows
        )
    )
    lost = {name for name, verdict in verdicts(flat).items() if verdict is Verdict.DIFFERS}
    assert {f"003-table-1-{name}-space" for name in ("reliable", "vector", "preventive", "prc")} <= lost


def test_a_broken_promise_fails(results: Results) -> None:
    rows = tuple(replace(row, verdict={"ok": False}) if row.judged else row for row in results.rows)
    failed = {one.claim.text for one in STUDY.judge(Results(rows)) if one.failed}
    assert len(failed) == 3


def test_the_frontier_is_where_costs_are_even(results: Results) -> None:
    for protocol in ("vector", "barrier"):
        rate = m.even_rate(results, protocol, 32)
        factor, exponent = m.power(m.cost(results, "space", "prc", 32))
        assert factor * rate**exponent == pytest.approx(m.other_space(results, protocol, 32))
    # The law: entries = rate x delay x degree, so twice the memory is worth twice the rate.
    assert exponent == pytest.approx(1, abs=0.05)
    assert m.other_space(results, "vector", 64) > m.other_space(results, "vector", 32)


def test_hours_are_read_minute_by_minute() -> None:
    counted = {
        "start_us": [0, 15 * 60_000_000],
        "process_us": [120_000_000, 120_000_000],
        "degree_us": [1_200_000_000, 1_200_000_000],
        "expected_us": [0, 600_000_000],
        "buffered_us": [0, 120_000_000],
        "control": [60, 0],
        "overlay": [90, 0],
    }
    first, second = m.minutes(counted)
    assert (first.degree, first.control, first.delay_ms, first.space) == (10, 0.5, 1, 0)
    assert first.overlay == 0.75
    assert (second.space, second.delay_ms) == (6, pytest.approx(75.75))
    assert second.law == pytest.approx(10 * 0.07575 * 10)
    assert [m.HOUR_DELAYS["text"].at(at * 60_000_000) for at in (14, 15, 17, 40, 60)] == [
        1_000, 1_000, 300_000, 2_500_000, 2_500_000,
    ]  # fmt: skip
    assert [m.HOUR_DELAYS["authors"].at(at * 60_000_000) for at in (15, 16, 17, 40)] == [
        1_000, 101_000, 201_000, 2_501_000,
    ]  # fmt: skip
    assert m.minutes({**counted, "control": [0, 60]})[1].control == 0.5


def test_the_hour_of_the_study_is_the_papers() -> None:
    scenario = hour(1_000, 2)
    assert (scenario.nodes, scenario.seed, scenario.stop.duration_us) == (1_000, 2, 3_600_000_000)
    assert scenario.topology == Overlay(
        joins_us=60_000_000, shuffle_every_us=60_000_000, shuffle_stop_us=3_000_000_000
    )
    assert scenario.workloads == [
        Anyone(interval_us=100_000, start_us=120_000_000, stop_us=3_000_000_000, payload_bytes=0)
    ]


def test_the_hour_of_the_authors_differs_where_their_program_does() -> None:
    text, authors = hour(1_000), hour(1_000, profile="authors")
    assert authors.topology == Overlay(
        joins_us=10_000_000,
        join_batch=10,
        shuffle_every_us=60_000_000,
        shuffle_stop_us=3_000_000_000,
        sampling="authors",
    )
    assert [join_us(authors, node) for node in (0, 9, 10, 19, 20)] == [0, 0, 100_000, 100_000, 200_000]
    assert authors.workloads == text.workloads
    assert authors.stop == text.stop


def test_who_begins_a_shuffle_rounds_as_the_profile_says() -> None:
    for arcs, text, authors in ((2, 1, 1), (3, 2, 1), (4, 2, 2), (5, 3, 2), (7, 4, 3)):
        given = []
        for by_authors in (False, True):
            view: Spray[int] = Spray(0)
            view.take(range(1, arcs + 1))
            given.append(len(view.give(1, lambda name: True, 5, begins=True, by_authors=by_authors)))
        assert given == [text, authors]


def test_control_takes_the_ways_that_table_1_names() -> None:
    assert CASES["mediated"](3) == {"hops": 8, "safe": 1}
    assert CASES["back_link"](3) == {"hops": 6, "safe": 1}
    for bits in range(2, 7):
        assert CASES["routed"](1 << bits) == {"hops": 4 * bits, "safe": 1}
    for nodes in (2, 5, 16):
        assert CASES["flooded"](nodes) == {"hops": 4 * nodes * (nodes - 1), "safe": 1}


def test_rings_and_trees_hold_nothing_but_at_a_rings_origin() -> None:
    assert CASES["ring"](6) == {"entries_others": 0, "entries_origin": 2, "entries_left": 0}
    assert CASES["tree"](7) == {"entries_others": 0, "entries_origin": 0, "entries_left": 0}
    assert CASES["two_way"](7)["entries_others"] > 0


@pytest.mark.parametrize("part", ["hour", "degrees", "growth", "routes", "opening", "churn", "frontier"])
def test_a_page_without_runs_of_a_kind_is_made_all_the_same(results: Results, part: str) -> None:
    left = Results(tuple(row for row in results.rows if row.labels["part"] != part))
    assert STUDY.judge(left)
    assert STUDY.findings(left)
    assert STUDY.tables(left)
    assert all(drawn(figure) for figure in STUDY.figures(left))
