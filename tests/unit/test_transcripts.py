"""What README and the tutorials show is what a reader sees: files saved, commands typed, lines printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.terminals import perform

ROOT = Path(__file__).parents[2]
SLOW = {"tutorial-sweep.md"}  # three Spark sessions
PAGES = [
    pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in SLOW else [])
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("tutorial-*.md")))
    if "```console" in page.read_text()
]


@pytest.mark.timeout(280)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_happens(page: Path, tmp_path: Path) -> None:
    perform(page.read_text(), tmp_path)


def test_a_wrong_transcript_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended before it printed 'two'"):
        perform("```console\n$ echo one\ntwo\n```\n", tmp_path)
