"""The documents keep their word: examples run, commands exist, links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
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


def test_the_api_reference_names_modules_that_exist():
    named = [
        name
        for page in (ROOT / "docs" / "api").glob("*.md")
        for name in re.findall(r"automodule:: (\S+)", page.read_text())
    ]
    assert named
    assert [name for name in named if importlib.util.find_spec(name) is None] == []


def test_every_page_is_on_the_site():
    site = (ROOT / "docs" / "index.md").read_text()
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert {name for name in pages if not re.search(rf"^{name}$", site, re.MULTILINE)} == set()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_site_builds_without_a_warning(tmp_path):
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "docs",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    assert "join" in (tmp_path / "api" / "live.html").read_text()
    assert (tmp_path / "searchindex.js").stat().st_size > 10_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"
