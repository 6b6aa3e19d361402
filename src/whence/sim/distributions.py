"""Distributions of times, as a scenario names them, and how a draw is made of each.

A draw is a pure function of (key, index): see `whence.core.rng`. All results are whole
microseconds, never negative, and the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import isfinite
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from whence.core.rng import GOLDEN, MASK, exp, log, normal_quantile, purpose, stream, uniform

TIME_MAX_US = 10**15  # some 31 years: sums of a few such times still fit 64 bits
TAIL_MAX_US = 3_600_000_000  # an hour: where heavy tails are cut unless told otherwise

Micros = Annotated[int, Meta(ge=0, le=TIME_MAX_US)]
PositiveMicros = Annotated[int, Meta(ge=1, le=TIME_MAX_US)]

Draw: TypeAlias = Callable[[int, int], int]  # (key of a stream, index) -> microseconds

_REDRAW = purpose("redraw of a negative")
_REDRAWS_MAX = 64  # each is negative with chance 1/2 at most


class Tagged(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """Something of several kinds; the file says which one with `kind = "..."`."""


class Constant(Tagged, frozen=True, kw_only=True, tag="constant"):
    """Always the same."""

    value_us: Micros


class Uniform(Tagged, frozen=True, kw_only=True, tag="uniform"):
    """Every whole microsecond from `low_us` to `high_us`, both included, is equally likely."""

    low_us: Micros
    high_us: Micros


class Normal(Tagged, frozen=True, kw_only=True, tag="normal"):
    """The bell curve; a negative draw is drawn again."""

    mean_us: Micros
    deviation_us: Micros


class Exponential(Tagged, frozen=True, kw_only=True, tag="exponential"):
    """Memoryless, never below `min_us`; the mean is `min_us + mean_us`."""

    mean_us: PositiveMicros
    min_us: Micros = 0


class Pareto(Tagged, frozen=True, kw_only=True, tag="pareto"):
    """Heavy tail: P(x > t) = (min_us / t) ^ shape; cut at `max_us`."""

    min_us: PositiveMicros
    shape: Annotated[float, Meta(ge=0.1, le=100.0)] = 1.5
    max_us: PositiveMicros = TAIL_MAX_US


class LogNormal(Tagged, frozen=True, kw_only=True, tag="lognormal"):
    """The logarithm is normal around that of `median_us` with deviation `sigma`; cut at `max_us`."""

    median_us: PositiveMicros
    sigma: Annotated[float, Meta(ge=0.0, le=10.0)] = 1.0
    max_us: PositiveMicros = TAIL_MAX_US


Distribution: TypeAlias = Constant | Uniform | Normal | Exponential | Pareto | LogNormal


class Ramp(Tagged, frozen=True, kw_only=True, tag="ramp"):
    """A delay by the time of sending, in straight lines between (time, delay); it never falls.

    So no packet overtakes another. Before the first point and after the last the delay is theirs.
    """

    points: tuple[tuple[Micros, PositiveMicros], ...]

    def at(self, sent_us: int) -> int:
        """Return the delay of a packet that is sent at a time."""
        before_us, before = self.points[0]
        for at_us, delay_us in self.points:
            if sent_us < at_us:
                if at_us == before_us:
                    return delay_us
                return before + (delay_us - before) * (sent_us - before_us) // (at_us - before_us)
            before_us, before = at_us, delay_us
        return before


Delay: TypeAlias = Distribution | Ramp  # of links


def problem(distribution: Delay) -> tuple[str, str] | None:
    """The field and the reason why nothing can be drawn from it; None if all is well."""
    match distribution:
        case Ramp(points=points):
            return _ramp_problem(points)
        case Uniform(low_us=low, high_us=high) if low > high:
            return "high_us", f"{high} is below low_us = {low}"
        case Pareto(min_us=low, max_us=high) if low > high:
            return "max_us", f"{high} is below min_us = {low}"
        case LogNormal(median_us=low, max_us=high) if low > high:
            return "max_us", f"{high} is below median_us = {low}"
        case Pareto(shape=number) | LogNormal(sigma=number) if not isfinite(number):
            return "shape" if isinstance(distribution, Pareto) else "sigma", f"{number} is not finite"
    return None


def _ramp_problem(points: tuple[tuple[int, int], ...]) -> tuple[str, str] | None:
    if not points:
        return "points", "it has none"
    for (before_us, before), (at_us, delay_us) in pairwise(points):
        if at_us <= before_us:
            return "points", f"the one at {at_us} does not come after the one at {before_us}"
        if delay_us < before:
            return "points", f"the delay falls from {before} to {delay_us}, and packets would overtake"
    return None


def sampler(distribution: Distribution) -> Draw:
    """The function that draws from `distribution`."""
    match distribution:
        case Constant(value_us=value_us):
            return lambda key, index: value_us
        case Uniform(low_us=low, high_us=high):
            return _uniform(low, high - low + 1)
        case Normal(mean_us=mean, deviation_us=deviation):
            return _normal(mean, deviation)
        case Exponential(mean_us=mean, min_us=low):
            return lambda key, index: low + int(0.5 - mean * log(1.0 - uniform(key, index)))
        case Pareto(min_us=low, shape=shape, max_us=high):
            return lambda key, index: int(
                min(low * exp(-log(1.0 - uniform(key, index)) / shape), float(high)) + 0.5
            )
        case LogNormal(median_us=median, sigma=sigma, max_us=high):
            return lambda key, index: int(
                min(median * exp(sigma * normal_quantile(uniform(key, index))), float(high)) + 0.5
            )


def _uniform(low: int, span: int) -> Draw:
    if span == 1:
        return lambda key, index: low

    def draw(key: int, index: int) -> int:
        # `below(key, index, span)` written out: it is in the simulator's innermost loop, and two
        # calls are a tenth of a step. A test holds it to the original.
        value = (key + (index + 1) * GOLDEN) & MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
        return low + ((value ^ (value >> 31)) * span >> 64)

    return draw


def _normal(mean: int, deviation: int) -> Draw:
    def draw(key: int, index: int) -> int:
        value = mean + deviation * normal_quantile(uniform(key, index))
        if value >= 0.0:
            return int(value + 0.5)
        again = stream(key, _REDRAW, index)
        for attempt in range(_REDRAWS_MAX):
            value = mean + deviation * normal_quantile(uniform(again, attempt))
            if value >= 0.0:
                return int(value + 0.5)
        return mean

    return draw
