"""`whence verify` and `whence trace`: exit codes, words for people, JSON for machines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.traces import Run, parse
from whence.cli.main import main
from whence.errors import TraceError
from whence.trace.schema import Kind, Level, PromisesMade
from whence.trace.writer import TraceWriter

GOOD = parse(a="b:a1 d:a1 d:b1", b="d:a1 b:b1 d:b1")
BAD = parse(a="b:a1 d:a1 d:b1", b="d:a1 b:b1 d:b1", c="d:b1 d:a1")
SHORT = parse(a="b:a1 d:a1", b="s:a1")


def writer_of(folder: Path, events: Run, name: str = "w", **options: Any) -> TraceWriter:
    """A writer that has recorded a run, and has not ended."""
    about: dict[str, Any] = {"run": "r", "level": Level.ALL, "nodes": list(events), **options}
    writer = TraceWriter(
        folder, writer=name, protocol="p", parameters={}, promises=PromisesMade(), seed=None, **about
    )
    for node, rows in events.items():
        for time_us, (kind, origin, number) in enumerate(rows):
            writer.event(node, time_us, kind, origin, number)
    return writer


def write(folder: Path, run: Run, name: str = "r", level: Level = Level.ALL) -> Path:
    writer_of(folder, run, run=name, level=level).close()
    return folder


def whence(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_good_trace_exits_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert whence("verify", write(tmp_path, GOOD)) == 0
    assert "ok: 1 of 1" in capsys.readouterr().out


def test_a_bad_trace_exits_1_and_shows_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert whence("verify", write(tmp_path, BAD)) == 1
    out = capsys.readouterr().out
    for words in (
        "BROKEN: 0 of 1",
        "causal: node c, message a:1 at seq 1",
        "c delivers b:1 (seq 0), and only then",
        "b delivers a:1 (seq 0)",
    ):
        assert words in out


def test_an_unreadable_trace_exits_2_in_two_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert whence("verify", tmp_path) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert "\nfix: " in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("witnesses", [1, 10])
def test_what_a_killed_writer_took_along_is_not_judged(
    witnesses: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = writer_of(tmp_path, parse(a="b:a1 d:a1"), "a", loses=True)
    killed.flush()
    killed.event("a", 5, Kind.BROADCAST, "a", 2)
    others = parse(b="d:a1 d:a2 b:b1 x:a3", c="d:a1 d:a2 d:b1")
    writer_of(tmp_path, others, "bc").close()
    limit = ("--witnesses", witnesses)
    assert whence("verify", tmp_path, *limit) == 3
    told = capsys.readouterr()
    assert "unfinished: 1 of 1 run(s) keep what is demanded" in told.out
    assert "a did not end its trace: 3 deliveries or expiries" in told.err
    # Of a writer that has ended there is nothing to be lost, even if it is named after many that are excused.
    writer_of(tmp_path, parse(d="d:a1 d:a2 d:b1 d:b2"), "d").close()
    assert whence("verify", tmp_path, *limit) == 1
    told = capsys.readouterr()
    assert "created: node d, message b:2" in told.out
    assert "message a:2" not in told.out
    killed.close()
    capsys.readouterr()
    writer_of(tmp_path, {}, "d", overwrite=True).close()
    assert whence("verify", tmp_path, *limit) == 1, "it has ended now, and never said a:3"


def test_a_guest_does_not_write_over_what_another_left(tmp_path: Path) -> None:
    writer_of(tmp_path, GOOD, loses=True).flush()
    with pytest.raises(TraceError, match="is already there"):
        writer_of(tmp_path, GOOD, loses=True)


def test_json_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert whence("verify", write(tmp_path, BAD), "--json") == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert report["counts"]["causal"] == 1
    assert report["findings"][0]["chain"][0] == {
        "event": "broadcast",
        "message": "a:1",
        "node": "a",
        "seq": 0,
    }


def test_completeness_can_be_demanded_and_dropped(tmp_path: Path) -> None:
    folder = write(tmp_path, SHORT)
    assert whence("verify", folder) == 0
    assert whence("verify", folder, "--complete") == 1
    assert whence("verify", folder, "--no-complete") == 0


def test_witnesses_limits_what_is_spelled_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, parse(a="b:a1 d:a1 d:a1 d:a1 d:a1"))
    assert whence("verify", folder, "--witnesses", 2) == 1
    out = capsys.readouterr().out
    assert out.count("delivered before, at seq 1") == 2
    assert "duplicate 3" in out


def test_little_memory_gives_the_same_answer_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = " ".join(f"b:a{n} d:a{n}" for n in range(1, 601))
    ends = " ".join(f"d:a{n}" for n in [*range(2, 601), 1])
    folder = write(tmp_path, parse(a=rows, b=ends))
    assert whence("verify", folder, "--json") == 1
    whole = capsys.readouterr()
    assert whence("verify", folder, "--json", "--memory", "60K") == 1
    parts = capsys.readouterr()
    assert parts.out == whole.out
    assert "judged in parts" in parts.err
    assert "judged in parts" not in whole.err
    assert whence("verify", folder, "--memory", "1K") == 2
    assert "--memory" in capsys.readouterr().err
    assert whence("verify", folder, "--memory", "much") == 2
    assert "8G" in capsys.readouterr().err
    assert whence("verify", folder, "--no-spark", "--blocks", 2) == 2


def test_long_work_shows_its_progress_and_speed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whence.cli.verify.LONG_EVENTS", 1)
    assert whence("verify", write(tmp_path, GOOD)) == 0
    err = capsys.readouterr().err
    assert "reading" in err
    assert "6 events in " in err
    assert "events/s" in err


def test_one_run_of_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "run=good", GOOD, "good")
    write(tmp_path / "run=bad", BAD, "bad")
    assert whence("verify", tmp_path) == 1
    assert "BROKEN: 1 of 2" in capsys.readouterr().out
    assert whence("verify", tmp_path, "--run", "good") == 0
    assert whence("verify", tmp_path, "--run", "none") == 2
    assert "bad, good" in capsys.readouterr().err


def test_many_runs_show_only_those_that_broke(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(41):
        write(tmp_path / f"run=g{number}", GOOD, f"g{number}")
    write(tmp_path / "run=bad", BAD, "bad")
    assert whence("verify", tmp_path) == 1
    out = capsys.readouterr().out
    assert "BROKEN: 41 of 42" in out
    assert "g17" not in out


def test_measures_alone_cannot_be_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert whence("verify", write(tmp_path, GOOD, level=Level.MEASURES)) == 2
    assert "measures" in capsys.readouterr().err


def test_a_small_trace_needs_neither_numba_nor_spark_nor_pandas(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom whence.cli.main import main\n"
        "try:\n    main(['verify', sys.argv[1]])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('numba', 'pyspark', 'pandas') if name in sys.modules])"
    )
    folder = write(tmp_path, GOOD)
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_info_check_and_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, GOOD)
    assert whence("trace", "info", folder) == 0
    assert "deliver" not in capsys.readouterr().out
    assert whence("trace", "info", folder, "--json") == 0
    (manifest,) = json.loads(capsys.readouterr().out)
    assert manifest["events"] == 6
    assert whence("trace", "check", folder) == 0
    assert f"6 events, {manifest['trace_hash']}" in " ".join(capsys.readouterr().out.split())
    assert whence("trace", "events", folder, "--json", "--node", "b", "--limit", 2) == 0
    events = json.loads(capsys.readouterr().out)
    assert [(event["seq"], event["kind"], event["origin"]) for event in events] == [
        (0, "deliver", "a"),
        (1, "broadcast", "b"),
    ]
    assert whence("trace", "events", folder) == 0
    assert "broadcast" in capsys.readouterr().out


def test_export_and_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "t", GOOD)
    log = tmp_path / "out.log"
    assert whence("trace", "export", folder, log, "--messages", 1) == 0
    assert "b:1" not in log.read_text()
    assert whence("trace", "export", folder, log) == 0
    capsys.readouterr()
    assert whence("verify", log, "--json") == 0
    assert json.loads(capsys.readouterr().out)["events"] == 6
