"""How numbers are written for people: the same on a terminal and on a page. Standard library only."""

from __future__ import annotations

from math import floor, isfinite, isnan, log10

MISSING = "–"
MINUS = "−"


def number(value: float | None) -> str:
    """About four digits that mean something, thousands separated; `–` for what does not exist.

    No zeros are added at the end: a paper that prints 12.2 is not said to print 12.20.
    """
    if value is None or isnan(value):
        return MISSING
    if not isfinite(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    size = abs(value)
    if value == int(value) and size < 1e15:
        return _signed(f"{int(value):,}")
    if size < 1:
        return _signed(f"{value:.3g}")
    if size >= 1000:
        return _signed(f"{value:,.0f}")
    return _signed(f"{value:.{1 if size >= 100 else 2}f}".rstrip("0").rstrip("."))


def _signed(text: str) -> str:
    return text.replace("-", MINUS) if text.startswith("-") else text


def with_interval(mean: float, half: float | None) -> tuple[str, str]:
    """A mean and half its interval: two digits of the interval, and no more of the mean than it allows.

    The second text is empty where there is no interval, or none wider than zero.
    """
    if not half or not isfinite(half) or not isfinite(mean):
        return number(mean), ""
    decimals = max(0, 1 - floor(log10(float(f"{half:.1e}"))))  # of the rounded half: 0.0999 is 0.10
    return _signed(f"{mean:,.{decimals}f}"), f"{half:,.{decimals}f}"


def cell(value: object) -> str:
    """Any value of a table as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, int | float):
        return number(value)
    return str(value)


def seconds(value: float) -> str:
    """A duration as a person says it."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def plural(count: int, noun: str, plural_noun: str | None = None) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {noun if count == 1 else plural_noun or noun + 's'}"
