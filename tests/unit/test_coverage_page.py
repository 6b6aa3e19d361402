"""The page of coverage is counted from what was measured."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("coverage_page", ROOT / "tools" / "coverage_page.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def summary(lines: int, reached: int, branches: int, taken: int) -> dict[str, Any]:
    counts = {"num_statements": lines, "covered_lines": reached}
    return {"summary": {**counts, "num_branches": branches, "covered_branches": taken}}


def test_shares_are_of_lines_and_branches_together(tool: ModuleType) -> None:
    files = {
        "/x/src/whence/cli/top.py": summary(30, 10, 10, 0),
        "/x/src/whence/cli/node.py": summary(60, 60, 20, 20),
        "/x/src/whence/order.py": summary(19, 0, 0, 0),  # too small for the list of the weakest
    }
    page = tool.page_of({"files": files}, "`make coverage`", "abc", "2026-11-18")
    assert "**64.7 %** of 109 lines and 30 branches were reached: 2026-11-18, commit `abc`" in page
    assert "| `cli` | 75.0 % | 90 | 20 | 30 | 10 |" in page
    weakest = page.partition("## The weakest")[2]
    assert "| `cli/top.py` | 25.0 % | 30 | 20 | 10 | 10 |" in weakest
    assert "order.py" not in weakest
    assert weakest.index("top.py") < weakest.index("node.py")


def test_nothing_to_reach_is_reached(tool: ModuleType) -> None:
    assert tool.share(Counter()) == 100.0
