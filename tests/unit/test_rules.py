"""The table "rule of the paper -> place" is made from marks in the code, and is current."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rules", ROOT / "tools" / "rules.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["rules"] = module
    spec.loader.exec_module(module)
    return module


tool = load_tool()


def test_every_mark_can_be_read_and_stands_above_its_place() -> None:
    rules = tool.all_rules()
    assert {rule.paper for rule in rules} == set(tool.PAPERS)
    assert len(set(rules)) == len(rules)


def test_every_rule_that_the_papers_name_has_a_place() -> None:
    found = {(rule.paper, rule.name) for rule in tool.all_rules()}
    expected = {("000", f"rule {n}") for n in range(1, 6)}
    expected |= {("000", f"ours {n}") for n in range(1, 8)}
    expected |= {("001", f"F{n}") for n in range(1, 12)}
    expected |= {("001", f"Code {n}") for n in (2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13)}
    expected |= {("002", f"flaw {n}") for n in range(1, 10)}
    expected |= {("003", f"flaw {n}") for n in range(1, 17)}
    expected |= {("004", f"flaw {n}") for n in range(1, 6)}
    assert expected - found == set()


def test_the_page_is_current() -> None:
    page = tool.PAGE.read_text()
    assert page == tool.page_with(tool.all_rules(), page), "run python tools/rules.py --write"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# rule 9 F1: x\ndef f(): ...\n", "is not `# rule"),
        ("# rule 007 F1: x\ndef f(): ...\n", "is not `# rule"),
        ("# rule 001 F1\ndef f(): ...\n", "is not `# rule"),
        ("# rule 001 F1: x\n\ndef f(): ...\n", "no function or class follows"),
        ("# rule 001 F1: x\ny = 1\n", "no function or class follows"),
    ],
)
def test_a_bad_mark_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "odd.py").write_text(text)
    with pytest.raises(tool.MarkError, match=re.escape(words)):
        tool.all_rules(tmp_path)


def test_marks_name_class_and_function(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(
        "class A:\n    # rule 001 F10: later\n    # rule 001 F2: first\n    @property\n    def f(self): ...\n"
    )
    rules = tool.all_rules(tmp_path)
    assert [(rule.name, rule.place) for rule in rules] == [("F2", "A.f"), ("F10", "A.f")]
    assert "| F2 | first | `good.py`: `A.f` |" in tool.table(rules)
