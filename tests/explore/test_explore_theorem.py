"""Theorem 1 of paper 004: every arrangement of servers is as it says (`theorem.py`)."""

from __future__ import annotations

from itertools import islice

import pytest

from explore import theorem
from explore.theorem import every_script, hold

ARRANGEMENTS = [(3, 2, 1), (4, 4, 10)]  # servers, without a cycle, with one
FAST = {3: 1, 4: 5}  # of four servers every fifth script: each arrangement with a cycle is broken as before


@pytest.mark.parametrize(("servers", "acyclic", "cyclic"), ARRANGEMENTS)
def test_theorem_1(servers: int, acyclic: int, cyclic: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def some(groups: theorem.Groups, servers: int) -> object:
        return islice(every_script(groups, servers), 0, None, FAST[servers])

    monkeypatch.setattr(theorem, "every_script", some)
    assert hold(servers)[:2] == (acyclic, cyclic)


@pytest.mark.slow
def test_theorem_1_with_every_script_of_four_servers() -> None:
    assert hold(4)[:2] == (4, 10)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_theorem_1_with_five_servers() -> None:
    held = hold(5)
    assert held.acyclic
    assert held.cyclic
