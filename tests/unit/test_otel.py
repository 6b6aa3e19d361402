"""OpenTelemetry spans become traces, and what is wrong with them becomes findings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.spans import request, shop, span, write
from whence.cli.main import main
from whence.errors import ImportFormatError
from whence.trace.importers.otel import import_spans, read_spans
from whence.trace.reader import open_trace
from whence.verify.run import verify_trace


def test_parents_and_links_are_predecessors(tmp_path: Path) -> None:
    spans, requests = read_spans(shop(tmp_path / "spans.json"))
    assert requests == 4
    assert {each.id[1]: [id_ for _, id_ in each.depends_on] for each in spans} == {
        "a": [], "b": ["a"], "c": ["b"], "m": ["c"], "p": [], "q": ["gone"],
    }  # fmt: skip
    assert {each.service for each in spans} == {"shop", "stock", "mail", "bank"}


def test_linked_traces_are_one_run(tmp_path: Path) -> None:
    report = import_spans(shop(tmp_path / "spans.json"), tmp_path / "out")
    assert (report.spans, report.repeated, report.absent) == (6, 0, 1)
    assert [(run.run, run.hosts, run.events) for run in report.runs] == [("t1", 3, 4), ("t3", 1, 2)]
    good, partial = verify_trace(open_trace(tmp_path / "out"))
    assert good.ok
    assert good.broadcasts == 4
    assert good.deliveries == 4 + 2  # each span at its service; b at stock, c at mail
    assert (partial.ok, partial.counts.created) == (False, 1)
    assert partial.findings[0].message == "unknown:1"


def test_what_overtook_is_a_finding(tmp_path: Path) -> None:
    """Service b serves the second call of a before the first, and starts a child before its parent."""
    path = write(
        tmp_path / "spans.json",
        request("a", span("t", "1", 10), span("t", "2", 20)),
        request("b", span("t", "y", 30, "2"), span("t", "x", 40, "1"), span("t", "z", 25, "y")),
    )
    import_spans(path, tmp_path / "out")
    (report,) = verify_trace(open_trace(tmp_path / "out"))
    assert report.counts.causal == 1
    assert report.counts.malformed == 1


def test_a_span_that_is_exported_twice_counts_once(tmp_path: Path) -> None:
    twice = request("a", span("t", "1", 10))
    report = import_spans(write(tmp_path / "spans.json", twice, twice), tmp_path / "out")
    assert (report.spans, report.repeated) == (1, 1)


def test_one_document_over_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "spans.json"
    path.write_text(json.dumps(request("a", span("t", "1", 10)), indent=2))
    assert len(read_spans(path)[0]) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not an OTLP export request"),
        ("host {}", "not an OTLP export request"),
        ('{"resourceSpans": []}', "no span was found"),
        ('{"resourceSpans": []}\n{"resourceSpans": [{"scopeSpans": [{"spans": [{}]}]}]}', "line 2"),
        ('{"resourceSpans": 1}', "Expected `array`"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "spans.json"
    path.write_text(text)
    with pytest.raises(ImportFormatError) as raised:
        read_spans(path)
    assert words in str(raised.value)


def whence(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return int(left.value.code or 0)


def test_import_verify_and_export_the_witness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(
        tmp_path / "spans.json",
        request("a", span("t", "1", 10), span("t", "2", 20), span("t", "3", 22)),
        request("b", span("t", "y", 30, "2"), span("t", "x", 40, "1")),
    )
    assert whence("trace", "import", path, tmp_path / "out", "--format", "otel") == 0
    assert "5 spans in 1 run" in capsys.readouterr().out
    assert whence("verify", tmp_path / "out") == 1
    log = tmp_path / "witness.log"
    assert whence("trace", "export", tmp_path / "out", log, "--findings", "1") == 0
    text = log.read_text()
    assert "deliver a:1" in text
    assert "broadcast a:2" in text
    assert "a:3" not in text  # no part of the witness
    assert (
        whence("trace", "export", tmp_path / "out", log, "--since-us", 20, "--until-us", 30, "--node", "a")
        == 0
    )
    assert [line.split()[:2] for line in log.read_text().splitlines()[2::2]] == [
        ["broadcast", "a:2"], ["deliver", "a:2"], ["broadcast", "a:3"], ["deliver", "a:3"],
    ]  # fmt: skip


def test_no_findings_to_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import_spans(write(tmp_path / "spans.json", request("a", span("t", "1", 10))), tmp_path / "out")
    assert whence("trace", "export", tmp_path / "out", tmp_path / "log", "--findings", 1) == 2
    assert "nothing is wrong" in capsys.readouterr().err
    assert whence("trace", "import", "x", tmp_path / "out", "--format", "zipkin") == 2
    assert "shiviz, govector, otel" in capsys.readouterr().err
