"""Every case of the corpus comes out right, in process and by the command; real logs give no alarm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.corpus import CORPUS, CorpusCase, cases, differences
from support.real_data import LOGS
from whence.cli.main import main
from whence.foreign.judge import judge
from whence.foreign.read import read_log
from whence.foreign.report import BROKEN, NOT_JUDGED, PROPERTIES, text_of

CASES = cases()


def test_the_corpus_is_there() -> None:
    assert len(CASES) == 25 + 119  # given, and our own


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_comes_out_right(case: CorpusCase) -> None:
    audit = judge(read_log(case.log, case.mapping), case.name)
    assert differences(audit, case.expect) == []
    assert list(audit.properties) == list(PROPERTIES)
    for each in audit.properties.values():
        if each.status == NOT_JUDGED:
            assert each.why
            assert each.remedy
        else:
            assert each.judged > 0
            assert len(each.findings) == min(each.count, 10)


def whence(*words: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_command_says_the_same(case: CorpusCase, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["verify", case.log, "--map", CORPUS / case.name / "case.toml"]
    assert whence(*words, "--json") == case.expect["exit"]
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == case.expect["verdict"]
    broken = {name: each["count"] for name, each in told["properties"].items() if each["status"] == BROKEN}
    assert broken == case.expect["findings"]
    assert set(case.expect["notes"]) <= {note["code"] for note in told["notes"]}
    whence(*words)
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(case.expect["verdict"])
    assert "judged: " in first
    assert "not judged: " in first


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda path: path.name)
def test_logs_of_real_programs_give_no_alarm(path: Path) -> None:
    """No ids, so that order cannot be judged; clocks can, and are right."""
    audit = judge(read_log(path), path.name)
    assert audit.verdict == "ok", text_of(audit)
    assert {"causal", "fifo"} <= set(audit.not_judged)
    assert "clock" in audit.judged
