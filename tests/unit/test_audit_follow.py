"""A log that grows is judged as it comes, across processes, and as it is judged at rest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from support.corpus import CorpusCase, cases
from whence.errors import ImportFormatError, MisuseError
from whence.foreign.follow import FOLLOWED, Follower
from whence.foreign.judge import judge
from whence.foreign.mapping import LogMapping, mapping_of, order_of
from whence.foreign.read import complete_mapping, read_log
from whence.foreign.running import STREAMED

PIECES = 200  # more than all logs have but one
LIST = "json-array"  # refused as well: its rows are not lines
SEVERAL_LINES = "texts-with-line-breaks"  # refused: a followed row is one line
CASES = [
    case
    for case in cases()
    if case.mapping.format in FOLLOWED
    and order_of(case.mapping) in {"line", "seq"}
    and case.name not in {SEVERAL_LINES, LIST}
]


def grown(case: CorpusCase, folder: Path, size: int) -> Follower:
    """The verdict on a file to which a few bytes at a time are added, each time by another process.

    A log of more pieces than `PIECES` grows by larger ones from then on.
    """
    mapping = complete_mapping(case.log, case.mapping)
    data, target, state = case.log.read_bytes(), folder / case.log.name, folder / "state"
    few = min(len(data), PIECES * size)
    ends = [*range(size, few, size), *range(few, len(data), 37 * size), len(data)]
    target.write_bytes(b"")
    for begin, end in pairwise([0, *ends]):
        append(target, data[begin:end])
        follower = Follower(target, mapping, state=state)
        list(follower.read())
    return follower


@pytest.mark.parametrize("name", [SEVERAL_LINES, LIST])
def test_what_is_not_one_row_per_line_is_refused(name: str, tmp_path: Path) -> None:
    case = next(case for case in cases() if case.name == name)
    with pytest.raises(ImportFormatError, match="Followed rows must be one"):
        grown(case, tmp_path, 100_000)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("size", [37, 100_000])
def test_what_is_found_is_what_is_found_at_rest(case: CorpusCase, size: int, tmp_path: Path) -> None:
    """Findings are certain; those of these short logs, whose rows come in order, are all found."""
    at_rest = judge(read_log(case.log, case.mapping))
    audit = grown(case, tmp_path, size).audit()
    for name in STREAMED:
        mine, theirs = audit.properties[name], at_rest.properties[name]
        assert mine.count <= theirs.count, name
        if mine.judged and not any(note.code == "late-rows" for note in audit.notes):
            assert mine.count == theirs.count, name


def test_rows_without_a_place_behind_the_others_are_not_judged(tmp_path: Path) -> None:
    """3 and 2 share a place; 1 comes after what it precedes; 4 stands behind 5, and is late."""
    mapping = mapping_of({
        "log": {"format": "jsonl"},
        "event": {"process": "c", "message": "n", "channel": "c", "send_order": "n", "order": "t"},
    })  # fmt: skip
    rows = [(3, 30), (2, 30), (1, 10), (5, 40), (4, 50)]
    lines = [json.dumps({"c": "c", "n": n, "t": t}).encode() + b"\n" for n, t in rows]
    path = tmp_path / "log.jsonl"
    follower = Follower(path, mapping)
    for line in lines:
        append(path, line)
        list(follower.read())
    audit = follower.audit()
    assert audit.counts("broken") == {"causal": 1, "fifo": 1}
    assert [(note.code, note.count) for note in audit.notes] == [("late-rows", 2)]


CHAT = mapping_of({"log": {"format": "jsonl"}, "event": {"process": "n", "kind": "k", "message": "m"}})


def rows(*words: str) -> bytes:
    made = (dict(zip("nkm", word.split(), strict=True)) for word in words)
    return "".join(json.dumps(row) + "\n" for row in made).encode()


def test_a_row_counts_when_its_line_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(rows("a send x", "b deliver x")[:-1])
    follower = Follower(path, CHAT)
    assert list(follower.read()) == []
    assert follower.audit().events == 1
    append(path, b"\n" + rows("b deliver x"))
    assert [name for name, _ in follower.read()] == ["duplicate"]
    assert follower.audit().events == 3


def test_a_file_that_is_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(rows("a send x", "a send y"))
    follower = Follower(path, CHAT)
    list(follower.read())
    path.write_bytes(rows("b deliver y"))
    list(follower.read())
    append(path, rows("b deliver x"))
    assert [name for name, _ in follower.read()] == ["causal"]
    assert [note.code for note in follower.audit().notes] == ["replaced"]


def test_bad_input_is_refused_by_name(tmp_path: Path) -> None:
    path, state = tmp_path / "log.jsonl", tmp_path / "state"
    with pytest.raises(ImportFormatError, match="no such file"):
        list(Follower(path, CHAT).read())
    path.write_bytes(rows("a send x") + b"{no\n")
    with pytest.raises(ImportFormatError, match="line 2"):
        list(Follower(path, CHAT, state=state).read())
    path.write_bytes(rows("a send x"))
    list(Follower(path, CHAT, state=state).read())
    with pytest.raises(MisuseError, match="another mapping"):
        Follower(path, mapping_of({"log": {"format": "jsonl"}, "event": {"process": "m"}}), state=state)
    with pytest.raises(MisuseError, match="as they come"):
        Follower(path, LogMapping(format="otlp"))


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_the_command_watches_until_it_is_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "chat.csv"
    path.write_text(
        "node,kind,message,time\nann,send,question,1\nbob,deliver,question,2\nbob,send,answer,3\n"
    )
    words = [sys.executable, "-m", "whence", "log", "follow", str(path), "--every", "0.05"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        append(path, b"cy,deliver,answer,4\ncy,deliver,question,5\n")
        first = running.stdout.readline()  # said while it runs
        assert first.startswith("causal: question is delivered after what depends on it")
        time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
    assert running.returncode == 1
    assert rest.splitlines()[0].startswith("broken: causal 1 (judged: causal, duplicate; not judged:")
    again = subprocess.run([*words[:6], "--once", "--json"], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert json.loads(again.stdout)["properties"]["causal"]["count"] == 1


def test_a_call_that_finds_nothing_new_misses_no_column(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"p": "a", "m": "x", "s": 1}\n')
    mapping = mapping_of({
        "log": {"format": "jsonl"},
        "event": {"process": "p", "message": "m", "session": "s", "depends_on": "d"},
    })  # fmt: skip
    for _ in range(2):
        follower = Follower(log, mapping, state=tmp_path / "state")
        list(follower.read())
        notes = {note.code: note for note in follower.audit().notes}
        assert "session" not in notes
        assert notes["absent-column"].count == 1
        assert "`d`" in notes["absent-column"].text
