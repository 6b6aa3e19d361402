"""Drafts of mappings for files as strangers have them: by the draft alone the planted fault is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whence.errors import ImportFormatError
from whence.foreign.guess import guess
from whence.foreign.judge import judge
from whence.foreign.mapping import load_mapping
from whence.foreign.read import read_log


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


TALK = (("ann", "sent", "q"), ("bob", "received", "q"), ("bob", "sent", "a"), ("cy", "received", "a"),
        ("cy", "received", "q"))  # fmt: skip

FILES: dict[str, tuple[str, dict[str, int]]] = {
    "orders.csv": (
        "Time,Host,Event Type,Message ID\n"
        + "".join(
            f"2026-11-18T08:00:0{at}Z,{who},MESSAGE_{what.upper()},{m}\n"
            for at, (who, what, m) in enumerate(TALK)
        ),
        {"causal": 1},
    ),
    "orders.tsv": (
        "host\tevent\tmsg_id\n" + "".join(f"{who}\t{what}\t{m}\n" for who, what, m in TALK),
        {"causal": 1},
    ),
    "chat.jsonl": (
        lines(
            *({"ts": at, "ws": who, "dir": "out" if what == "sent" else "in", "msg": {"id": m}}
              for at, (who, what, m) in enumerate(TALK))
        ),
        {"causal": 1},
    ),
    "chat.json": (
        json.dumps([{"phone": who, "outgoing": what == "sent", "id": m} for who, what, m in TALK], indent=1),
        {"causal": 1},
    ),
    "app.log": (
        "".join(f"2026-11-18 08:00:0{at},123 INFO [{who}] {what} message id={m}\n"
                for at, (who, what, m) in enumerate(TALK)),
        {"causal": 1},
    ),
    "logfmt.log": (
        "".join(f'ts=2026-11-18T08:00:0{at}Z level=info node={who} event="{what}" id={m}\n'
                for at, (who, what, m) in enumerate(TALK)),
        {"causal": 1},
    ),
    "compose.log": (
        "".join(f"{who}  | {what} m{m}7\n" for who, what, m in TALK),
        {"causal": 1},
    ),
    "syslog.log": (
        "".join(f"Nov 18 08:00:0{at} mx1 postfix/smtp[812]: queued id=A{at}\n" for at in range(3))
        + "".join(f"Nov 18 08:00:09 mx2 dovecot[33]: stored id=A{at}\n" for at in (0, 2, 1)),
        {"causal": 1, "fifo": 1},
    ),
    "sqs.csv": (
        "worker,MessageGroupId,SequenceNumber,MessageId\n"
        + "".join(f"w,g,1884949646046769613{n},{n}\n" for n in (0, 2, 1)),
        {"causal": 1, "fifo": 1},
    ),
    "redis.jsonl": (
        lines(*({"stream": "s", "consumer": "c", "id": f"1526919030474-{n}"} for n in (0, 2, 1))),
        {"causal": 1, "fifo": 1},
    ),
    "mqtt.jsonl": (
        lines(*({"client_id": "c", "topic": "t", "qos": 1, "publisher": "p", "seq": n} for n in (1, 3, 2))),
        {"causal": 1, "fifo": 1},
    ),
    "nats.jsonl": (
        lines(*({"stream": "s", "stream_seq": n, "consumer": "c", "client": "x"} for n in (1, 3, 2))),
        {"fifo": 1},
    ),
    "debezium.jsonl": (
        lines(
            *({"before": None, "after": {"id": 1}, "source": {"table": "orders", "lsn": n}, "op": "u",
               "ts_ms": 1700000000000 + n} for n in (100, 110, 105))
        ),
        {"causal": 1, "fifo": 1},
    ),
    "matrix.jsonl": (
        lines(
            *({"type": "m.room.message", "sender": "@a:x", "event_id": event, "prev_events": before}
              for event, before in (("$1", []), ("$3", ["$2"]), ("$2", ["$1"])))
        ),
        {"causal": 1},
    ),
    "slack.json": (
        json.dumps([{"user": "U1", "type": "message", "ts": ts, "thread_ts": thread}
                    for ts, thread in (("1.000200", "1.000100"), ("1.000100", None))]),
        {"causal": 1},
    ),
    "replica.jsonl": (
        lines(*({"replica": "r", "op_id": op, "deps": deps} for op, deps in (("b@1", ["a@1"]), ("a@1", [])))),
        {"causal": 1},
    ),
    "node.jsonl": (
        lines(
            *({"node": "n", "seq": seq, "event": event, "op": op, "previous": before}
              for seq, event, op, before in (
                  (1, "in", "B", ["A"]), (2, "in", "A", []), (3, "out", "B", ["A"]), (4, "out", "A", [])))
        ),
        {"causal": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_the_draft_finds_what_is_wrong(name: str, tmp_path: Path) -> None:
    text, broken = FILES[name]
    path = tmp_path / name
    path.write_text(text)
    draft = guess(path)
    assert draft.audit.counts("broken") == broken
    saved = tmp_path / "draft.toml"  # as a user saves it
    saved.write_text(draft.mapping)
    assert judge(read_log(path, load_mapping(saved)), str(path)) == draft.audit


def test_times_are_in_their_unit(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for now, unit in ((17 * 10**8, "s"), (17 * 10**11, "ms"), (17 * 10**14, "us"), (17 * 10**17, "ns")):
        path.write_text(lines({"node": "a", "kind": "send", "message": "x", "time": now}))
        assert f'time_unit = "{unit}"' in guess(path).mapping


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("jaeger.json", '{"data": [{"traceID": "1", "spans": [{"spanID": "a"}]}]}', "Jaeger"),
        ("novel.txt", "It was a dark and stormy night.\n", "sent or delivered"),
        ("messages.json", '{\n "messages": []\n}', "one object per line, or all in one list"),
    ],
)
def test_what_cannot_be_drafted_says_why(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ImportFormatError, match=said):
        guess(tmp_path / name)
