"""ShiViz and GoVector logs: in, out, and round."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support.real_data import LOGS
from support.traces import Oracle, Run, parse, random_run, record
from whence.errors import ImportFormatError, MisuseError
from whence.trace.exporters.shiviz import ExportWindow, export
from whence.trace.importers.shiviz import LogEvent, import_log, parse_log, trace_rows
from whence.trace.reader import open_trace
from whence.trace.schema import Kind, Level, PromisesMade
from whence.trace.writer import TraceWriter
from whence.verify.run import verify_trace

REAL = sorted(LOGS.glob("*.log"))


def needs_logs() -> None:
    if not REAL:
        pytest.skip(f"the logs of real programs are not at {LOGS}")


def write(folder: Path, run: Run, name: str = "r") -> Path:
    with TraceWriter(
        folder, run=name, writer="w", protocol="p", parameters={}, promises=PromisesMade(), seed=None,
        nodes=list(run), level=Level.ALL,
    ) as writer:  # fmt: skip
        for event in record(run).table(name).to_pylist():
            rows = zip(event["kind"], event["origin"], event["number"], strict=True)
            for time_us, (kind, origin, number) in enumerate(rows):
                writer.event(
                    event["node"],
                    time_us,
                    Kind(kind),
                    event["names"][origin] if origin >= 0 else None,
                    number,
                )
    return folder


def import_text(tmp_path: Path, text: str, **options: str) -> Path:
    (tmp_path / "x.log").write_text(text)
    import_log(tmp_path / "x.log", tmp_path / "out", **options)
    return tmp_path / "out"


def kinds(folder: Path) -> dict[str, int]:
    (report,) = verify_trace(folder)
    found = {
        kind: getattr(report.counts, kind) for kind in ("causal", "fifo", "duplicate", "created", "malformed")
    }
    return {kind: count for kind, count in found.items() if count}


# Layouts

CLOCK_FIRST = 'a {"a":1}\nhello\nb {"a":1, "b":1}\ngot it\nand more\n'
CLOCK_LAST = 'hello\na {"a":1}\ngot it\nand more\nb {"a":1, "b":1} \n'
ONE_LINE = '[INFO] [x/a] {"a" : 1} hello\n[INFO] [akka://y/b] {"a" : 1, "b" : 1} got it\n'


@pytest.mark.parametrize(
    ("text", "layout"), [(CLOCK_FIRST, "clock first"), (CLOCK_LAST, "clock last"), (ONE_LINE, "one line")]
)
def test_layouts_are_recognised(text: str, layout: str) -> None:
    parsed = parse_log("x", text, None, None)
    assert parsed.layout == layout
    (execution,) = parsed.executions
    first, second = execution.events
    assert (first.host, first.clock) == ("a", {"a": 1})
    assert (second.host, second.clock) == ("b", {"a": 1, "b": 1})
    assert "hello" in first.text
    assert "got it" in second.text
    if layout != "one line":
        assert second.text == "got it\nand more"
    assert parsed.event_lines + parsed.blank_lines + parsed.delimiter_lines == parsed.lines


def test_an_event_without_text_does_not_swallow_the_next() -> None:
    parsed = parse_log("x", 'a {"a":1}\na {"a":2}\ntext\n', None, None)
    assert [(event.text, event.clock["a"]) for event in parsed.executions[0].events] == [("", 1), ("text", 2)]


@pytest.mark.parametrize(
    "text",
    [
        'a {"a":1}\nReceived {"key":"x"}\na {"a":2}\nSent {"key":1}\n',
        'Received {"key":"x"}\na {"a":1}\nSent {"key":1}\na {"a":2}\n',
        'Received x\na {"a":1}\nSent {"key":1}\na {"a":2}\n',
    ],
)
def test_a_text_may_look_like_a_clock(text: str) -> None:
    events = parse_log("x", text, None, None).executions[0].events
    assert [event.clock for event in events] == [{"a": 1}, {"a": 2}]
    assert [event.text.split()[0] for event in events] == ["Received", "Sent"]


def test_a_pattern_of_the_users_as_for_shiviz() -> None:
    text = 'junk\n12:00 a says hello {"a":1}\n12:01 b says got it {"a":1,"b":1}\n'
    parsed = parse_log("x", text, r"(?<date>\S+) (?<host>\w+) says (?<event>.*) (?<clock>{.*})", None)
    assert [(event.host, event.text) for event in parsed.executions[0].events] == [
        ("a", "hello"),
        ("b", "got it"),
    ]
    assert parsed.unparsed_lines == [1]
    assert parsed.event_lines == 2


def test_a_pattern_over_two_lines_knows_its_lines() -> None:
    text = 'hello\na {"a":1}\n\nstray\nmore\na {"a":2}\n'
    parsed = parse_log("x", text, r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})", None)
    assert [(event.text, event.line) for event in parsed.executions[0].events] == [("hello", 2), ("more", 6)]
    assert parsed.unparsed_lines == [4]


def test_executions_become_runs(tmp_path: Path) -> None:
    out = import_text(tmp_path, f"=== first run ===\n{CLOCK_LAST}\n\n=== second ===\n{CLOCK_LAST}")
    trace = open_trace(out)
    assert trace.runs == ["x.1-first-run", "x.2-second"]
    assert [event.detail for event in trace.events("x.2-second") if event.kind is Kind.BROADCAST] == [
        "hello",
        "got it\nand more",
    ]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('a {"a":1}\nx\na {"a":}\ny\n', 3, "not JSON"),
        ('a {"a":1}\nx\na {"a":2\ny\n', 3, "not JSON"),
        ('x\na {"a":1}\ny\na {"a":2\n', 4, "not JSON"),
        ('a {"a":1}\nw\na {"a":1.5}\nx\n', 3, "integers"),
        ('a {"a":1}\nw\na {"a":-1}\nx\n', 3, "integers"),
        ('a {"a":1}\nw\na {"b":1}\nx\n', 3, "own host 'a'"),
        ('a {"a":1}\nw\na {"a":0}\nx\n', 3, "own host 'a'"),
        ('x\na {"a":1}\ny\n', 3, "not followed by a clock"),
        ('[a] {"a":1} x\nno clock here\n', 2, "no vector clock"),
        ('[c] {"a":1} x\n', 1, "no word before its clock"),
    ],
)
def test_a_line_that_cannot_be_parsed_is_named(text: str, line: int, reason: str) -> None:
    with pytest.raises(ImportFormatError, match=rf"line {line}:.*{reason}"):
        parse_log("x.log", text, None, None)


def test_what_is_no_log_at_all(tmp_path: Path) -> None:
    (tmp_path / "prose").write_text("once upon a time\n")
    with pytest.raises(ImportFormatError, match="no line in it has a vector clock"):
        import_log(tmp_path / "prose", tmp_path / "out")
    with pytest.raises(ImportFormatError, match="cannot be read"):
        import_log(tmp_path / "none", tmp_path / "out")
    (tmp_path / "latin").write_bytes(b'ok\nna\xefve\na {"a":1}\n')
    with pytest.raises(ImportFormatError, match="line 2: it is not UTF-8"):
        import_log(tmp_path / "latin", tmp_path / "out")
    with pytest.raises(ImportFormatError, match="not valid"):
        parse_log("x", CLOCK_LAST, "(?<host>", None)
    with pytest.raises(ImportFormatError, match="no group 'clock'"):
        parse_log("x", CLOCK_LAST, "(?<host>x)(?<event>y)", None)
    assert not (tmp_path / "out").exists()


# From clocks to rows


def test_an_event_delivers_what_its_host_has_learned(tmp_path: Path) -> None:
    """c learns of b:1, whose past has a:1: only b:1 is delivered, the rest follows."""
    log = 'a {"a":1}\nx\nb {"a":1,"b":1}\ny\nc {"a":1,"b":1,"c":1}\nz\n'
    out = import_text(tmp_path, log)
    rows = {}
    for event in open_trace(out).events():
        rows.setdefault(event.node, []).append((event.kind.name.lower(), f"{event.origin}:{event.number}"))
    assert rows["a"] == [("broadcast", "a:1"), ("deliver", "a:1")]
    assert rows["c"] == [("deliver", "b:1"), ("broadcast", "c:1"), ("deliver", "c:1")]
    assert kinds(out) == {}


@pytest.mark.parametrize(
    ("log", "found"),
    [
        # b knows a:2, which is not in the log.
        ('a {"a":1}\nx\nb {"a":2,"b":1}\ny\n', {"created": 1}),
        # b forgets what it knew of a.
        ('a {"a":1}\nx\na {"a":2}\nx\nb {"a":2,"b":1}\ny\nb {"a":1,"b":2}\nz\n', {"causal": 1, "fifo": 1}),
        # c knows b:1, which knew a:2, but says that it knows only a:1.
        (
            'a {"a":1}\nx\na {"a":2}\nx\nb {"a":2,"b":1}\ny\nc {"a":1,"b":1,"c":1}\nz\n',
            {"causal": 1},
        ),
        # the same, but it had heard of a:1 before.
        (
            'a {"a":1}\nx\na {"a":2}\nx\nb {"a":2,"b":1}\ny\nc {"a":1,"c":1}\nz\nc {"a":1,"b":1,"c":2}\nz\n',
            {"duplicate": 1},
        ),
        # the host's own numbers skip.
        ('a {"a":1}\nx\na {"a":3}\ny\n', {"malformed": 1}),
        # each knows the other's first event at its own first event.
        ('a {"a":1,"b":1}\nx\nb {"a":1,"b":1}\ny\n', {"malformed": 1}),
    ],
)
def test_clocks_that_cannot_be_true_are_found(tmp_path: Path, log: str, found: dict[str, int]) -> None:
    assert kinds(import_text(tmp_path, log)) == found


def knowledge(rows: list[tuple[str, Kind, str, int]]) -> dict[tuple[str, int], dict[str, int]]:
    """The clock of every message, by following the rows in the order of the log."""
    known: dict[str, dict[str, int]] = {}
    clocks: dict[tuple[str, int], dict[str, int]] = {}
    for node, kind, origin, number in rows:
        mine = known.setdefault(node, {})
        if kind is Kind.BROADCAST:
            mine[node] = number
            clocks[origin, number] = dict(mine)
        else:
            for other, count in clocks[origin, number].items():
                mine[other] = max(mine.get(other, 0), count)
    return clocks


def in_causal_order(events: list[LogEvent]) -> list[LogEvent]:
    """A clock sums to more than those of all events in its past."""
    return sorted(events, key=lambda event: sum(event.clock.values()))


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_logs_keep_their_happened_before(path: Path, tmp_path: Path) -> None:
    needs_logs()
    report = import_log(path, tmp_path)
    assert report.unparsed_lines == []
    assert report.blank_lines + report.delimiter_lines + report.event_lines == report.lines
    parsed = parse_log(path.name, path.read_text(), None, None)
    assert sum(run.events for run in report.runs) == sum(len(each.events) for each in parsed.executions) > 0
    for execution in parsed.executions:
        events = in_causal_order(execution.events)
        rows = [(node, kind, origin, number) for node, _, kind, origin, number, _ in trace_rows(events)]
        clocks = knowledge(rows)
        assert clocks == {(event.host, event.clock[event.host]): event.clock for event in events}
    assert all(report.ok for report in verify_trace(tmp_path))


def test_the_real_logs_are_there_or_skipped() -> None:
    needs_logs()
    assert len(REAL) >= 4


# Out, and round


def test_an_export_is_what_shiviz_reads(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", parse(a="b:a1 d:a1 d:b1", b="d:a1 b:b1 d:b1"))
    report = export(open_trace(folder), tmp_path / "out.log")
    assert report.events == 6
    assert (tmp_path / "out.log").read_text() == (
        "(?<event>.*)\\n(?<host>\\S*) (?<clock>{.*})\n\n"
        'broadcast a:1\na {"a": 1}\n'
        'deliver a:1\na {"a": 2}\n'
        'deliver a:1\nb {"a": 1, "b": 1}\n'
        'broadcast b:1\nb {"a": 1, "b": 2}\n'
        'deliver b:1\nb {"a": 1, "b": 3}\n'
        'deliver b:1\na {"a": 3, "b": 2}\n'
    )


def precedence_of_import(log: Path, out: Path) -> set[tuple[str, str]]:
    """Pairs of messages (by the text of their broadcasts) of which the first happened before the second."""
    import_log(log, out, overwrite=True)
    rows: Run = {}
    text_of: dict[tuple[str | None, int], str] = {}
    for event in open_trace(out).events():
        rows.setdefault(event.node, []).append((event.kind, event.origin, event.number))
        if event.kind is Kind.BROADCAST:
            text_of[event.origin, event.number] = event.detail or ""
    oracle = Oracle(rows, list(rows))
    return {
        (text_of[before], text_of[after])
        for after in text_of
        for before in oracle.past(after)
        if text_of[before].startswith("broadcast") and text_of[after].startswith("broadcast")
    }


def test_export_and_import_keep_happened_before(tmp_path: Path) -> None:
    rng = random.Random(3)
    checked = 0
    while checked < 40:
        run, members = random_run(rng)
        oracle = Oracle(run, members)
        if not oracle.begins or oracle.malformed or oracle.duplicate:
            continue
        checked += 1
        folder = write(tmp_path / f"t{checked}", run)
        export(open_trace(folder), tmp_path / "out.log")
        expected = {
            (f"broadcast {before[0]}:{before[1]}", f"broadcast {after[0]}:{after[1]}")
            for after in oracle.begins
            for before in oracle.past(after)
        }
        assert precedence_of_import(tmp_path / "out.log", tmp_path / "back") == expected


def test_a_window_keeps_precedence_through_what_it_leaves_out(tmp_path: Path) -> None:
    # a1 -> b1 -> c1; without b1 it must still show that a1 precedes c1.
    run = parse(a="b:a1", b="s:b9 s:b9 d:a1 b:b1", c="s:c9 s:c9 s:c9 s:c9 s:c9 d:b1 b:c1")
    folder = write(tmp_path / "t", run)
    trace = open_trace(folder)
    export(trace, tmp_path / "all.log")
    assert precedence_of_import(tmp_path / "all.log", tmp_path / "back") == {
        ("broadcast a:1", "broadcast b:1"),
        ("broadcast b:1", "broadcast c:1"),
        ("broadcast a:1", "broadcast c:1"),
    }
    assert (
        export(trace, tmp_path / "part.log", window=ExportWindow(1, 1)).events == 2
    )  # b1: broadcast, delivered at c
    text = (tmp_path / "part.log").read_text()
    assert "a:1" not in text
    assert 'deliver b:1\nc {"b": 1, "c": 1}' in text
    with pytest.raises(MisuseError, match="window"):
        export(trace, tmp_path / "none.log", window=ExportWindow(0, 0))


def test_packets_carry_knowledge_too(tmp_path: Path) -> None:
    with TraceWriter(
        tmp_path / "t", run="r", writer="w", protocol="p", parameters={}, promises=PromisesMade(), seed=None,
        nodes=["a", "b"], level=Level.ALL,
    ) as writer:  # fmt: skip
        writer.event(
            "b", 9, Kind.RECEIVE, "a", 1, peer="a"
        )  # twice, though sent once: the network doubled it
        writer.event("b", 9, Kind.RECEIVE, "a", 1, peer="a")
        writer.event("a", 1, Kind.BROADCAST, "a", 1)
        writer.event("a", 2, Kind.SEND, "a", 1, peer="b")
    export(open_trace(tmp_path / "t"), tmp_path / "out.log", packets=True)
    lines = (tmp_path / "out.log").read_text().splitlines()
    assert lines[2:] == [
        "broadcast a:1", 'a {"a": 1}', "send a:1 to b", 'a {"a": 2}',
        "receive a:1 from a", 'b {"a": 2, "b": 1}', "receive a:1 from a", 'b {"a": 2, "b": 2}',
    ]  # fmt: skip


def test_an_export_of_impossible_deliveries_says_so_and_ends(tmp_path: Path) -> None:
    run = parse(a="d:b1 b:a1 d:z1", b="d:a1 b:b1")
    export(open_trace(write(tmp_path / "t", run)), tmp_path / "out.log")
    text = (tmp_path / "out.log").read_text()
    assert text.count("had not broadcast it") == 2
    assert "deliver z:1 (its origin had not broadcast it)" in text


def test_several_runs_in_one_file_and_back(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / "t" / f"run={name}", parse(a="b:a1 d:a1", b="d:a1"), name)
    export(open_trace(tmp_path / "t"), tmp_path / "out.log")
    report = import_log(tmp_path / "out.log", tmp_path / "back")
    assert [run.run for run in report.runs] == ["out.1-one", "out.2-two"]
    assert report.unparsed_lines == []
