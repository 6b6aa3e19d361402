"""Verdicts on expected and measured numbers."""

from __future__ import annotations

from math import inf, nan

import pytest

from whence.studies.claims import Expectation, Relation, Tolerance, Verdict


def verdict(
    expected: float,
    measured: float | None,
    tolerance: Tolerance | None = None,
    relation: Relation = Relation.EQUAL,
) -> Verdict:
    return Expectation(
        "x", expected, measured, "a test", tolerance=tolerance or Tolerance(), relation=relation
    ).verdict


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
        (1, None, Tolerance(absolute=inf), False),
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
    off = Expectation("x", 10, 12.5, "a test")
    assert off.difference == 2.5
    assert off.failed
    assert not Expectation("x", 10, 12.5, "a test", demanded=False).failed
    assert not Expectation("x", 10, 10, "a test").failed
    assert Expectation("x", 10, None, "a test").difference is None


@pytest.mark.parametrize(
    ("tolerance", "text"),
    [
        (Tolerance(), "exact"),
        (Tolerance(absolute=0.5), "± 0.5"),
        (Tolerance(relative=0.05), "± 5 %"),
        (Tolerance(2, 0.1), "± 2 or ± 10 %"),
    ],
)
def test_tolerance_in_words(tolerance: Tolerance, text: str) -> None:
    assert str(tolerance) == text
