"""Counter-based randomness: a draw is a hash of (seed, purpose, entities, index).

Nothing is consumed, so the order of draws does not matter: a core, a numba kernel, one machine and
a cluster all see the same number for the same question. Every function here uses only 64-bit
integer arithmetic and IEEE + - * / sqrt, whose results are the same on every machine; the C library's
`log` and `exp` are not, so the two that we need are here as well.
"""

from __future__ import annotations

from math import frexp, ldexp, sqrt

MASK = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15
_TO_UNIT = 2.0**-53


def mix64(value: int) -> int:
    """SplitMix64's finaliser: every input bit changes every output bit with chance 1/2."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def purpose(name: str) -> int:
    """A 64-bit number for a purpose's name (FNV-1a), so that purposes need no registry."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def stream(seed: int, what: int, *entities: int) -> int:
    """The key of one stream of draws: fix it once, then ask for index 0, 1, 2 ..."""
    key = mix64((seed + GOLDEN) & MASK)
    key = mix64((key ^ what) + GOLDEN & MASK)
    for entity in entities:
        key = mix64((key ^ (entity & MASK)) + GOLDEN & MASK)
    return key


def branch(key: int, entity: int) -> int:
    """The key of the stream of one entity more: `stream(s, w, a, b)` is `branch(stream(s, w, a), b)`."""
    return mix64((key ^ (entity & MASK)) + GOLDEN & MASK)


def bits(key: int, index: int) -> int:
    """64 random bits: draw `index` of the stream."""
    return mix64((key + (index + 1) * GOLDEN) & MASK)


def uniform(key: int, index: int) -> float:
    """Uniform in [0, 1)."""
    return (bits(key, index) >> 11) * _TO_UNIT


def below(key: int, index: int, bound: int) -> int:
    """Uniform in 0 .. bound - 1; the bias is below bound / 2^64."""
    return (bits(key, index) * bound) >> 64


def chance(key: int, index: int, probability: float) -> bool:
    """True with the given probability; exact at 0 and 1."""
    return uniform(key, index) < probability


def shuffled(key: int, count: int) -> list[int]:
    """A permutation of 0 .. count - 1."""
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        other = below(key, last, last + 1)
        order[last], order[other] = order[other], order[last]
    return order


_LN2 = 0.6931471805599453
_SQRT_HALF = 0.7071067811865476


def log(value: float) -> float:
    """Natural logarithm of a positive number, the same bits on every machine (relative error < 1e-15)."""
    mantissa, exponent = frexp(value)
    if mantissa < _SQRT_HALF:
        mantissa *= 2.0
        exponent -= 1
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    square = ratio * ratio
    total = 0.0
    for odd in range(23, 0, -2):  # atanh series; |ratio| < 0.172, so 12 terms reach 1e-18
        total = total * square + 1.0 / odd
    return exponent * _LN2 + 2.0 * ratio * total


def exp(value: float) -> float:
    """e to the power of `value`, the same bits on every machine; saturates outside [-700, 700]."""
    value = min(value, 700.0)
    if value < -700.0:
        return 0.0
    exponent = int(value / _LN2 + (0.5 if value >= 0 else -0.5))
    rest = value - exponent * _LN2
    total = 1.0
    for term in range(18, 0, -1):  # Taylor on |rest| < 0.347
        total = 1.0 + total * rest / term
    return ldexp(total, exponent)


def _rational(value: float, above: tuple[float, ...], under: tuple[float, ...]) -> float:
    numerator = 0.0
    for coefficient in above:
        numerator = numerator * value + coefficient
    denominator = 0.0
    for coefficient in under:
        denominator = denominator * value + coefficient
    return numerator / denominator


def normal_quantile(probability: float) -> float:
    """The standard normal's inverse distribution function (Wichura 1988, AS 241, 16 digits)."""
    centred = probability - 0.5
    if -0.425 <= centred <= 0.425:
        return centred * _rational(0.180625 - centred * centred, _A, _B)
    tail = probability if centred < 0 else 1.0 - probability
    radius = sqrt(-log(tail)) if tail > 0.0 else 8.5
    result = _rational(radius - 1.6, _C, _D) if radius <= 5.0 else _rational(radius - 5.0, _E, _F)
    return -result if centred < 0 else result


# AS 241's coefficients, highest power first.
_A = (
    2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
    13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608,
)  # fmt: skip
_B = (
    5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
    5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0,
)  # fmt: skip
_C = (
    7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177,
    1.27045825245236838258, 3.64784832476320460504, 5.7694972214606914055,
    4.6303378461565452959, 1.42343711074968357734,
)  # fmt: skip
_D = (
    1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966,
    0.14810397642748007459, 0.68976733498510000455, 1.6763848301838038494,
    2.05319162663775882187, 1.0,
)  # fmt: skip
_E = (
    2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386,
    0.026532189526576123093, 0.29656057182850489123, 1.7848265399172913358,
    5.4637849111641143699, 6.6579046435011037772,
)  # fmt: skip
_F = (
    2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5,
    7.868691311456132591e-4, 0.0148753612908506148525, 0.13692988092273580531,
    0.59983220655588793769, 1.0,
)  # fmt: skip
