"""Mutants are made, found and counted; the campaigns name what there is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TOY = """
def doubled(number):
    if number > 100:
        number = 0  # no run is that large
    return number + number
"""
TOY_TEST = """
import toy_core
ALWAYS, ALL = 3, 9
def one_run(seed):
    assert toy_core.doubled(seed) == 2 * seed
"""


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutate", ROOT / "tools" / "mutate.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def toy(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    (tmp_path / "toy_core.py").write_text(TOY)
    (tmp_path / "toy_test.py").write_text(TOY_TEST)
    monkeypatch.setattr(tool, "SOURCE", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tool.Campaign("toy_test", ("toy_core",), 9)


def test_mutants_of_a_toy_are_made_found_and_counted(tool: ModuleType, toy: object, tmp_path: Path) -> None:
    *mutants, found, others = tool.outcome("toy", toy)
    assert sorted(mutants) == [
        "toy_core:3 doubled: always: 2 of 3",  # 0 is 0 doubled
        "toy_core:3 doubled: comparison: 0 of 3, others 0 of 6",
        "toy_core:3 doubled: negated: 2 of 3",
        "toy_core:3 doubled: never: 0 of 3, others 0 of 6",
        "toy_core:3 doubled: number + 1: 0 of 3, others 0 of 6",
        "toy_core:4 doubled: number + 1: 0 of 3, others 0 of 6",
        "toy_core:5 doubled: operator: 2 of 3",
    ]
    assert found == "toy: 7 mutants; 3 runs find 3 of them, each by 2 or more"
    assert others == "6 others find 0 more; none finds 4"
    assert (tmp_path / "toy_core.py").read_text() == TOY
    assert "toy_core" not in sys.modules


def test_a_test_that_fails_without_a_mutant_tells_nothing(
    tool: ModuleType, toy: object, tmp_path: Path
) -> None:
    (tmp_path / "toy_test.py").write_text(TOY_TEST.replace("2 *", "3 *"))
    with pytest.raises(SystemExit, match="fails without a mutant"):
        list(tool.outcome("toy", toy))


def test_a_mutant_that_hangs_is_found(tool: ModuleType, toy: object, tmp_path: Path) -> None:
    (tmp_path / "toy_core.py").write_text(
        "def doubled(number):\n    while False: pass\n    return 2 * number\n"
    )
    toy = toy._replace(limit_s=0.02)  # type: ignore[attr-defined]
    assert "toy_core:2 doubled: negated: 3 of 3" in list(tool.outcome("toy", toy))


def test_what_campaigns_name_is_there(tool: ModuleType) -> None:
    for campaign in tool.CAMPAIGNS.values():
        for name in campaign.modules:
            assert tool.file_of(name).is_file()
        run, few, others = campaign.runs(importlib.import_module(campaign.test.replace("/", ".")))
        assert callable(run)
        assert len(few) > 0
        assert len(others) > 0
