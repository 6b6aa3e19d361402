"""Spoil every measure of every study, as recorded at the scale `demo`; and the page that counts verdicts.

Nothing is simulated here: the runs are those of tests/golden/data/runs-*.json.gz.

A demand must fail when the number that it speaks of is halved and when it is doubled. Which change brings
that about depends on its form; the first of these that changes its number counts, and must be noticed:

    whole     the measure of all runs, times 0.5, 2 and 10
    arm       the measure of its own runs, and not of those that it is compared with, times 0.5, 2 and 10
    tilt      the measure times nodes to the power -0.5 and 0.5: a slope, a step
    shift     the measure of one of its runs, plus and minus 1: a number that is zero
    number    the derived number itself, times 0.5 and 2

A demand with an `excuse` has one side: a limit from above is put to times 2 and 10 alone, one from below to
times 0.5, that something exists to times 0, and must notice these. A promise must notice one run that breaks
it.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from golden.recorded import NAMES, missing, parts_of, path_of, recorded
from whence.studies import registry
from whence.studies.base import Study
from whence.studies.claims import PROMISES_KEPT, Claim, Relation
from whence.studies.results import Derived, Results, Row
from whence.studies.verdicts import Judged, judge

RECORDED = [name for name in NAMES if path_of(name).exists()]


FACTORS = (0.5, 2.0, 10.0)
Change = Callable[[Row | Derived, float], float]


class Fate(NamedTuple):
    """What became of one demand: which kind of spoiling it was put to, and what of it it noticed."""

    claim: str
    kind: str
    noticed: tuple[bool, ...]
    excuse: str

    @property
    def is_dead(self) -> bool:
        return not self.noticed or not all(self.noticed)


def fates(study: Study, results: Results) -> list[Fate]:
    """Every demand of a study that these runs speak of."""
    whole = replace(results, derived=tuple(study.derived(results)))
    made = []
    for one in study.judge(results):
        if one.demanded and not one.failed:
            claim = _asking(one, study)
            made.append(_fate(study, results, whole, claim, one))
    return made


def _asking(one: Judged, study: Study) -> Claim:
    """The claim whose judging gives this demand again: a regression comes with the paper's number."""
    named = {claim.id: claim for claim in study.claims}
    return named.get(one.claim.id) or named[one.claim.id.removesuffix("-ours")]


def _again(claim: Claim, results: Results, wanted: str) -> Judged | None:
    return next((one for one in judge([claim], results) if one.claim.id == wanted), None)


def _fate(study: Study, results: Results, whole: Results, claim: Claim, one: Judged) -> Fate:
    for kind, spoiled in _kinds(study, results, whole, claim, one):
        found = [_again(claim, each, one.claim.id) for each in spoiled]
        if any(_differs(one, each) for each in found):
            noticed = tuple(each is None or each.failed for each in found)
            return Fate(one.claim.id, kind, noticed, one.claim.excuse)
    return Fate(one.claim.id, "nothing changes it", (), one.claim.excuse)


def _differs(one: Judged, other: Judged | None) -> bool:
    if other is None or other.measured is None or one.measured is None:
        return True
    return not isclose(one.measured, other.measured, rel_tol=1e-6, abs_tol=1e-9)


def _kinds(
    study: Study, results: Results, whole: Results, claim: Claim, one: Judged
) -> Iterator[tuple[str, list[Results]]]:
    where = {**claim.where, **claim.at}
    own = whole.lines(where)
    if claim.measure == PROMISES_KEPT:
        yield "promise", [_broken(whole, own)]
        return
    measures = claim.measure.split(" + ")
    if any(isinstance(line, Derived) for line in own):
        factors = _against(one, (0.5, 2.0), 0.5)
        yield "number", [_spoiled(whole, measures, own, _times(factor)) for factor in factors]
        if one.measured == 0:
            yield "shift", [_spoiled(whole, measures, own, _plus(by)) for by in (-1.0, 1.0)]
        return
    factors = _against(one, FACTORS, 0.0)  # what exists is noticed when it is gone
    yield "whole", [_spoiled(whole, measures, None, _times(factor)) for factor in factors]
    yield "arm", [_spoiled(whole, measures, own, _times(factor)) for factor in factors]
    yield "tilt", [_spoiled(whole, measures, None, _tilt(power)) for power in (-0.5, 0.5)]
    there = [line for line in own if any(line.measures.get(name) is not None for name in measures)]
    yield "shift", [_spoiled(whole, measures[:1], there[:1], _plus(by)) for by in (-1.0, 1.0)]


def _against(one: Judged, factors: tuple[float, ...], least: float) -> tuple[float, ...]:
    """The factors that a demand must notice: those of its wrong side, if it has an excuse for the other."""
    if not one.claim.excuse:
        return factors
    if one.claim.relation is Relation.AT_MOST:
        return tuple(factor for factor in factors if factor > 1)
    return (least,)


def _times(factor: float) -> Change:
    return lambda line, value: value * factor


def _plus(by: float) -> Change:
    return lambda line, value: value + by


def _tilt(power: float) -> Change:
    def change(line: Row | Derived, value: float) -> float:
        nodes = line.labels.get("nodes")
        return value * float(nodes) ** power if isinstance(nodes, int | float) else value

    return change


def _spoiled(results: Results, measures: list[str], only: list[Any] | None, change: Change) -> Results:
    """The same lines with these measures changed: of all of them, or of `only` some."""
    chosen = None if only is None else {id(line) for line in only}

    def spoil(line: Any) -> Any:
        if chosen is not None and id(line) not in chosen:
            return line
        found = {
            name: change(line, value) for name in measures if (value := line.measures.get(name)) is not None
        }
        return replace(line, measures={**line.measures, **found}) if found else line

    rows = tuple(spoil(row) for row in results.rows)
    return replace(results, rows=rows, derived=tuple(spoil(line) for line in results.derived))


def _broken(results: Results, own: list[Any]) -> Results:
    """One of the runs breaks what its protocol promises."""
    chosen = next(line for line in own if line.judged)

    def spoil(row: Row) -> Row:
        return replace(row, verdict={**row.verdict, "ok": False}) if row is chosen else row

    return replace(results, rows=tuple(spoil(row) for row in results.rows))


@pytest.mark.parametrize("name", RECORDED)
def test_every_demand_notices_a_spoiled_measure(name: str) -> None:
    study = registry.lookup(name)
    found = fates(study, recorded(name))
    assert [fate for fate in found if fate.is_dead] == []
    assert len(found) >= 4
    excused = [fate for fate in found if fate.excuse]
    assert len(excused) <= len(found) / 4, (
        "an excuse is for what exists and for printed bounds, not a way out"
    )


@pytest.mark.parametrize("name", RECORDED)
def test_what_was_recorded_is_the_grid_of_today(name: str) -> None:
    assert [dict(point.labels) for point in missing(name)] == []


@pytest.mark.parametrize("name", RECORDED)
def test_what_was_recorded_holds(name: str) -> None:
    study = registry.lookup(name)
    assert [one.claim.id for one in study.judge(recorded(name)) if one.failed] == []


# The others have a test of their own, of runs with all that was counted in them.
@pytest.mark.parametrize(
    ("name", "part"), [(name, part) for name in ("vcube", "domains") for part in parts_of(name)]
)
def test_a_page_without_runs_of_a_kind_is_made_all_the_same(name: str, part: str) -> None:
    study = registry.lookup(name)
    results = recorded(name)
    left = replace(results, rows=tuple(row for row in results.rows if row.labels["part"] != part))
    assert study.judge(left)
    assert study.findings(left)
    assert study.tables(left)
    assert study.headline is not None
    assert study.headline(left)
    assert study.figures(left) or part == "main"  # all figures of vcube are of that part


def test_the_page_of_fidelity_is_current(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command, in this process: it judges the runs that are loaded here."""
    tool = Path(__file__).parents[2] / "tools" / "fidelity.py"
    monkeypatch.setattr(sys, "argv", [str(tool)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(tool), run_name="__main__")
    assert ended.value.code == 0, capsys.readouterr().out
