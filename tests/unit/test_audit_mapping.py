"""Mapping files, presets, tables, histories, contracts, and the draft of a mapping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcap.writer import Writer

from whence.cli.main import main
from whence.errors import ConfigError, ImportFormatError, MisuseError
from whence.foreign.guess import guess
from whence.foreign.judge import judge
from whence.foreign.mapping import PRESETS, load_mapping, mapping_of
from whence.foreign.model import Contract
from whence.foreign.read import format_of, read_log
from whence.foreign.report import Audit

PLAIN = {"process": "node", "kind": {"column": "kind"}, "message": "message", "time": "time"}


def audited(tmp_path: Path, text: str, document: dict[str, Any], name: str = "log.csv") -> Audit:
    (tmp_path / name).write_text(text)
    return judge(read_log(tmp_path / name, mapping_of(document)))


def plain(tmp_path: Path, *rows: str, event: dict[str, Any] | None = None, **contract: Any) -> Audit:
    text = "\n".join(["node,kind,message,time,extra", *rows]) + "\n"
    document = {"log": {"format": "csv"}, "event": {**PLAIN, **(event or {})}, "contract": contract}
    return audited(tmp_path, text, document)


def codes(audit: Audit) -> set[str]:
    return {note.code for note in audit.notes}


# Mappings


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_loads(name: str) -> None:
    assert load_mapping(name).preset == name


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"lgo": {}}, "table 'lgo' is unknown"),
        ({"log": {"fromat": "csv"}}, "key 'fromat' is unknown"),
        ({"log": {"format": "xml"}}, "'xml' is not one"),
        ({"log": {"preset": "pulsar"}}, "'pulsar' is not one"),
        ({"log": {"time_unit": "minutes"}}, "'minutes' is not one"),
        ({"event": {"proces": "x"}}, "field 'proces' is unknown"),
        ({"event": {"process": 7}}, "7 is not an expression"),
        ({"event": {"process": "{}"}}, "has no column"),
        ({"event": {"kind": {"send": "x"}}}, "it has no `column`"),
        ({"event": {"kind": {"column": "x", "sned": "y"}}}, "key 'sned' is unknown"),
        ({"lines": [{"pattern": "("}]}, "unterminated|missing"),
        ({"lines": [{"pattern": "x", "kind": "shout"}]}, "'shout' is not one"),
        ({"contract": {"ordre": "causal"}}, "key 'ordre' is unknown"),
        ({"contract": {"max_skew": "soon"}}, "not a time"),
    ],
)
def test_a_wrong_mapping_is_refused_by_name(document: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        mapping_of(document)


def test_a_contract_of_unknown_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="'total' is not one"):
        plain(tmp_path, "a,send,x,1,", order="total")


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match="no column 'sender', which `channel` names"):
        plain(tmp_path, "a,send,x,1,", event={"channel": "sender"})


def test_lists_do_not_collide(tmp_path: Path) -> None:
    """("a |", "b") is another session than ("a", "| b")."""
    document = {"log": {"format": "jsonl"}, "event": {"message": "m", "session": ["x", "y"]}}
    rows = [{"m": "1", "x": "a |", "y": "b"}, {"m": "2", "x": "a", "y": "| b"}, {"m": "3", "x": "a"}]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(set(read_log(tmp_path / "x.jsonl", mapping_of(document)).scopes)) == 3


# What is read


def test_numbers_in_texts_are_ordered_as_numbers(tmp_path: Path) -> None:
    event = {"send_order": "extra", "channel": "node"}
    assert plain(tmp_path, "a,deliver,x,1,9", "a,deliver,y,2,10", event=event).counts("broken") == {}
    broken = plain(tmp_path, "a,deliver,x,1,10", "a,deliver,y,2,9", event=event)
    assert broken.counts("broken") == {"causal": 1, "fifo": 1}


def test_large_numbers_and_decimals_are_exact(tmp_path: Path) -> None:
    event = {"order": "extra"}
    rows = [
        "s,send,x,1,1.5",
        "s,send,y,1,1.25",
        "r,deliver,x,2,9007199254740993",
        "r,deliver,y,2,9007199254740992",
    ]
    audit = plain(tmp_path, *rows, event=event)
    assert audit.order == "seq"
    assert audit.counts("broken") == {}
    assert "swapped" in codes(audit)


def test_a_weaker_order_that_disagrees_is_a_note(tmp_path: Path) -> None:
    audit = plain(tmp_path, "s,send,x,5,", "s,send,y,4,", "r,deliver,x,6,", "r,deliver,y,7,")
    assert (audit.verdict, "swapped" in codes(audit)) == ("ok", True)


def test_unknown_kinds_and_missing_places_are_counted(tmp_path: Path) -> None:
    audit = plain(tmp_path, "a,send,x,1,1", "a,shout,y,2,", event={"order": "extra"})
    assert {"unknown-kind", "order"} <= codes(audit)


def test_intervals_that_overlap_are_in_no_order(tmp_path: Path) -> None:
    event = {"end": "extra"}
    sends = ["s,send,x,1,2", "s,send,y,3,4"]
    assert plain(tmp_path, *sends, "r,deliver,y,5,6", "r,deliver,x,7,8", event=event).counts("broken") == {
        "fifo": 1
    }
    assert plain(tmp_path, *sends, "r,deliver,y,5,9", "r,deliver,x,7,8", event=event).counts("broken") == {}
    together = ["s,send,x,1,4", "s,send,y,3,4", "r,deliver,y,5,6", "r,deliver,x,7,8"]
    assert plain(tmp_path, *together, event=event).counts("broken") == {}


def test_threads_of_a_process_are_not_ordered(tmp_path: Path) -> None:
    event = {"context": "extra"}
    sends = ["s,send,x,1,s", "s,send,y,2,s"]
    one = plain(tmp_path, *sends, "r,deliver,y,3,r/1", "r,deliver,x,4,r/1", event=event)
    assert one.counts("broken") == {"causal": 1, "fifo": 1}
    two = plain(tmp_path, *sends, "r,deliver,y,3,r/1", "r,deliver,x,4,r/2", event=event)
    assert two.counts("broken") == {}
    session = plain(
        tmp_path, *sends, "r,deliver,y,3,r/1", "r,deliver,x,4,r/2", event={**event, "session": "node"}
    )
    assert session.counts("broken") == {}
    assert "scope-split" in codes(session)


def test_lines_by_patterns(tmp_path: Path) -> None:
    document = {
        "log": {"format": "lines", "pattern": r"^(?P<time>\d+) (?P<host>\w+):", "time_unit": "ms"},
        "lines": [
            {"pattern": r"posting (?P<topic>\w+) no (?P<n>\d+)", "kind": "send", "message": "{topic}/{n}"},
            {"pattern": r"shown (?P<msg>\S+)", "kind": "deliver"},
        ],
    }
    text = "1 a: posting x no 1\n2 a: posting x no 2\nnoise\n3 b: shown x/2\n4 b: shown x/1\n5 b: sleeps\n"
    audit = audited(tmp_path, text, document)
    assert audit.counts("broken") == {"causal": 1, "fifo": 1}
    assert next(note.count for note in audit.notes if note.code == "unmatched") == 2


def test_clocks_in_a_table(tmp_path: Path) -> None:
    rows = [
        {"h": "a", "k": "send", "m": "x", "vc": {"a": 1}}, {"h": "a", "k": "send", "m": "y", "vc": {"a": 2}},
        {"h": "b", "k": "deliver", "m": "y", "vc": {"a": 2, "b": 1}},
        {"h": "b", "k": "deliver", "m": "x", "vc": {"a": 1, "b": 2}},
    ]  # fmt: skip
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    event = {"process": "h", "kind": "k", "message": "m", "clock": "vc"}
    audit = judge(read_log(tmp_path / "x.jsonl", mapping_of({"log": {"format": "jsonl"}, "event": event})))
    assert audit.counts("broken") == {"causal": 1, "fifo": 1, "clock": 1}


def test_acknowledgements_are_deliveries_where_there_are_no_others(tmp_path: Path) -> None:
    rows = [{"stream": "s", "consumer": "c", "client": "x", "stream_seq": n, "kind": "ack"} for n in (2, 1)]
    document = {"log": {"preset": "nats", "format": "jsonl"}}
    text = "".join(json.dumps(row) + "\n" for row in rows)
    assert audited(tmp_path, text, document, "a.jsonl").counts("broken") == {"fifo": 1}
    text += json.dumps(rows[0] | {"kind": "deliver"}) + "\n"
    assert audited(tmp_path, text, document, "a.jsonl").counts("broken") == {}


def test_a_session_column_that_is_missing_is_said(tmp_path: Path) -> None:
    rows = [{"topic": "t", "partition": 0, "offset": n, "group": "g", "consumer": "c"} for n in (1, 2)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    audit = audited(tmp_path, text, {"log": {"preset": "kafka", "format": "jsonl"}}, "k.jsonl")
    assert (audit.verdict, "session" in codes(audit)) == ("ok", True)


def test_a_recording_of_ros(tmp_path: Path) -> None:
    with (tmp_path / "bag.mcap").open("wb") as stream:
        writer = Writer(stream)
        writer.start()
        known = writer.register_channel("/scan", "json", 0, {"callerid": "/lidar"})
        unknown = writer.register_channel("/odom", "json", 0)
        for at, number in enumerate((1, 3, 2, 4), 1):
            writer.add_message(known, at, b"{}", at, number)
            writer.add_message(unknown, at, b"{}", at, number)
        writer.finish()
    audit = judge(read_log(tmp_path / "bag.mcap"))
    assert audit.counts("broken") == {"fifo": 1}  # who published on /odom is not known, so it is not judged
    (tmp_path / "bad.mcap").write_bytes(b"\x89MCAP0\r\nrubbish")
    with pytest.raises(ImportFormatError, match="not an MCAP"):
        read_log(tmp_path / "bad.mcap")


# Histories


def history(tmp_path: Path, *rows: dict[str, Any]) -> Audit:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return audited(tmp_path, text, {"log": {"format": "history"}}, "h.jsonl")


def op(process: str, f: str, value: Any, key: str = "x", **more: Any) -> dict[str, Any]:
    return {"process": process, "f": f, "key": key, "value": value, **more}


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([op("a", "write", 1), op("b", "read", 1), op("b", "read", None)], {"reads": 1}),  # initial, too late
        ([op("a", "read", 7)], {"reads": 1}),  # out of thin air
        ([op("a", "read", 7), op("b", "write", 7, type="info")], {}),  # it may have happened
        ([op("a", "write", 7, type="fail"), op("b", "read", 7)], {"reads": 1}),
        ([op("a", "write", 1), op("a", "write", 2), op("b", "read", 2), op("b", "read", 1)], {"reads": 1}),
        (
            [op("a", "write", 1), op("c", "write", 2), op("b", "read", 2), op("b", "read", 1)],
            {},
        ),  # concurrent
        ([op("a", "write", 1), op("b", "read", 1), op("b", "write", 2), op("a", "read", 2)], {}),
    ],
)
def test_bad_patterns_of_registers(tmp_path: Path, rows: list[dict[str, Any]], found: dict[str, int]) -> None:
    assert history(tmp_path, *rows).counts("broken") == found


def test_values_that_are_not_unique_are_not_judged(tmp_path: Path) -> None:
    audit = history(tmp_path, op("a", "write", 1), op("b", "write", 1), op("a", "read", 1))
    assert "reads" in audit.not_judged


# Contracts


def test_lost_and_stuck_name_who_and_what(tmp_path: Path) -> None:
    rows = [
        "s,send,x,1,",
        "s,send,y,2,",
        "r,receive,y,3,",
        "q,deliver,x,3,",
        "q,deliver,y,4,",
        "r,deliver,x,5,",
    ]
    audit = plain(tmp_path, *rows, complete=["sends", "deliveries"], members=["q", "r", "s"])
    assert audit.counts("broken") == {"lost": 1, "stuck": 1}
    assert audit.properties["lost"].findings[0].text == "r never delivers y"
    crashed = plain(tmp_path, *rows, "r,crash,,6,", complete=["sends", "deliveries"], members=["q", "r"])
    assert crashed.counts("broken") == {}
    once = plain(tmp_path, *rows, complete=["sends", "deliveries"], members=["r"], delivery="at-most-once")
    assert once.counts("seen") == {"lost": 1, "stuck": 1}


def test_gaps_of_ranks_are_lost(tmp_path: Path) -> None:
    event = {"send_order": "extra", "channel": "kind"}
    rows = ["r,deliver,x,1,1", "r,deliver,z,2,3", "q,deliver,y,2,2"]
    audit = plain(tmp_path, *rows, event=event, complete=["ranks", "deliveries"], members=["r"])
    assert audit.counts("broken") == {"lost": 1}


def test_a_stated_contract_that_cannot_be_judged_is_unknown(tmp_path: Path) -> None:
    rows = ["s,send,x,1,", "s,send,y,2,"]
    assert plain(tmp_path, *rows).verdict == "ok"
    for stated in (
        {"order": "causal"},
        {"order": "fifo"},
        {"delivery": "exactly-once"},
        {"require": ["clock"]},
    ):
        audit = plain(tmp_path, *rows, **stated)
        assert (audit.verdict, audit.exit) == ("unknown", 3), stated
    assert plain(tmp_path, *rows, order="none").verdict == "ok"


def test_clocks_that_are_too_far_apart(tmp_path: Path) -> None:
    rows = ["a,send,x,0,", "b,deliver,x,9,", "b,send,y,10,", "a,deliver,y,2,"]
    assert plain(tmp_path, *rows).counts("broken") == {}
    assert plain(tmp_path, *rows, max_skew="1s").counts("broken") == {"time": 1}
    assert plain(tmp_path, *rows, max_skew="20s").counts("broken") == {}


def test_duplicates_count_under_exactly_once_alone(tmp_path: Path) -> None:
    rows = ["s,send,x,1,", "r,deliver,x,2,", "r,deliver,x,3,"]
    assert plain(tmp_path, *rows).counts("seen") == {"duplicate": 1}
    assert plain(tmp_path, *rows, delivery="exactly-once").counts("broken") == {"duplicate": 1}


# Formats, the command, the draft


def test_formats_are_told_by_their_looks(tmp_path: Path) -> None:
    for name, text, expected in (
        ("a.csv", "x\n", "csv"), ("a.json", '{"resourceSpans": []}', "otlp"), ("a.log", "a\nb {}", "shiviz"),
        ("a.jsonl", '{"x": 1}\n', "jsonl"), ("h.jsonl", '{"process": 0, "f": "read"}\n', "history"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
        assert format_of(tmp_path / name) == expected


def whence(*words: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


def test_options_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.csv"
    path.write_text("node,kind,message,time,room\na,send,x,1,\nb,deliver,x,2,r\nb,deliver,x,3,r\n")
    assert whence("verify", path) == 0
    assert whence("verify", path, "--require", "lost") == 3
    assert whence("verify", path, "--contract", "delivery=exactly-once") == 1
    assert whence("verify", path, "--contract", "complete=sends,deliveries", "--contract", "members=b,c") == 1
    assert whence("verify", path, "--scope", "room") == 0
    capsys.readouterr()
    assert whence("verify", path, "--contract", "order") == 2
    assert whence("verify", path, "--map", tmp_path / "none.toml") == 2
    assert whence("verify", tmp_path / "none.csv", "--map", "plain") == 2
    path.write_text("a,b\n1,2\n")
    assert whence("verify", path) == 2
    assert "whence log guess" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "judged"),
    [
        (
            "a.csv",
            "subscriber,msg_id,publisher,offset,ts\nr,x,p,1,1\nr,y,p,2,2\n",
            {"causal", "fifo", "duplicate"},
        ),
        (
            "a.jsonl",
            '{"topic": "t", "partition": 0, "offset": 1}\n{"topic": "t", "partition": 0, "offset": 2}\n',
            {"fifo"},
        ),
        ("b.csv", "host,event,id,when\na,publish,x,1\nb,handled,x,2\n", {"causal", "duplicate", "time"}),
    ],
)
def test_a_draft_makes_what_it_can_judgeable(
    name: str, text: str, judged: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    (tmp_path / name).write_text(text)
    found = guess(tmp_path / name)
    assert judged <= set(found.audit.judged)
    (tmp_path / "draft.toml").write_text(found.mapping)
    again = judge(read_log(tmp_path / name, load_mapping(tmp_path / "draft.toml")))
    assert again.judged == found.audit.judged
    assert whence("log", "guess", tmp_path / name) == 0
    assert "[event]" in capsys.readouterr().out or name == "a.jsonl"


def test_other_delimiters_are_guessed_and_read(tmp_path: Path) -> None:
    for delimiter in ";\t|":
        rows = ["node,kind,message,time", "a,send,x,1", "a,send,y,2", "b,deliver,y,3", "b,deliver,x,4"]
        (tmp_path / "x.csv").write_text("\n".join(rows).replace(",", delimiter))
        found = guess(tmp_path / "x.csv")
        assert found.audit.counts("broken") == {"causal": 1, "fifo": 1}
        (tmp_path / "x.toml").write_text(found.mapping)
        again = judge(read_log(tmp_path / "x.csv", load_mapping(tmp_path / "x.toml")))
        assert again.properties == found.audit.properties
    with pytest.raises(ConfigError, match="one character"):
        mapping_of({"log": {"format": "csv", "delimiter": "::"}})


def test_nothing_at_all_is_unknown(tmp_path: Path) -> None:
    audit = plain(tmp_path, "a,boot,,1,")
    assert (audit.verdict, audit.judged) == ("unknown", [])


def test_a_contract_is_plain_data() -> None:
    assert Contract() == mapping_of({}).contract


def test_a_restart_begins_a_new_session_in_every_thread(tmp_path: Path) -> None:
    sends = ["s,send,x,1,s", "s,send,y,2,s"]
    rows = [*sends, "r,deliver,y,3,r/1", "r,restart,,4,", "r,deliver,x,5,r/1"]
    audit = plain(tmp_path, *rows, event={"context": "extra"})
    assert audit.counts("broken") == {}
    assert plain(tmp_path, *rows[:3], *rows[4:], event={"context": "extra"}).counts("broken")


def test_marks_quotes_and_line_breaks_in_cells(tmp_path: Path) -> None:
    text = '\ufeffnode,kind,message\na,send,"x\ny"\nb,deliver,"x\ny"\n'
    (tmp_path / "q.csv").write_bytes(text.encode())
    log = read_log(tmp_path / "q.csv")
    assert (log.procs, log.msgs) == (["a", "b"], ["x\ny"])
