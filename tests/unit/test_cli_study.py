"""`whence study` as far as it needs no Spark; tests/spark/test_study_demo.py runs one."""

from __future__ import annotations

import json

import pytest

from whence.cli import main as cli


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["study", *arguments])
    code = ended.value.code
    return code if isinstance(code, int) else int(bool(code))


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--json") == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert next(iter(found["demo"]["scales"])) == "demo"
    assert run("list") == 0
    shown = capsys.readouterr().out
    for scale in found["demo"]["scales"]:
        assert scale in shown


def test_help_of_a_study_comes_from_the_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("demo", "--help") == 0
    shown = capsys.readouterr().out
    assert "Where FIFO breaks causality" in shown
    assert "out/study-demo" in shown


def test_unknown_studies_and_scales_get_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("dem") == 2
    assert "Did you mean 'demo'?" in capsys.readouterr().err
    assert run("demo", "--scale", "ful") == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: scale 'ful' of study 'demo': there is none of that name",
        "fix: Did you mean 'full'? Choose from: demo, full, tiny",
    ]
