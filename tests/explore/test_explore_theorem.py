"""Theorem 1 of paper 004: every arrangement of servers is as it says (`theorem.py`)."""

from __future__ import annotations

import pytest

from explore.theorem import hold


@pytest.mark.parametrize(("servers", "acyclic", "cyclic"), [(3, 2, 1), (4, 4, 10)])
def test_theorem_1(servers: int, acyclic: int, cyclic: int) -> None:
    assert hold(servers)[:2] == (acyclic, cyclic)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_theorem_1_with_five_servers() -> None:
    held = hold(5)
    assert held.acyclic
    assert held.cyclic
