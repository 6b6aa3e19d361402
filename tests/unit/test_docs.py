"""The documents keep their word: examples run, commands exist, links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?whence ([a-z]+)(?: ([a-z]+))?", re.MULTILINE)


def blocks(language: str) -> list[tuple[str, str]]:
    return [
        (page.relative_to(ROOT).as_posix(), body)
        for page in PAGES
        for found, body in FENCE.findall(page.read_text())
        if found == language
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_python_examples_run(page, code, tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False
    )
    assert result.returncode == 0, f"{page}:\n{code}\n{result.stderr}"


def test_commands_in_the_documents_exist():
    from whence.cli.main import COMMANDS

    named = {
        match[1]
        for page in PAGES
        for _, body in FENCE.findall(page.read_text())
        for match in COMMAND.finditer(body)
    }
    assert named
    known = {entry.name for entry in COMMANDS}
    assert named <= known, f"unknown: {named - known}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"
