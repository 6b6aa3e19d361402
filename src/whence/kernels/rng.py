"""`whence.core.rng` and the delays of `whence.sim.distributions` for numba, bit for bit.

Only 64-bit integers and IEEE + - * / sqrt: without `fastmath` LLVM may neither reorder nor fuse
them, so a draw has the same bits here as in pure Python (tests/equivalence/test_vcube_kernel.py).
"""

from __future__ import annotations

from math import frexp, sqrt

import numpy as np

from whence.core import rng
from whence.core.rng import purpose
from whence.kernels.compile import inner
from whence.sim.distributions import Constant, Delay, Normal, Uniform

CONSTANT, UNIFORM, NORMAL = 0, 1, 2  # kinds of delay that a kernel can draw

_GOLDEN = np.uint64(rng.GOLDEN)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_LOW_32 = np.uint64(0xFFFFFFFF)
_11, _27, _30, _31, _32 = (np.uint64(shift) for shift in (11, 27, 30, 31, 32))
_ONE = np.uint64(1)
_REDRAW = np.uint64(purpose("redraw of a negative"))
_REDRAWS_MAX = 64
_TO_UNIT = 2.0**-53
_LN2 = 0.6931471805599453
_SQRT_HALF = 0.7071067811865476
_A, _B, _C, _D, _E, _F = rng._A, rng._B, rng._C, rng._D, rng._E, rng._F


def delay_code(distribution: Delay) -> tuple[int, int, int] | None:
    """The distribution as (kind, a, b) for `draw`; None if kernels cannot draw from it."""
    match distribution:
        case Constant(value_us=value_us):
            return CONSTANT, value_us, 0
        case Uniform(low_us=low_us, high_us=high_us) if high_us - low_us < 2**32 - 1:
            return UNIFORM, low_us, high_us - low_us + 1
        case Normal(mean_us=mean_us, deviation_us=deviation_us):
            return NORMAL, mean_us, deviation_us
    return None


@inner
def mix64(value: np.uint64) -> np.uint64:
    """SplitMix64's finaliser."""
    value = (value ^ (value >> _30)) * _MIX_1
    value = (value ^ (value >> _27)) * _MIX_2
    return value ^ (value >> _31)


@inner
def stream(seed: np.uint64, what: np.uint64, entity: int) -> np.uint64:
    """The key of one stream of draws."""
    key = mix64(seed + _GOLDEN)
    key = mix64((key ^ what) + _GOLDEN)
    return mix64((key ^ np.uint64(entity)) + _GOLDEN)


@inner
def bits(key: np.uint64, index: int) -> np.uint64:
    """64 random bits."""
    return mix64(key + (np.uint64(index) + _ONE) * _GOLDEN)


@inner
def uniform(key: np.uint64, index: int) -> float:
    """Uniform in [0, 1)."""
    return float(bits(key, index) >> _11) * _TO_UNIT


@inner
def below(key: np.uint64, index: int, bound: int) -> int:
    """Uniform in 0 .. bound - 1, for bounds below 2^32: the high half of a 96-bit product."""
    value = bits(key, index)
    span = np.uint64(bound)
    return int(((value >> _32) * span + ((value & _LOW_32) * span >> _32)) >> _32)


@inner
def log(value: float) -> float:
    """Natural logarithm of a positive number."""
    mantissa, exponent = frexp(value)
    if mantissa < _SQRT_HALF:
        mantissa *= 2.0
        exponent -= 1
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    square = ratio * ratio
    total = 0.0
    for odd in range(23, 0, -2):
        total = total * square + 1.0 / odd
    return exponent * _LN2 + 2.0 * ratio * total


@inner
def _rational(value: float, above: tuple[float, ...], under: tuple[float, ...]) -> float:
    numerator = 0.0
    for coefficient in above:
        numerator = numerator * value + coefficient
    denominator = 0.0
    for coefficient in under:
        denominator = denominator * value + coefficient
    return numerator / denominator


@inner
def normal_quantile(probability: float) -> float:
    """The standard normal's inverse distribution function."""
    centred = probability - 0.5
    if -0.425 <= centred <= 0.425:
        return centred * _rational(0.180625 - centred * centred, _A, _B)
    tail = probability if centred < 0 else 1.0 - probability
    radius = sqrt(-log(tail)) if tail > 0.0 else 8.5
    result = _rational(radius - 1.6, _C, _D) if radius <= 5.0 else _rational(radius - 5.0, _E, _F)
    return -result if centred < 0 else result


@inner
def draw(kind: int, a: int, b: int, key: np.uint64, index: int) -> int:
    """One delay in whole microseconds, from the distribution that (kind, a, b) stands for."""
    if kind == CONSTANT:
        return a
    if kind == UNIFORM:
        return a + below(key, index, b)
    value = a + b * normal_quantile(uniform(key, index))
    if value >= 0.0:
        return int(value + 0.5)
    again = stream(key, _REDRAW, index)
    for attempt in range(_REDRAWS_MAX):
        value = a + b * normal_quantile(uniform(again, attempt))
        if value >= 0.0:
            return int(value + 0.5)
    return a
