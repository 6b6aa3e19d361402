"""Claims: verdicts on published and measured numbers, and how runs are asked for the measured ones."""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest

from support.made_up_study import judged
from whence.errors import DataError
from whence.studies import registry
from whence.studies.claims import (
    EXACT,
    PROMISES_KEPT,
    Claim,
    Compared,
    Evidence,
    Ours,
    Reading,
    Relation,
    Take,
    Tolerance,
    load,
)
from whence.studies.results import Derived, Results, Row
from whence.studies.verdicts import Judged, Verdict, judge, recordable, tally


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
    assert verdict(expected, measured, tolerance) is (Verdict.AGREES if holds else Verdict.DIFFERS)


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
    assert found is (Verdict.AGREES if holds else Verdict.DIFFERS)


def test_difference_and_what_fails_a_study() -> None:
    off = judged("x", 10, 12.5)
    assert off.difference == 2.5
    assert off.failed
    assert not judged("x", 10, 12.5, demanded=False).failed
    assert not judged("x", 10, 10).failed
    assert judged("x", 10, None).difference is None


def test_what_no_run_can_say_is_not_judged_and_fails_where_it_is_demanded() -> None:
    unknown = judged("x", 1, None, tolerance=Tolerance(absolute=inf))
    assert (unknown.verdict, unknown.failed) == (Verdict.NOT_JUDGED, True)
    assert not judged("x", 1, None, demanded=False).failed


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
    fields = {"published": 0, "source": "a test", "measure": "time", "evidence": Evidence.INVARIANT, **fields}
    claim = Claim("x", "x", **fields)
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


def sized(nodes: int, *times: float) -> tuple[Row, ...]:
    return tuple(row(nodes, "new", seed, time=time) for seed, time in enumerate(times, 1))


@pytest.mark.parametrize(
    ("rows", "take", "relation", "measured", "half", "verdict"),
    [
        # Halves of a mean of 10 and 20: 12.7062 x 5 = 63.531; of a step between two such: x sqrt(2).
        (sized(8, 10, 20) + sized(16, 30, 40), Take.SMALLEST_STEP, ">", 20, 89.846, "not judged"),
        (sized(8, 10, 20) + sized(16, 130, 140), Take.SMALLEST_STEP, ">", 120, 89.846, "agrees"),
        (sized(8, 130, 140) + sized(16, 10, 20), Take.SMALLEST_FALL, ">", 120, 89.846, "agrees"),
        (sized(8, 130, 140) + sized(16, 10, 20), Take.SMALLEST_STEP, ">", -120, 89.846, "differs"),
        # The smaller step is the surer one: the other is the one that counts.
        (sized(8, 0, 0) + sized(16, 9, 9) + sized(32, 10, 28), Take.SMALLEST_STEP, ">", 10, 114.36,
         "not judged"),
        (sized(8, 10, 20) + sized(16, 30, 30), Take.MIN, ">", 15, 63.531, "not judged"),
        (sized(8, -10, -20) + sized(16, -30, -30), Take.MAX, "<", -15, 63.531, "not judged"),
        (sized(8, 10) + sized(16, 30, 40), Take.SMALLEST_STEP, ">", 25, 0, "agrees"),  # one run: none
    ],
)  # fmt: skip
def test_what_is_least_of_several_places_has_its_interval(
    rows: tuple[Row, ...], take: Take, relation: str, measured: float, half: float, verdict: str
) -> None:
    claim = Claim(
        "x", "x", None, "a test", "time", limit=0.0, take=take, over="nodes", relation=Relation(relation)
    )
    (found,) = judge([claim], Results(rows))
    assert (found.measured, found.half) == (pytest.approx(measured), pytest.approx(half, abs=1e-2))
    assert found.verdict == verdict
    assert ("without an interval" in found.reason) == (half == 0)


def test_a_derived_line_brings_its_interval_along() -> None:
    line = Derived({"shape": "line"}, {"slope": 1.5, "other": 1.5}, 7, {"slope": 1.6, "other": None})
    claim = Claim("x", "x", None, "a test", "slope", limit=0.0, relation=Relation.MORE)
    (found,) = judge([claim], Results((), derived=(line,)))
    assert (found.verdict, found.half, found.runs) == ("not judged", 1.6, 7)
    (found,) = judge([replace(claim, measure="other")], Results((), derived=(line,)))
    assert (found.verdict, found.half, found.reason) == (
        "agrees",
        0,
        "without an interval: one run at a place",
    )


def test_every_run_must_keep_its_promises() -> None:
    claim = Claim("x", "x", None, "a test", PROMISES_KEPT, evidence=Evidence.INVARIANT, take=Take.SUM)
    (found,) = judge([claim], Results((*ROWS, row(8, "bad", 1))))
    assert (found.expected, found.measured, found.failed) == (5, 4, True)


def demand(**fields: object) -> Claim:
    return Claim(
        "x", "x", 0, "a test", evidence=Evidence.INVARIANT, **{"measure": "time", "where": NEW, **fields}
    )


def test_a_demand_about_coordinates_that_were_not_run_is_left_out() -> None:
    assert judge([demand(at={"nodes": 32})], RESULTS) == []
    there = demand(measure="no such", at={"nodes": 16})
    assert [one.verdict for one in judge([there], RESULTS)] == [Verdict.NOT_JUDGED]
    assert judge([demand(at={"nodes": 16}, against={"mode": "no such"})], RESULTS) == []


def test_few_runs_are_shown_and_not_demanded_and_small_totals_left_out() -> None:
    few = asked(where={**NEW, "nodes": 8}, runs_min=3)
    assert (few.demanded, few.verdict) == (False, Verdict.DIFFERS)
    assert few.note == "2 of the 3 seeds that it takes"
    assert asked(where={"shape": "line"}, measure="slope", runs_min=3).note.endswith("3 points that it takes")
    assert judge([demand(against={"mode": "old"}, total_min=91)], RESULTS) == []
    assert len(judge([demand(against={"mode": "old"}, total_min=90)], RESULTS)) == 1


# Of what a paper prints


def of_paper(published: float | None, **fields: object) -> Judged:
    """What comes of a number of a paper: at 8 nodes the new ones take 10 and 20, at 16 30 and 60."""
    fields = {"measure": "time", "where": {**NEW, "nodes": 8}, **fields}
    (found,) = judge([Claim("x", "x", published, "a test", **fields)], RESULTS)
    return found


MANY = Results(tuple(row(8, "new", seed, time=time) for seed, time in enumerate((8, 9, 10, 11, 12), 1)))
# Mean 10, deviation 1.5811, t(0.975, 4) = 2.7764


@pytest.mark.parametrize(
    ("averaged", "published", "verdict"),
    [
        (0, 11.96, "agrees"),  # the interval of our mean alone: 2.7764 x 1.5811 / sqrt(5) = 1.9631
        (0, 11.97, "differs"),
        (5, 12.77, "agrees"),  # two means of five: x sqrt(2) = 2.7763
        (5, 12.78, "differs"),
        (1, 14.80, "agrees"),  # one run of theirs: x sqrt(6) = 4.8087
        (1, 14.81, "differs"),
    ],
)
def test_a_printed_number_agrees_within_the_interval(averaged: int, published: float, verdict: str) -> None:
    claim = Claim("x", "x", published, "a test", "time", averaged=averaged)
    (found,) = judge([claim], MANY)
    assert found.verdict == verdict
    rounded = replace(claim, rounding=0.02)
    assert judge([rounded], MANY)[0].verdict == "agrees"


def test_near_is_ten_percent_or_a_factor_fixed_beforehand() -> None:
    exact = {"take": Take.MAX}  # 20, without an interval
    assert of_paper(20, **exact).verdict is Verdict.AGREES
    assert of_paper(22.1, **exact).verdict is Verdict.NEAR
    assert of_paper(22.3, **exact).verdict is Verdict.DIFFERS
    assert of_paper(39, factor=2.0, **exact).verdict is Verdict.NEAR
    assert of_paper(41, factor=2.0, **exact).verdict is Verdict.DIFFERS
    assert of_paper(0, **exact).verdict is Verdict.DIFFERS


def test_bounds_and_shapes() -> None:
    exact = {"take": Take.MAX}
    assert of_paper(5, relation=Relation.AT_LEAST, **exact).verdict is Verdict.AGREES
    assert of_paper(30, relation=Relation.AT_LEAST, **exact).verdict is Verdict.DIFFERS
    assert of_paper(30, relation=Relation.AT_MOST, **exact).verdict is Verdict.AGREES
    assert of_paper(None, relation=Relation.MORE, limit=19.0, **exact).verdict is Verdict.AGREES
    assert of_paper(None, relation=Relation.LESS, limit=19.0, **exact).verdict is Verdict.DIFFERS
    inside = of_paper(None, relation=Relation.MORE, limit=14.0)  # 15, and an interval of 63.5 either way
    assert (inside.verdict, inside.reason) == (Verdict.NOT_JUDGED, "the difference lies inside its interval")


def test_what_is_not_judged_says_why() -> None:
    assert of_paper(15, measure="").reason == "no measure yet"
    assert of_paper(15, unjudged="hardware").reason == "hardware"
    assert of_paper(15, at={"nodes": 32}).reason == "not run at this scale"
    assert of_paper(15, measure="no such").reason == "no run has it"
    assert of_paper(15, averaged=30).reason == "2 of the 5 runs that it takes"
    for one in (of_paper(15, measure=""), of_paper(15, averaged=30)):
        assert (one.verdict, one.failed, one.demanded) == (Verdict.NOT_JUDGED, False, False)


def test_a_false_statement_is_refuted_and_a_true_one_is_not() -> None:
    exact = {"take": Take.MAX, "refuted": "a witness"}
    assert (of_paper(2, **exact).verdict, of_paper(2, **exact).reason) == (Verdict.REFUTED, "a witness")
    assert of_paper(20, **exact).verdict is Verdict.AGREES
    assert of_paper(None, measure="", tested="tests/x.py::test_y").verdict is Verdict.AGREES
    assert of_paper(None, measure="", tested="tests/x.py::test_y", refuted="w").verdict is Verdict.REFUTED


def test_a_fitted_reading_is_at_best_fitted_and_never_hides_that_the_text_differs() -> None:
    assert of_paper(20, take=Take.MAX, reading=Reading.FITTED).verdict is Verdict.FITTED
    assert of_paper(50, take=Take.MAX, reading=Reading.FITTED).verdict is Verdict.DIFFERS
    other = of_paper(60, take=Take.MAX, others={"larger": {"nodes": 16}, "old": {"mode": "old"}})
    assert (other.verdict, other.fits_elsewhere) == (Verdict.DIFFERS, "larger")
    assert [(name, one.verdict) for name, one in other.others] == [("larger", "fitted"), ("old", "differs")]


def test_a_wide_prediction_is_called_a_weak_test() -> None:
    (found,) = judge([Claim("x", "x", 12, "a test", "time", averaged=1)], MANY)
    assert (found.verdict, found.reason) == (Verdict.AGREES, "a weak test: ± 40 %")


def test_a_weak_test_is_counted_in_the_headline() -> None:
    claims = [Claim("x", "x", published, "a test", "time", averaged=1) for published in (12, 10.05, 99)]
    assert "2 agree (2 by weak tests), 0 near, 1 differ" in tally(judge(claims, MANY)).text()
    zero = judge([Claim("x", "x", 0, "a test", "left", averaged=1)], Results(tuple(
        row(8, "new", seed, left=seed % 2) for seed in range(1, 6)
    )))  # fmt: skip
    assert zero[0].is_weak  # a printed 0 has no share: the interval is held against the measured number


def test_words_that_may_mean_another_number_are_judged_as_printed_and_at_best_fitted_otherwise() -> None:
    found = of_paper(10, take=Take.MAX, meanings={"times more": 20.0, "half": 5.0})
    assert (found.verdict, found.expected, found.fits_elsewhere) == (Verdict.DIFFERS, 10, "times more")
    assert [(name, one.verdict, one.expected) for name, one in found.others] == [
        ("times more", "fitted", 20),
        ("half", "differs", 5),
    ]
    assert tally([found]).fitted == 1


def test_a_demand_that_no_run_can_speak_of_fails() -> None:
    (found,) = judge([demand(where={"mode": "gone"}, runs_min=2)], RESULTS)
    assert (found.demanded, found.failed, found.missing) == (True, True, "not run at this scale")


def test_two_measures_of_the_same_run_are_compared() -> None:
    found = of_paper(20, measure="time", than="left", compared=Compared.DIFFERENCE, take=Take.MAX)
    assert found.measured == 17


def test_a_parameter_is_asked_for_by_its_name() -> None:
    runs = Results(tuple(replace(each, parameters={"load": [{"bytes": 50}]}) for each in ROWS))
    claim = Claim("x", "x", 50, "a test", "@load.0.bytes", take=Take.FARTHEST)
    assert judge([claim], runs)[0].verdict is Verdict.AGREES
    assert judge([replace(claim, measure="@load.1.bytes")], runs)[0].reason == "no run has it"


# Regressions


def test_a_regression_is_demanded_where_it_would_notice_half_and_twice() -> None:
    claim = Claim("x", "x", 99, "a test", "time", averaged=1, ours=Ours(10.5, 1.5, 30))
    paper, same = judge([claim], MANY)
    assert (paper.verdict, paper.failed) == (Verdict.DIFFERS, False)
    assert (same.claim.evidence, same.expected, same.demanded, same.failed) == (
        Evidence.REPEATED,
        10.5,
        True,
        False,
    )
    for seeds, evidence in (((6, 30), Evidence.REGRESSION), ((5, 30), Evidence.REPEATED)):
        of_seeds = replace(claim, ours=Ours(10.5, 1.5, 25, seeds))
        assert judge([of_seeds], MANY)[1].claim.evidence is evidence
    more = Results(tuple(row(8, "new", seed, time=10 if seed < 6 else 99) for seed in range(1, 31)))
    fresh = judge([replace(claim, ours=Ours(10.5, 1.5, 25, (6, 30)))], more)[1]  # by the others alone
    assert (fresh.claim.evidence, fresh.measured, fresh.failed) == (Evidence.REGRESSION, 10, False)
    for factor in (0.5, 2):
        other = Results(tuple(row(8, "new", seed, time=10 * factor + seed / 10) for seed in range(1, 6)))
        assert judge([claim], other)[1].failed
    _, blunt = judge([replace(claim, ours=Ours(10.5, 6.0, 30))], MANY)
    assert (blunt.demanded, blunt.note) == (False, "5 runs would not notice half of it")
    assert len(judge([replace(claim, timed=True)], MANY)) == 1


def test_what_is_kept_of_a_run_for_regressions() -> None:
    claim = Claim("x", "x", 99, "a test", "time", averaged=1)
    kept = recordable(judge([claim], MANY))["x"]
    assert (kept.mean, kept.runs) == (10, 5)
    assert kept.deviation == pytest.approx(1.5811, abs=1e-4)
    assert recordable(judge([replace(claim, timed=True)], MANY)) == {}
    assert recordable(judge([replace(claim, where={"nodes": 16})], RESULTS)) == {}  # three runs say nothing


def test_a_number_of_ours_alone_is_a_regression_once_it_is_recorded() -> None:
    claim = Claim("x", "x", None, "our earlier runs", "time", evidence=Evidence.REGRESSION)
    (found,) = judge([claim], MANY)
    assert (found.demanded, found.verdict, found.reason) == (
        False,
        Verdict.NOT_JUDGED,
        "no earlier runs are recorded",
    )
    assert recordable([found])["x"].mean == 10
    (found,) = judge([replace(claim, ours=Ours(10.5, 1.5, 25, (1001, 1025)))], MANY)
    assert (found.claim.id, found.claim.evidence) == ("x", Evidence.REGRESSION)
    assert (found.expected, found.demanded, found.failed) == (10.5, True, False)
    (found,) = judge([replace(claim, ours=Ours(15.0, 1.5, 25, (1001, 1025)))], MANY)
    assert found.failed
    of_none = replace(claim, measure="nothing", ours=Ours(15.0, 1.5, 25, (1001, 1025)))
    (found,) = judge([of_none], MANY)
    assert (found.failed, found.missing) == (True, "no run has it")
    assert judge([replace(of_none, at={"nodes": 9999})], MANY) == []


# The headline


def test_the_headline_counts_claims_of_the_paper_first() -> None:
    claims = [
        Claim("a", "a", 20, "", "time", take=Take.MAX, where={**NEW, "nodes": 8}),
        Claim("b", "b", 60, "", "time", take=Take.MAX, where={**NEW, "nodes": 8}, reading=Reading.CHOSEN,
              others={"larger": {"nodes": 16}}),
        Claim("c", "c", None, "", unjudged="opinion"),
        Claim("d", "d", 20, "", "time", take=Take.MAX, where={**NEW, "nodes": 8}, reading=Reading.FITTED),
        Claim("e", "e", 9, "", "time", evidence=Evidence.AUTHORS_PROGRAM),
        demand(measure="left", where={**NEW, "nodes": 8, "seed": 1}),
    ]  # fmt: skip
    assert tally(judge(claims, RESULTS)).text() == (
        "4 claims of the paper; as printed: 1 agree, 0 near, 0 differ, 0 refuted, 1 not judged; "
        "under chosen readings: 0 agree, 0 near, 1 differ, 0 refuted, 0 not judged; "
        "under readings fitted to the same artefact: 2; "
        "of the authors' program: 0 agree, 0 near, 1 differ, 0 refuted, 0 not judged; "
        "invariants: 1 of 1 hold"
    )


# The claims of the papers


PAPERS = {"vcube": 134, "oppnet": 258, "deadline": 38, "prc": 64, "domains": 39}


@pytest.mark.parametrize("name", PAPERS)
def test_every_claim_of_a_paper_is_there_under_a_name_of_its_own(name: str) -> None:
    study = registry.lookup(name)
    assert len({claim.id for claim in study.claims}) == len(study.claims)
    paper = [claim for claim in study.claims if claim.evidence is Evidence.PAPER]
    assert len(paper) == PAPERS[name]
    assert all(claim.source and claim.text for claim in study.claims)
    assert all(claim.evidence is not Evidence.PAPER for claim in study.claims if claim not in paper)


@pytest.mark.parametrize("name", PAPERS)
def test_a_claim_that_a_test_judges_names_a_test_that_exists(name: str) -> None:
    root = Path(__file__).parents[2]
    for claim in registry.lookup(name).claims:
        if claim.tested:
            file, _, function = claim.tested.partition("::")
            assert re.search(rf"def {function}\(", (root / file).read_text()), claim.tested


def test_an_unknown_field_of_a_claim_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "odd_study"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "claims.toml").write_text('[[claim]]\nid = "a"\ntext = "a"\nsource = ""\nvalue = 3\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DataError, match="unknown fields \\['value'\\]"):
        load("odd_study")
