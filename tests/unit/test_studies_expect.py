"""Claims: verdicts on published and measured numbers, and how runs are asked for the measured ones."""

from __future__ import annotations

from math import inf, nan

import pytest

from support.made_up_study import judged
from whence.studies import registry
from whence.studies.claims import (
    EXACT,
    PROMISES_KEPT,
    Claim,
    Compared,
    Judged,
    Relation,
    Take,
    Tolerance,
    Verdict,
    judge,
    printed,
)
from whence.studies.results import Derived, Results, Row


def verdict(
    expected: float,
    measured: float | None,
    tolerance: Tolerance | None = None,
    relation: Relation = Relation.EQUAL,
) -> Verdict:
    return judged("x", expected, measured, tolerance=tolerance or EXACT, relation=relation).verdict


@pytest.mark.parametrize(
    ("expected", "measured", "tolerance", "holds"),
    [
        (25, 25.0, Tolerance(), True),
        (25, 25.0000001, Tolerance(), False),
        (0, 0, Tolerance(relative=0.5), True),
        (0, 1e-9, Tolerance(relative=0.5), False),  # a share of zero is zero
        (100, 109.9, Tolerance(relative=0.1), True),
        (100, 110.1, Tolerance(relative=0.1), False),
        (-100, -109.9, Tolerance(relative=0.1), True),
        (100, 95, Tolerance(absolute=5), True),
        (100, 94.9, Tolerance(absolute=5), False),
        (100, 92, Tolerance(absolute=5, relative=0.1), True),  # the larger allowance counts
        (1, nan, Tolerance(absolute=inf), False),
    ],
)
def test_equal(expected: float, measured: float | None, tolerance: Tolerance, holds: bool) -> None:
    assert verdict(expected, measured, tolerance) is (Verdict.REPRODUCED if holds else Verdict.DIFFERS)


@pytest.mark.parametrize(
    ("relation", "measured", "holds"),
    [
        (Relation.AT_LEAST, 9, False),
        (Relation.AT_LEAST, 9.5, True),
        (Relation.AT_LEAST, 1000, True),
        (Relation.AT_MOST, 11, False),
        (Relation.AT_MOST, 10.5, True),
        (Relation.AT_MOST, -1000, True),
    ],
)
def test_one_sided_with_a_tolerance_of_a_half(relation: Relation, measured: float, holds: bool) -> None:
    found = verdict(10, measured, Tolerance(absolute=0.5), relation)
    assert found is (Verdict.REPRODUCED if holds else Verdict.DIFFERS)


def test_difference_and_what_fails_a_study() -> None:
    off = judged("x", 10, 12.5)
    assert off.difference == 2.5
    assert off.failed
    assert not judged("x", 10, 12.5, demanded=False).failed
    assert not judged("x", 10, 10).failed
    assert judged("x", 10, None).difference is None


def test_what_no_run_can_say_is_not_judged_and_fails_where_it_is_demanded() -> None:
    unknown = judged("x", 1, None, tolerance=Tolerance(absolute=inf))
    assert (unknown.verdict, unknown.words, unknown.failed) == (Verdict.NOT_JUDGED, "not judged", True)
    shown = judged("x", 1, None, demanded=False)
    assert (shown.words, shown.failed) == ("not judged", False)


@pytest.mark.parametrize(
    ("tolerance", "text"),
    [
        (Tolerance(), "exact"),
        (Tolerance(absolute=0.5), "± 0.5"),
        (Tolerance(relative=0.05), "± 5 %"),
        (Tolerance(2, 0.1), "± 2 or ± 10 %"),
        (Tolerance(between=(11, 16)), "± 2.5"),
        (Tolerance(factor=2), "factor 2"),
        (Tolerance(deviation=1.4).of_runs(4), "± 2.1"),
    ],
)
def test_tolerance_in_words(tolerance: Tolerance, text: str) -> None:
    assert str(tolerance) == text


@pytest.mark.parametrize(
    ("tolerance", "within", "beyond"),
    [
        (Tolerance(factor=2), (50, 100, 200), (49.9, 200.1, 0)),
        (Tolerance(between=(40, 60)), (40, 60), (39.9, 60.1, 100)),  # whatever is printed
        (Tolerance(deviation=10).of_runs(9), (90, 110), (89.9, 110.1)),
    ],
)
def test_other_tolerances(tolerance: Tolerance, within: tuple[float, ...], beyond: tuple[float, ...]) -> None:
    expected = tolerance.centre(100)
    assert all(tolerance.holds(expected, value) for value in within)
    assert not any(tolerance.holds(expected, value) for value in beyond)


# Asking the runs


def row(nodes: int, mode: str, seed: int, **measures: float | None) -> Row:
    labels = {"nodes": nodes, "mode": mode, "seed": seed}
    return Row(f"{labels}", labels, {}, measures, {"ok": mode != "bad"} if seed == 1 else {})


ROWS = (
    row(8, "new", 1, time=10, left=0),
    row(8, "new", 2, time=20, left=3),
    row(16, "new", 1, time=30, left=-4),
    row(16, "new", 2, time=60, left=None),
    row(8, "old", 1, time=20),
    row(8, "old", 2, time=10),
    row(16, "old", 1, time=60),
)
RESULTS = Results(ROWS, derived=(Derived({"shape": "line"}, {"slope": 1.5}, 2),))


def asked(**fields: object) -> Judged:
    claim = Claim("x", "x", **{"published": 0, "source": "a test", "measure": "time", **fields})
    (found,) = judge([claim], RESULTS)
    return found


NEW = {"mode": "new"}


@pytest.mark.parametrize(
    ("fields", "measured"),
    [
        ({"where": {**NEW, "nodes": 8}}, 15),
        ({"where": NEW, "take": Take.MAX}, 60),
        ({"where": NEW, "take": Take.MIN}, 10),
        ({"where": NEW, "take": Take.SUM}, 120),
        ({"where": NEW, "take": Take.FARTHEST, "published": 40}, 10),
        ({"where": NEW, "take": Take.MAX, "over": "nodes"}, 45),
        ({"where": NEW, "take": Take.SMALLEST_STEP, "over": "nodes"}, 30),
        ({"where": NEW, "take": Take.SMALLEST_FALL, "over": "nodes"}, -30),
        ({"where": NEW, "take": Take.RANGE, "over": "nodes"}, 30),
        ({"where": {**NEW, "nodes": 8}, "take": Take.SMALLEST_STEP, "over": "nodes"}, None),
        ({"where": {"mode": ("new", "old"), "nodes": 8}, "take": Take.SUM}, 60),
        ({"where": NEW, "measure": "left", "take": Take.FARTHEST}, -4),
        ({"where": {**NEW, "nodes": 8}, "measure": "time + left", "take": Take.SUM}, 33),
        ({"where": NEW, "measure": "unknown"}, None),
        ({"where": {"mode": "no such"}}, None),
        ({"where": {"shape": "line"}, "measure": "slope"}, 1.5),
        ({"where": NEW, "measure": PROMISES_KEPT, "take": Take.SUM, "published": None}, 2),
        # Pairs share nodes and seed; the fourth run has no partner.
        ({"where": NEW, "against": {"mode": "old"}, "take": Take.FARTHEST}, -30),
        ({"where": NEW, "against": {"mode": "old"}}, -10),
        ({"where": NEW, "against": {"mode": "old"}, "compared": Compared.MORE}, 100 * (60 / 90 - 1)),
        ({"where": NEW, "against": {"mode": "old"}, "compared": Compared.LESS}, 100 * (1 - 60 / 90)),
        ({"where": NEW, "against": {"mode": "old"}, "compared": Compared.RATIO}, 30 / 30),
    ],
)
def test_how_runs_become_one_number(fields: dict[str, object], measured: float | None) -> None:
    assert asked(**fields).measured == (None if measured is None else pytest.approx(measured))


def test_a_mean_has_an_interval_and_the_number_of_its_runs() -> None:
    found = asked(where={**NEW, "nodes": 8})
    assert found.interval is not None
    assert (found.interval.mean, found.interval.count, found.runs) == (15, 2, 2)
    assert asked(where=NEW, take=Take.MAX).interval is None


def test_every_run_must_keep_its_promises() -> None:
    claim = Claim("x", "x", None, "a test", PROMISES_KEPT, take=Take.SUM)
    (found,) = judge([claim], Results((*ROWS, row(8, "bad", 1))))
    assert (found.expected, found.measured, found.failed) == (5, 4, True)


def test_a_claim_about_coordinates_that_were_not_run_is_left_out() -> None:
    claim = Claim("x", "x", 0, "a test", "time", where=NEW, at={"nodes": 32})
    assert judge([claim], RESULTS) == []
    there = Claim("x", "x", 0, "a test", "no such", where=NEW, at={"nodes": 16})
    assert [one.verdict for one in judge([there], RESULTS)] == [Verdict.NOT_JUDGED]
    alone = Claim("x", "x", 0, "a test", "time", where=NEW, at={"nodes": 16}, against={"mode": "no such"})
    assert judge([alone], RESULTS) == []


def test_few_runs_are_shown_and_not_demanded_and_small_totals_left_out() -> None:
    few = asked(where={**NEW, "nodes": 8}, runs_min=3)
    assert (few.demanded, few.words) == (False, "not reproduced")
    assert few.source == "a test; 2 of the 3 seeds that it takes"
    assert asked(where={"shape": "line"}, measure="slope", runs_min=3).source.endswith(
        "3 points that it takes"
    )
    small = Claim("x", "x", 0, "a test", "time", where=NEW, against={"mode": "old"}, total_min=91)
    assert judge([small], RESULTS) == []
    assert len(
        judge([Claim("x", "x", 0, "", "time", where=NEW, against={"mode": "old"}, total_min=90)], RESULTS)
    )


def test_numbers_without_a_tolerance_are_printed_and_not_judged() -> None:
    claims = [Claim("a", "a", 7.0, "", "time", tolerance=None), Claim("b", "b", 8.0, "", "time")]
    assert printed(claims) == {"a": 7.0, "b": 8.0}
    assert [one.claim.id for one in judge(claims, RESULTS)] == ["b"]


@pytest.mark.parametrize("name", registry.names())
def test_the_claims_of_a_study_have_names_of_their_own_and_sources(name: str) -> None:
    study = registry.lookup(name)
    assert len({claim.id for claim in study.claims}) == len(study.claims) > 0
    judged = [claim for claim in study.claims if claim.tolerance is not None]
    keys = [(claim.text, str(claim.at)) for claim in judged]
    assert len(set(keys)) == len(keys)
    assert all(claim.source for claim in judged)
