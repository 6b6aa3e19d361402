"""Parts of a long test: the first ones are fast tests, all others slow ones."""

from __future__ import annotations

import pytest


def parts(count: int, fast: int) -> list[object]:
    """The numbers of `count` parts, of which `make test` runs the first `fast`."""
    return [pytest.param(part, marks=[pytest.mark.slow] if part >= fast else []) for part in range(count)]
