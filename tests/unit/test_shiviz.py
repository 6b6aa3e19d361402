"""ShiViz and GoVector logs: in, out, and round. (tests/zoo/test_audit_round.py has the verdicts.)"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support.real_data import LOGS
from support.traces import Oracle, Run, parse, random_run, record
from whence.errors import ImportFormatError, MisuseError
from whence.foreign.clocks import read_clocks
from whence.foreign.graph import build, find_sends
from whence.foreign.judge import judge
from whence.foreign.model import Log
from whence.foreign.read import read_log
from whence.foreign.shiviz import parse_log
from whence.trace.exporters.shiviz import ExportWindow, export
from whence.trace.reader import open_trace
from whence.trace.schema import Kind, Level, PromisesMade
from whence.trace.writer import TraceWriter

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


def read_text(tmp_path: Path, text: str) -> Log:
    (tmp_path / "x.log").write_text(text)
    return read_log(tmp_path / "x.log")


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


def test_executions_are_kept_apart(tmp_path: Path) -> None:
    log = read_text(tmp_path, f"=== first run ===\n{CLOCK_LAST}\n\n=== second ===\n{CLOCK_LAST}")
    assert log.procs == ["first run/a", "first run/b", "second/a", "second/b"]
    assert [log.text[event] for event in range(len(log))] == ["hello", "got it\nand more"] * 2
    assert judge(log).counts("broken") == {}


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
    ],
)
def test_a_line_that_cannot_be_parsed_is_named(text: str, line: int, reason: str) -> None:
    with pytest.raises(ImportFormatError, match=rf"line {line}:.*{reason}"):
        parse_log("x.log", text, None, None)


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ('x\na {"a":1}\ny\n', [3]),
        ('[a] {"a":1} x\nno clock here\n', [2]),
        ('[a] {"a":1} x\n[c] {"a":1} x\n', [2]),
    ],
)
def test_lines_without_a_clock_are_counted(tmp_path: Path, text: str, left_out: list[int]) -> None:
    assert parse_log("x", text, None, None).unparsed_lines == left_out
    log = read_text(tmp_path, text)
    assert [(note.code, note.count) for note in log.notes] == [("clockless", len(left_out))]


def test_what_is_no_log_at_all(tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match="no line in it has a vector clock"):
        read_text(tmp_path, "once upon a time\n")
    with pytest.raises(ImportFormatError, match="no such file"):
        read_log(tmp_path / "none")
    (tmp_path / "latin").write_bytes(b'ok\nna\xefve\na {"a":1}\n')
    with pytest.raises(ImportFormatError, match="line 2: it is not UTF-8"):
        read_log(tmp_path / "latin")
    with pytest.raises(ImportFormatError, match="not valid"):
        parse_log("x", CLOCK_LAST, "(?<host>", None)
    with pytest.raises(ImportFormatError, match="no group 'clock'"):
        parse_log("x", CLOCK_LAST, "(?<host>x)(?<event>y)", None)


# Clocks


@pytest.mark.parametrize(
    ("log", "found"),
    [
        # b forgets what it knew of a.
        ('a {"a":1}\nx\na {"a":2}\nx\nb {"a":2,"b":1}\ny\nb {"a":1,"b":2}\nz\n', {"clock": 1}),
        # c knows b:1, which knew a:2, but says that it knows only a:1.
        ('a {"a":1}\nx\na {"a":2}\nx\nb {"a":2,"b":1}\ny\nc {"a":1,"b":1,"c":1}\nz\n', {"clock": 1}),
        # two events of a have the same number.
        ('a {"a":1}\nx\na {"a":1}\ny\n', {"clock": 1}),
        # each knows the other's first event at its own first event.
        ('a {"a":1,"b":1}\nx\nb {"a":1,"b":1}\ny\n', {"cycle": 1}),
        # the host's own numbers skip: lines are missing, and that is all.
        ('a {"a":1}\nx\na {"a":3}\ny\n', {}),
    ],
)
def test_clocks_that_cannot_be_true_are_found(tmp_path: Path, log: str, found: dict[str, int]) -> None:
    assert judge(read_text(tmp_path, log)).counts("broken") == found


def test_an_event_that_the_log_lacks_is_a_note(tmp_path: Path) -> None:
    audit = judge(read_text(tmp_path, 'a {"a":1}\nx\nb {"a":2,"b":1}\ny\n'))
    assert (audit.verdict, [note.code for note in audit.notes]) == ("ok", ["clock-gap"])


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


def precedence_of_import(path: Path) -> set[tuple[str, str]]:
    """Pairs of broadcasts (by their texts) of which the first happened before the second."""
    log = read_log(path)
    graph = build(log, find_sends(log), read_clocks(log))
    after: dict[int, set[int]] = {}
    for node in graph.order[::-1].tolist():
        direct = graph.to[graph.first[node] : graph.first[node + 1]].tolist()
        after[node] = set(direct).union(*(after[each] for each in direct))
    text = [each or "" for each in log.text]
    sends = [event for event, each in enumerate(text) if each.startswith("broadcast")]
    return {(text[one], text[two]) for one in sends for two in sends if two in after[one]}


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
        assert precedence_of_import(tmp_path / "out.log") == expected


def test_a_window_keeps_precedence_through_what_it_leaves_out(tmp_path: Path) -> None:
    # a1 -> b1 -> c1; without b1 it must still show that a1 precedes c1.
    run = parse(a="b:a1", b="s:b9 s:b9 d:a1 b:b1", c="s:c9 s:c9 s:c9 s:c9 s:c9 d:b1 b:c1")
    folder = write(tmp_path / "t", run)
    trace = open_trace(folder)
    export(trace, tmp_path / "all.log")
    assert precedence_of_import(tmp_path / "all.log") == {
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


def test_the_window_of_a_node_has_the_broadcasts_that_it_delivers(tmp_path: Path) -> None:
    """Without them the auditor would call all it delivers created, and could judge no order."""
    run = parse(a="b:a1", b="d:a1 b:b1", c="d:b1 d:a1")
    trace = open_trace(write(tmp_path / "t", run))
    for node, events, broken in (("c", 4, {"causal": 1}), ("b", 3, {}), ("a", 1, {})):
        window = ExportWindow(nodes=frozenset([node]))
        assert export(trace, tmp_path / "one.log", window=window).events == events
        assert judge(read_log(tmp_path / "one.log")).counts("broken") == broken


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
    log = read_log(tmp_path / "out.log")
    assert log.procs == ["one/a", "one/b", "two/a", "two/b"]
    assert judge(log).judged[:2] == ["causal", "duplicate"]
