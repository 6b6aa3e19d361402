"""Randomness: golden bits (determinism across machines), moments, accuracy, and each distribution."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from statistics import NormalDist, mean, median, pstdev, pvariance

import pytest

from whence.core import rng
from whence.sim.distributions import (
    TAIL_MAX_US,
    Constant,
    Distribution,
    Exponential,
    LogNormal,
    Normal,
    Pareto,
    Uniform,
    problem,
    sampler,
)

KEY = rng.stream(42, rng.purpose("test"), 3, -1)
DRAWS = 20_000


def test_golden_integers() -> None:
    assert [rng.mix64(value) for value in (0, 1, rng.MASK, 0x123456789ABCDEF)] == [
        0x0, 0x5692161D100B05E5, 0xB4D055FCF2CBBD7B, 0xB2C058E4EBB5112C,
    ]  # fmt: skip
    assert rng.purpose("link delay") == 0xFC5C365F21336D6A
    assert rng.purpose("") == 0xCBF29CE484222325
    assert KEY == 0x3DE589C1CCD6FFEE
    assert rng.stream(0, 0) == 0xA706DD2F4D197E6F
    assert [rng.bits(KEY, index) for index in (0, 1, 10**12)] == [
        0x95A7629499E4762E, 0x20B6A353BF076B8E, 0xCB056C1BDF249D7A,
    ]  # fmt: skip
    assert [rng.below(KEY, index, 10) for index in range(12)] == [5, 1, 0, 3, 2, 3, 5, 5, 5, 7, 9, 8]
    assert rng.shuffled(KEY, 10) == [6, 8, 0, 9, 1, 2, 3, 4, 5, 7]


def test_golden_floats_to_the_last_bit() -> None:
    """These hold on every machine because only + - * / and sqrt of IEEE 754 are used."""
    assert [rng.uniform(KEY, index).hex() for index in range(3)] == [
        "0x1.2b4ec52933c8ep-1", "0x1.05b51a9df83b4p-3", "0x1.7e504a84d0960p-4",
    ]  # fmt: skip
    assert [rng.log(value).hex() for value in (1e-300, 2**-53, 0.1, 0.7071, 1.0, 2.5, 1e9)] == [
        "-0x1.5963447f87fb5p+9", "-0x1.25e4f7b2737fap+5", "-0x1.26bb1bbb55515p+1", "-0x1.62e6b3842a25ep-2",
        "0x0.0p+0", "0x1.d5240f0e0e077p-1", "0x1.4b927f32bffb8p+4",
    ]  # fmt: skip
    assert [rng.exp(value).hex() for value in (-699.5, -30.25, -0.1, 0.0, 0.35, 1.0, 50.5, 699.9)] == [
        "0x1.c89c2e339b3bbp-1010", "0x1.4835bd010a41dp-44", "0x1.cf46d99d52b3ap-1", "0x1.0000000000000p+0",
        "0x1.6b4802c805decp+0", "0x1.5bf0a8b14576ap+1", "0x1.cf65319c57511p+72", "0x1.ac3c2d2583106p+1009",
    ]  # fmt: skip
    probabilities = (0.0, 2**-53, 1e-10, 0.02, 0.075, 0.3, 0.5, 0.925, 0.999999, 1 - 2**-53)
    assert [rng.normal_quantile(value).hex() for value in probabilities] == [
        "-0x1.778971b571c8cp+3", "-0x1.06b48528cea51p+3", "-0x1.97203597a2154p+2", "-0x1.06e13e8aadfdbp+1",
        "-0x1.7085226d3e523p+0", "-0x1.0c7e39582c5fap-1", "0x0.0p+0", "0x1.7085226d3e524p+0",
        "0x1.30381a97985f1p+2", "0x1.06b48528cea51p+3",
    ]  # fmt: skip


def test_functions_are_accurate() -> None:
    units = [rng.uniform(KEY, index) for index in range(5_000)]
    exact = NormalDist()
    for unit in units:
        positive = 10.0 ** (600.0 * unit - 300.0)
        assert rng.log(positive) == pytest.approx(math.log(positive), rel=1e-15)
        assert rng.exp(1_200.0 * unit - 600.0) == pytest.approx(math.exp(1_200.0 * unit - 600.0), rel=2e-13)
        assert rng.normal_quantile(unit) == pytest.approx(exact.inv_cdf(unit), rel=1e-12, abs=1e-14)
    assert rng.exp(-701.0) == 0.0
    assert rng.exp(701.0) == rng.exp(700.0)


def test_uniform_fills_the_unit_interval_evenly() -> None:
    units = [rng.uniform(KEY, index) for index in range(DRAWS)]
    assert min(units) >= 0.0
    assert max(units) < 1.0
    assert mean(units) == pytest.approx(0.5, abs=0.01)
    assert pvariance(units) == pytest.approx(1 / 12, rel=0.03)
    cells = Counter(int(unit * 100) for unit in units)
    chi_square = sum((cells[cell] - DRAWS / 100) ** 2 / (DRAWS / 100) for cell in range(100))
    assert 50 < chi_square < 160  # 99 degrees of freedom: mean 99, deviation 14
    products = [one * two for one, two in pairwise(units)]
    assert mean(products) == pytest.approx(0.25, abs=0.01)  # neighbours are independent


def test_streams_of_other_seeds_purposes_and_entities_differ() -> None:
    keys = {
        rng.stream(seed, rng.purpose(name), one, two)
        for seed in range(10)
        for name in ("delay", "loss")
        for one in range(10)
        for two in range(10)
    }
    assert len(keys) == 2_000
    assert rng.stream(1, 2, 3, 4) != rng.stream(1, 2, 4, 3)


def test_chance_is_exact_at_the_ends() -> None:
    assert not any(rng.chance(KEY, index, 0.0) for index in range(DRAWS))
    assert all(rng.chance(KEY, index, 1.0) for index in range(DRAWS))
    assert mean(rng.chance(KEY, index, 0.2) for index in range(DRAWS)) == pytest.approx(0.2, abs=0.01)


def test_every_permutation_is_equally_likely() -> None:
    seen = Counter(tuple(rng.shuffled(rng.stream(seed, 1), 4)) for seed in range(4_800))
    assert len(seen) == 24
    assert sum((count - 200) ** 2 / 200 for count in seen.values()) < 60  # 23 degrees of freedom


# Distributions


GOLDEN: list[tuple[Distribution, list[int]]] = [
    (Constant(value_us=7), [7, 7, 7, 7, 7, 7, 7, 7]),
    (Uniform(low_us=10, high_us=1_000), [589, 136, 102, 390, 222, 354, 559, 515]),
    (Normal(mean_us=1_000, deviation_us=2_000), [1427, 2228, 1753, 408, 1928, 216, 1275, 1052]),
    (Exponential(mean_us=1_000, min_us=5), [883, 142, 103, 489, 246, 432, 814, 719]),
    (Pareto(min_us=100, shape=1.2, max_us=10**6), [208, 112, 109, 150, 122, 143, 196, 181]),
    (LogNormal(median_us=1_000, sigma=1.5), [1378, 182, 138, 642, 304, 556, 1229, 1040]),
]


@pytest.mark.parametrize(("distribution", "expected"), GOLDEN, ids=lambda value: type(value).__name__)
def test_golden_draws(distribution: Distribution, expected: list[int]) -> None:
    draw = sampler(distribution)
    assert [draw(KEY, index) for index in range(8)] == expected


def drawn(distribution: Distribution) -> list[int]:
    draw = sampler(distribution)
    return [draw(KEY, index) for index in range(DRAWS)]


def test_uniform_reaches_both_ends_and_equals_below() -> None:
    values = drawn(Uniform(low_us=3, high_us=7))
    assert set(values) == {3, 4, 5, 6, 7}
    assert mean(values) == pytest.approx(5, abs=0.05)
    # The sampler has the arithmetic of `below` written out for speed.
    assert values[:1_000] == [3 + rng.below(KEY, index, 5) for index in range(1_000)]
    assert set(drawn(Uniform(low_us=9, high_us=9))) == {9}


def test_normal_has_its_moments_and_redraws_negatives() -> None:
    values = drawn(Normal(mean_us=10_000, deviation_us=1_000))
    assert mean(values) == pytest.approx(10_000, rel=0.005)
    assert pstdev(values) == pytest.approx(1_000, rel=0.03)
    # With mean 0 half of the draws are negative; what is left is the half-normal distribution.
    half = drawn(Normal(mean_us=0, deviation_us=1_000))
    assert min(half) >= 0
    assert mean(half) == pytest.approx(1_000 * math.sqrt(2 / math.pi), rel=0.03)
    assert set(drawn(Normal(mean_us=5, deviation_us=0))) == {5}


def test_exponential_has_its_moments() -> None:
    values = drawn(Exponential(mean_us=10_000, min_us=500))
    assert min(values) >= 500
    assert mean(values) == pytest.approx(10_500, rel=0.03)
    assert pstdev(values) == pytest.approx(10_000, rel=0.04)


def test_pareto_has_a_heavy_tail_that_is_cut() -> None:
    values = drawn(Pareto(min_us=1_000, shape=1.5, max_us=1_000_000))
    assert min(values) >= 1_000
    assert median(values) == pytest.approx(1_000 * 2 ** (1 / 1.5), rel=0.02)
    beyond = sum(value > 10_000 for value in values) / DRAWS
    assert beyond == pytest.approx(0.1**1.5, rel=0.15)
    assert max(drawn(Pareto(min_us=1_000, shape=0.1, max_us=5_000))) == 5_000


def test_lognormal_has_its_median_and_spread() -> None:
    values = drawn(LogNormal(median_us=1_000, sigma=0.5))
    logarithms = [math.log(value) for value in values]
    assert median(values) == pytest.approx(1_000, rel=0.02)
    assert pstdev(logarithms) == pytest.approx(0.5, rel=0.03)
    assert max(drawn(LogNormal(median_us=1_000, sigma=10.0))) == TAIL_MAX_US


@pytest.mark.parametrize(
    ("distribution", "field"),
    [
        (Uniform(low_us=2, high_us=1), "high_us"),
        (Pareto(min_us=2, max_us=1), "max_us"),
        (LogNormal(median_us=2, max_us=1), "max_us"),
        (Pareto(min_us=1, shape=math.nan), "shape"),
        (LogNormal(median_us=1, sigma=math.inf), "sigma"),
    ],
)
def test_impossible_distributions_name_the_field(distribution: Distribution, field: str) -> None:
    trouble = problem(distribution)
    assert trouble is not None
    assert trouble[0] == field


@pytest.mark.parametrize("distribution", [distribution for distribution, _ in GOLDEN])
def test_possible_distributions_have_no_problem(distribution: Distribution) -> None:
    assert problem(distribution) is None
