"""The command's frame: lazy imports, errors in two lines, exit codes, suggestions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import typer

from whence.cli import main as cli
from whence.errors import ScenarioError

HEAVY = {
    "pyspark",
    "numba",
    "numpy",
    "pyarrow",
    "pandas",
    "matplotlib",
    "jinja2",
    "msgspec",
    "asyncio",
    "ssl",
}


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    code = ended.value.code
    return code if isinstance(code, int) else int(bool(code))


def imported(*arguments: str) -> set[str]:
    """The top-level packages and whence's own modules that a command line imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "whence", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    modules = {line.rpartition("|")[2].strip() for line in lines}
    assert len(modules) > 50
    return {name if name.startswith("whence") else name.partition(".")[0] for name in modules}


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the command `verify`, replaced by an empty one."""
    module = ModuleType("whence.cli.verify")
    monkeypatch.setitem(sys.modules, "whence.cli.verify", module)
    monkeypatch.delenv("WHENCE_DEBUG", raising=False)
    yield module
    os.environ.pop("WHENCE_DEBUG", None)  # `-v` sets it for the processes that a command starts


def test_help_imports_no_command_and_nothing_heavy() -> None:
    modules = imported("--help")
    assert modules & HEAVY == set()
    assert {name for name in modules if name.startswith("whence")} == {
        "whence",
        "whence.cli",
        "whence.cli.main",
        "whence.errors",
    }


@pytest.mark.parametrize("arguments", [("version",), ("protocols",), ("study", "--help")])
def test_small_commands_import_little(arguments: tuple[str, ...]) -> None:
    assert imported(*arguments) & (HEAVY - {"msgspec", "asyncio", "ssl"}) == set()


def test_help_lists_every_command_and_each_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    listed = capsys.readouterr().out
    for entry in cli.COMMANDS:
        assert entry.name in listed
        assert run(entry.name, "--help") == 0
        assert "Usage: whence " + entry.name in capsys.readouterr().out


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    run()
    shown = capsys.readouterr()
    assert "simulate" in shown.out + shown.err


def test_an_unknown_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("verfy") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Did you mean 'verify'?" in shown.err


def test_an_error_of_ours_is_two_lines_and_exit_code_2(
    stand_in: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        """Fail."""
        raise ScenarioError("scenario field 'nodes'", "[red]0[/red] is too few", "Use 1 or more")

    stand_in.command = command
    assert run("verify") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "error: scenario field 'nodes': [red]0[/red] is too few\nfix: Use 1 or more\n"


@pytest.mark.parametrize("verbose", ["-v", "--verbose", "environment"])
def test_tracebacks_on_request(
    stand_in: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verbose: str
) -> None:
    def command() -> None:
        """Fail."""
        raise ScenarioError("a", "b", "c")

    stand_in.command = command
    if verbose == "environment":
        monkeypatch.setenv("WHENCE_DEBUG", "1")
    assert run(*(["verify"] if verbose == "environment" else [verbose, "verify"])) == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert shown.endswith("error: a: b\nfix: c\n")


@pytest.mark.parametrize(
    ("problem", "code", "said"),
    [
        (FileNotFoundError(2, "No such file or directory", "gone.toml"), 2, "error: gone.toml: No such file"),
        (ModuleNotFoundError("No module", name="pyspark.sql"), 2, "pip install 'whence[spark]'"),
        (ModuleNotFoundError("No module", name="whence.nothing"), 70, "This is a bug in Whence"),
        (ZeroDivisionError("division by zero"), 70, "error: ZeroDivisionError: division by zero"),
        (OSError("odd"), 70, "This is a bug in Whence"),
        (KeyboardInterrupt(), 130, ""),
        (typer.Exit(1), 1, ""),
    ],
)
def test_exit_codes(
    stand_in: ModuleType, capsys: pytest.CaptureFixture[str], problem: BaseException, code: int, said: str
) -> None:
    def command() -> None:
        """Fail."""
        raise problem

    stand_in.command = command
    assert run("verify") == code
    shown = capsys.readouterr()
    assert said in shown.err
    assert ("Traceback" in shown.err) == (code == 70)
    assert shown.out == ""


def test_a_reader_that_leaves_early_is_no_error() -> None:
    """As `whence protocols --json | true`: the pipe is closed before anything is written to it."""
    ends = os.pipe()
    os.close(ends[0])
    with os.fdopen(ends[1], "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "whence", "protocols", "--json"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stderr == ""
    assert done.returncode == 1


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("version", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["python"] == sys.version.split()[0]
    assert run("--version") == 0
    assert capsys.readouterr().out == f"whence {found['whence']}\n"
    assert run("version") == 0
    assert found["platform"] in capsys.readouterr().out


def test_protocols(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("protocols", "--json") == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["fifo"]["promises"]["causal"] is False
    assert found["vector"]["promises"]["causal"] is True
    assert found["vector"]["parameters"] == {"relay": True}
    assert run("protocols") == 0
    assert "relay = True" in capsys.readouterr().out
