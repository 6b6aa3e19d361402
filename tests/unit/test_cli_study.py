"""`whence study` as far as it needs no Spark; tests/spark/test_tour.py runs one."""

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
    assert next(iter(found["vcube"]["scales"])) == "demo"
    assert run("list") == 0
    shown = capsys.readouterr().out
    for scale in found["vcube"]["scales"]:
        assert scale in shown


def test_help_of_a_study_comes_from_the_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("vcube", "--help") == 0
    shown = capsys.readouterr().out
    assert "Causal aggregation broadcast on VCube" in shown
    assert "out/study-vcube" in shown


def test_unknown_studies_and_scales_get_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("vcub") == 2
    assert "Did you mean 'vcube'?" in capsys.readouterr().err
    assert run("vcube", "--scale", "papr") == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: scale 'papr' of study 'vcube': there is none of that name",
        "fix: Did you mean 'paper'? Choose from: demo, paper, tiny",
    ]
