"""The wheel alone in a fresh environment, for every Python at hand: the first message, and the tutorials."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import find_python
from unit.terminals import perform

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def run(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def built(folder: Path) -> Path:
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    return next(folder.glob("whence-*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("dist"))


def environment(version: str, wheel: Path, extras: str, folder: Path) -> Path:
    """An environment with the wheel and nothing else, and its Python."""
    found = find_python(version)
    if found is None:
        pytest.skip(f"Python {version} is not on this machine; `make python` fetches 3.14")
    run(found, "-m", "venv", "--without-pip", folder / "venv")  # the fetched one has no pip to put in
    python = folder / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", f"{wheel}{extras}")
    return python


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_message_of_the_readme(version: str, wheel: Path, tmp_path: Path) -> None:
    python = environment(version, wheel, "", tmp_path)
    perform((ROOT / "README.md").read_text(), tmp_path, python)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("page", "extras"),
    [
        ("tutorial-chat.md", "[trace,tls]"),
        ("tutorial-protocol.md", "[lab]"),
        ("tutorial-audit.md", "[lab]"),
    ],
)
def test_a_tutorial_from_its_text_alone(
    version: str, page: str, extras: str, wheel: Path, tmp_path: Path
) -> None:
    text = (ROOT / "docs" / page).read_text()
    assert extras in text.replace('"', ""), f"{page} names other extras than {extras}"
    perform(text, tmp_path, environment(version, wheel, extras, tmp_path))


def test_an_interpreter_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    tool = tmp_path / "tools" / "python.py"  # beside it goes what it fetches
    tool.parent.mkdir()
    tool.write_text((ROOT / "tools" / "python.py").read_text())
    module = tmp_path / "github.com" / "kluctl" / "go-embed-python" / "@v"
    module.mkdir(parents=True)
    (module / "v0.0.0-3.14.6-20260610-1.zip").write_bytes(b"something else")
    environment = {**os.environ, "WHENCE_GOPROXY": tmp_path.as_uri()}
    done = subprocess.run(
        [sys.executable, tool], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "SHA-256" in done.stderr
    assert list((tmp_path / "out").rglob("*.*")) == []


def description(wheel: Path, folder: Path) -> str:
    run(sys.executable, "-m", "zipfile", "-e", wheel, folder)
    return next(folder.glob("*.dist-info/METADATA")).read_text()


def test_a_wheel_without_a_home_has_no_address_of_one(wheel: Path, tmp_path: Path) -> None:
    text = description(wheel, tmp_path)
    assert "Project-URL" not in text
    assert re.findall(r"\]\(([^)#]+)\)", text) == []


def test_links_of_the_readme_work_on_a_package_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = "https://forge.example/us/whence"
    monkeypatch.setenv("WHENCE_HOME", home)
    text = description(built(tmp_path), tmp_path)
    assert f"Project-URL: Homepage, {home}" in text
    targets = re.findall(r"\]\(([^)#]+)\)", text)
    assert len(targets) > 20
    assert [target for target in targets if not target.startswith(home)] == []
