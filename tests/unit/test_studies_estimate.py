"""Means, Student's t intervals, paired differences."""

from __future__ import annotations

import pytest

from whence.studies.results import estimate, paired, t_975


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.7062), (4, 2.7764), (9, 2.2622), (30, 2.0423), (40, 2.0211), (120, 1.9799)],
)
def test_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert t_975(degrees) == pytest.approx(quantile, abs=2e-4)


def test_quantiles_fall_towards_the_normal_one() -> None:
    found = [t_975(degrees) for degrees in range(1, 200)]
    assert found == sorted(found, reverse=True)
    assert found[-1] > 1.959964


def test_an_interval_by_hand() -> None:
    # 2, 4, 9: mean 5, sample variance (9 + 1 + 16) / 2 = 13, half width 4.3027 * sqrt(13 / 3)
    found = estimate([2, 4, 9])
    assert found.mean == 5
    assert found.half == pytest.approx(4.3027 * (13 / 3) ** 0.5)
    assert (found.low, found.high) == (5 - found.half, 5 + found.half)
    assert found.count == 3


def test_one_value_has_no_interval() -> None:
    found = estimate([7.5])
    assert (found.mean, found.half, found.low, found.high) == (7.5, None, 7.5, 7.5)


def test_equal_values_have_an_interval_of_exactly_zero() -> None:
    found = estimate([0.1] * 7)  # sum([0.1] * 7) / 7 is not 0.1
    assert (found.mean, found.half) == (0.1, 0.0)


def test_no_values_have_no_mean() -> None:
    with pytest.raises(ValueError, match="no values"):
        estimate([])


def test_pairs_cancel_what_the_seed_did_to_both() -> None:
    before, after = [10.0, 50.0, 200.0], [11.0, 51.0, 201.0]
    assert paired(before, after) == estimate([1.0, 1.0, 1.0])
    assert paired(before, after).half == 0
    with pytest.raises(ValueError, match="zip"):
        paired([1.0], [1.0, 2.0])
