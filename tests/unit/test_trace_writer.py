"""The trace writer: what goes in comes out, in bounded memory, and survives a kill."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from whence.errors import MisuseError, TraceError
from whence.trace import writer as writer_module
from whence.trace.reader import Event, check_trace, open_trace
from whence.trace.schema import SEGMENT_EVENTS, Kind, Level, PromisesMade
from whence.trace.writer import TraceWriter


def make(folder: Path, **changes: Any) -> TraceWriter:
    about: dict[str, Any] = {
        "run": "r1", "writer": "w", "protocol": "vector", "parameters": {"seed": 1, "deep": {"list": [1]}},
        "promises": PromisesMade(), "seed": 1, "nodes": ["b", "a"], "level": Level.ALL,
    }  # fmt: skip
    return TraceWriter(folder, **(about | changes))


def random_events(count: int, nodes: list[str], seed: int = 1) -> list[tuple[Any, ...]]:
    rng = random.Random(seed)
    names = [*nodes, None, "späte Node", "x" * 300]
    return [
        (
            rng.choice(nodes), rng.randint(0, 2**50), rng.choice(list(Kind)), rng.choice(names),
            rng.randint(-(2**40), 2**40), rng.choice(names), rng.randint(0, 2**31 - 1), rng.randint(0, 9999),
            rng.choice([None, None, "", "text", "mehr Ünicode ✓", "two\nlines"]),
        )
        for _ in range(count)
    ]  # fmt: skip


def by_node(events: list[Event]) -> dict[str, list[tuple[Any, ...]]]:
    grouped: dict[str, list[tuple[Any, ...]]] = {}
    for event in events:
        rows = grouped.setdefault(event.node, [])
        assert event.seq == len(rows)
        rows.append((event.node, *event[3:]))
    return grouped


def test_what_goes_in_comes_out_in_each_nodes_order(tmp_path: Path) -> None:
    rows = random_events(3 * SEGMENT_EVENTS, ["a", "b", "c"])
    with make(tmp_path) as writer:
        for row in rows:
            writer.event(*row)
    trace = open_trace(tmp_path)
    found = by_node(list(trace.events()))
    for node in "abc":
        assert found[node] == [row for row in rows if row[0] == node]
    assert trace.event_count == len(rows)
    assert all(isinstance(event.kind, Kind) for event in trace.events())


def test_the_manifest_says_what_it_was_told(tmp_path: Path) -> None:
    with make(tmp_path) as writer:
        writer.event("a", 5, Kind.BROADCAST, "a", 1)
    manifest = writer.close()
    (found,) = open_trace(tmp_path).manifests
    assert found == manifest
    assert manifest.nodes == ["a", "b"]
    assert (manifest.run, manifest.events, manifest.level) == ("r1", 1, "all")
    assert manifest.parameters == {"seed": 1, "deep": {"list": [1]}}
    assert manifest.software.startswith("whence ")
    assert [part.file for part in manifest.parts] == ["w-00000.parquet"]


def test_a_run_without_events_is_a_trace(tmp_path: Path) -> None:
    make(tmp_path).close()
    trace = open_trace(tmp_path)
    assert (trace.runs, trace.event_count, list(trace.events())) == (["r1"], 0, [])


def test_segments_are_full_and_numbered(tmp_path: Path) -> None:
    with make(tmp_path) as writer:
        for time_us in range(SEGMENT_EVENTS + 7):
            writer.event("a", time_us, Kind.TIMER, detail="t")
    (batch,) = open_trace(tmp_path).batches(["node", "segment", "first_seq", "events"])
    assert batch.to_pylist() == [
        {"node": "a", "segment": 0, "first_seq": 0, "events": SEGMENT_EVENTS},
        {"node": "a", "segment": 1, "first_seq": SEGMENT_EVENTS, "events": 7},
    ]


def test_names_are_listed_once_in_order_of_appearance(tmp_path: Path) -> None:
    with make(tmp_path) as writer:
        writer.event("a", 0, Kind.RECEIVE, "b", 1, peer="z")
        writer.event("a", 1, Kind.RECEIVE, "c", 1, peer="b")
        writer.event("a", 2, Kind.TIMER)
    (batch,) = open_trace(tmp_path).batches(["names", "origin", "peer"])
    assert batch.to_pylist() == [{"names": ["b", "c", "z"], "origin": [0, 1, -1], "peer": [2, 0, -1]}]


def test_memory_is_bounded_with_many_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "BUFFERED_EVENTS", 1000)
    monkeypatch.setattr(writer_module, "GROUP_EVENTS", 500)
    rows = random_events(20_000, [f"n{i}" for i in range(300)])
    most = 0
    with make(tmp_path) as writer:
        for row in rows:
            writer.event(*row)
            most = max(most, sum(map(len, writer._buffers.values())) // 8 + writer._group_events)
    assert most <= 1500
    found = by_node(list(open_trace(tmp_path).events()))
    assert sum(map(len, found.values())) == len(rows)
    assert found["n7"] == [row for row in rows if row[0] == "n7"]


def test_parts_are_rotated_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "GROUP_EVENTS", 1000)
    monkeypatch.setattr(writer_module, "BUFFERED_EVENTS", 1000)
    monkeypatch.setattr(writer_module, "PART_BYTES", 20_000)
    rows = random_events(8000, ["a", "b"])
    with make(tmp_path) as writer:
        for row in rows:
            writer.event(*row)
    trace = open_trace(tmp_path)
    assert len(trace.part_files()) > 2
    assert by_node(list(trace.events()))["a"] == [row for row in rows if row[0] == "a"]
    check_trace(tmp_path)  # the hash runs over all parts


def test_what_was_flushed_is_readable_while_the_writer_goes_on(tmp_path: Path) -> None:
    writer = make(tmp_path)
    writer.event("a", 0, Kind.BROADCAST, "a", 1)
    writer.flush()
    writer.event("a", 1, Kind.BROADCAST, "a", 2)
    assert [event.number for event in open_trace(tmp_path).events()] == [1]
    writer.flush()
    writer.flush()  # nothing new: no empty part
    assert [event.number for event in open_trace(tmp_path).events()] == [1, 2]
    assert len(writer.close().parts) == 2
    check_trace(tmp_path)


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from unit.test_trace_writer import make
from whence.trace import writer as module
from whence.trace.reader import open_trace
from whence.trace.schema import Kind
module.GROUP_EVENTS = 10  # so that an unfinished part is on disk as well
writer = make(Path({folder!r}))
for number in range(1, 6):
    writer.event("a", number, Kind.BROADCAST, "a", number)
writer.flush()
assert list(open_trace(Path({folder!r})).events()) and "pandas" not in sys.modules  # 0.25 s
for number in range(6, 6 + 2 * 4096):
    writer.event("a", number, Kind.BROADCAST, "a", number)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_flushed_survives_a_kill(tmp_path: Path) -> None:
    tests = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", KILLED.format(tests=tests, folder=str(tmp_path))], check=False, timeout=60
    )
    assert done.returncode == -9
    trace = open_trace(tmp_path)
    assert [event.number for event in trace.events()] == [1, 2, 3, 4, 5]
    assert [path.name for path in trace.leftovers] == ["w-00001.parquet.tmp"]


def test_closing_twice_is_fine_and_recording_afterwards_is_not(tmp_path: Path) -> None:
    writer = make(tmp_path)
    writer.event("a", 0, Kind.BROADCAST, "a", 1)
    assert writer.close() == writer.close()
    with pytest.raises(MisuseError, match="closed"):
        writer.event("a", 1, Kind.BROADCAST, "a", 2)


def test_promises_may_be_known_only_at_the_end(tmp_path: Path) -> None:
    with make(tmp_path, promises=PromisesMade(complete=False)) as writer:
        writer.event("a", 0, Kind.BROADCAST, "a", 1)
        writer.close(promises=PromisesMade(complete=True))
    assert open_trace(tmp_path).promises("r1").complete


def test_a_trace_is_not_overwritten_by_accident(tmp_path: Path) -> None:
    with make(tmp_path) as writer:
        writer.event("a", 0, Kind.BROADCAST, "a", 1)
        writer.flush()
        writer.event("a", 0, Kind.BROADCAST, "a", 2)
    with pytest.raises(TraceError, match="already there"):
        make(tmp_path)
    with make(tmp_path, overwrite=True) as writer:
        writer.event("a", 0, Kind.BROADCAST, "a", 7)
    assert [event.number for event in open_trace(tmp_path).events()] == [7]
    with make(tmp_path, writer="other", nodes=["c"]) as writer:  # another writer of the run has its own files
        writer.event("c", 0, Kind.DELIVER, "a", 7)
    trace = open_trace(tmp_path)
    assert (trace.event_count, trace.nodes("r1")) == (2, ["a", "b", "c"])


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b"])
def test_a_writer_name_must_do_as_a_file_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(MisuseError, match="file name"):
        make(tmp_path, writer=name)


@pytest.mark.parametrize(
    ("values", "column"),
    [({"total_bytes": 2**31}, "total_bytes"), ({"number": 2**63}, "node 'a'"), ({"number": "1"}, "node 'a'")],
)
def test_a_value_that_does_not_fit_is_refused(tmp_path: Path, values: dict[str, Any], column: str) -> None:
    writer = make(tmp_path)
    writer.event("a", 0, Kind.SEND, "a", **{"number": 1} | values)
    with pytest.raises(TraceError, match=column):
        writer.close()


def test_an_unwritable_folder_is_a_trace_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TraceError, match="cannot be written"):
        make(tmp_path / "file" / "trace")


def test_the_trace_hash_is_the_documented_one(tmp_path: Path) -> None:
    """Computed here from docs/trace-format.md; and pinned, since it must be equal on every Python."""
    with make(tmp_path) as writer:
        writer.event("a", 5, Kind.BROADCAST, "a", 1, total_bytes=64)
        writer.event("a", 6, Kind.SEND, "a", 1, "ü", 80, 16, "first")
        writer.event("b", 9, Kind.DELIVER, "a", 1)
    manifest = writer.close()

    def text(*texts: str | None) -> bytes:
        encoded = [None if each is None else each.encode() for each in texts]
        lengths = [-1 if each is None else len(each) for each in encoded]
        return struct.pack(f"<{1 + len(texts)}q", len(texts), *lengths) + b"".join(e for e in encoded if e)

    def numbers(*values: int) -> bytes:
        return struct.pack(f"<{len(values)}q", *values)

    a = text("a") + numbers(0, 2) + text("a", "ü")
    a += numbers(5, 6) + numbers(1, 2) + numbers(0, 0) + numbers(1, 1) + numbers(-1, 1)
    a += numbers(64, 80) + numbers(0, 16) + text(None, "first")
    b = text("b") + numbers(0, 1) + text("a")
    b += (
        numbers(9) + numbers(4) + numbers(0) + numbers(1) + numbers(-1) + numbers(0) + numbers(0) + text(None)
    )
    assert manifest.trace_hash == hashlib.sha256(a + b).hexdigest()
    assert manifest.trace_hash == "379c2e49d8c99fba6aad11add5e3a8e1755175ed1a6b75953f6be365a566b380"


def test_check_finds_events_that_are_not_those_of_the_manifest(tmp_path: Path) -> None:
    with make(tmp_path) as writer:
        writer.event("a", 5, Kind.BROADCAST, "a", 1)
    (checked,) = check_trace(tmp_path)
    assert checked.trace_hash == writer.close().trace_hash
    path = tmp_path / "w.manifest.json"
    path.write_text(path.read_text().replace(checked.trace_hash, "0" * 64))
    with pytest.raises(TraceError, match="hash to"):
        check_trace(tmp_path)


def test_the_example_in_the_documents_is_a_real_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "trace-format.md").read_text()
    manifest, rows = (json.loads(block.split("```")[0]) for block in page.split("```json\n")[1:3])
    with make(
        tmp_path,
        **{name: manifest[name] for name in ("run", "writer", "protocol", "parameters", "seed", "nodes")},
        promises=PromisesMade(**manifest["promises"]),
    ) as writer:
        for row in rows:
            origin, peer = row["origin"] or None, row["peer"] or None
            about = (row["total_bytes"], row["control_bytes"], row["detail"])
            writer.event(row["node"], row["time_us"], Kind(row["kind"]), origin, row["number"], peer, *about)
    assert pq.read_table(tmp_path / "sim-00000.parquet").to_pylist() == rows
    written = json.loads((tmp_path / "sim.manifest.json").read_text())
    depends = ("size_bytes", "sha256")  # on the version of Parquet's library
    for part in (*written["parts"], *manifest["parts"]):
        assert all(part.pop(name) for name in depends)
    assert {**written, "software": ""} == {**manifest, "software": ""}
