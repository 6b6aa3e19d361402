"""The trace reader refuses whatever is not a whole trace, and says which file and why."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.version_1 import rewrite_in_version_1
from whence.errors import TraceError
from whence.trace.columns import FLAT_SCHEMA, PACKED_SCHEMA
from whence.trace.reader import check_trace, open_trace
from whence.trace.schema import Kind, Level, PromisesMade
from whence.trace.writer import TraceWriter

ABOUT: dict[str, Any] = {
    "protocol": "vector", "parameters": {}, "promises": PromisesMade(), "seed": 1, "level": Level.ALL,
}  # fmt: skip


def write(folder: Path, run: str = "r1", writer: str = "w", node: str = "a", **changes: Any) -> None:
    with TraceWriter(folder, run=run, writer=writer, nodes=["a", "b"], **(ABOUT | changes)) as out:
        out.event(node, 0, Kind.BROADCAST, node, 1)
        out.event(node, 1, Kind.DELIVER, node, 1)
        out.flush()
        out.event(node, 2, Kind.DELIVER, "b", 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "t")
    return tmp_path / "t"


@pytest.fixture
def old_folder(folder: Path) -> Path:
    rewrite_in_version_1(folder)
    return folder


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "w.manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def replace_part(folder: Path, change: Callable[[pa.Table], pa.Table], index: int = 0) -> None:
    """Rewrite a part, and make size and hash in the manifest right again: only the contents are wrong."""
    path = folder / f"w-{index:05d}.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    raw = path.read_bytes()

    def fix(manifest: dict[str, Any]) -> None:
        entry = manifest["parts"][index]
        entry["size_bytes"], entry["sha256"] = len(raw), hashlib.sha256(raw).hexdigest()

    edit_manifest(folder, fix)


def with_column(name: str, values: list[Any]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        field = (PACKED_SCHEMA if "first_seq" in table.schema.names else FLAT_SCHEMA).field(name)
        field = field.with_nullable(True)
        return table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))

    return change


def refuses(folder: Path, *words: str) -> None:
    """Opening or reading raises an error that names all these."""
    with pytest.raises(TraceError) as caught:
        list(open_trace(folder).events())
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert caught.value.fix


def test_a_good_trace_opens_by_folder_and_by_manifest(folder: Path) -> None:
    for path in (folder, folder / "w.manifest.json", str(folder)):
        trace = open_trace(path)
        assert trace.runs == ["r1"]
        assert trace.nodes("r1") == ["a", "b"]
        assert trace.promises("r1") == PromisesMade()
        assert [event.seq for event in trace.events()] == [0, 1, 2]
    assert open_trace(folder, hashes=False).event_count == 3


def test_batches_give_the_columns_that_are_asked_for(folder: Path) -> None:
    batches = list(open_trace(folder).batches(["kind", "number"]))
    assert [batch.schema.names for batch in batches] == [["kind", "number"]] * 2


def test_no_folder_no_manifest_no_trace(tmp_path: Path) -> None:
    refuses(tmp_path / "none", "none", "no such folder")
    (tmp_path / "empty").mkdir()
    refuses(tmp_path / "empty", "empty", "not a trace")
    (tmp_path / "note.txt").write_text("hello")
    refuses(tmp_path / "note.txt", "note.txt", "not a manifest")


def test_a_manifest_of_something_else(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(format="other"))
    refuses(folder, "w.manifest.json", "'other'")


def test_a_manifest_of_another_version(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(version=3))
    refuses(folder, "w.manifest.json", "version 3")


def test_a_trace_of_version_1_has_the_same_events_and_hash(folder: Path) -> None:
    new = list(open_trace(folder).events())
    rewrite_in_version_1(folder)
    trace = open_trace(folder)
    assert trace.manifests[0].version == 1
    assert list(trace.events()) == new
    (checked,) = check_trace(trace)
    assert checked.trace_hash == trace.manifests[0].trace_hash


def test_a_writer_goes_on_with_a_trace_of_version_1(old_folder: Path) -> None:
    about = ABOUT | {"run": "r1", "writer": "w", "nodes": ["a", "b"], "keep_parts": 2}
    with TraceWriter(old_folder, **about) as out:
        out.event("a", 3, Kind.TIMER, detail="late")
    trace = open_trace(old_folder)
    assert [event.seq for event in trace.events()] == [0, 1, 2, 3]
    (checked,) = check_trace(trace)
    assert checked.events == 4


def test_a_broken_manifest(folder: Path) -> None:
    path = folder / "w.manifest.json"
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    refuses(folder, "w.manifest.json", "not a manifest")
    path.write_text("[1, 2]")
    refuses(folder, "w.manifest.json", "not a manifest")
    path.write_text(whole.replace('"nodes"', '"knots"'))
    refuses(folder, "w.manifest.json", "not a valid manifest", "nodes")


def test_a_missing_part(folder: Path) -> None:
    (folder / "w-00001.parquet").unlink()
    refuses(folder, "w-00001.parquet", "missing")


def test_a_truncated_part(folder: Path) -> None:
    path = folder / "w-00000.parquet"
    path.write_bytes(path.read_bytes()[:-10])
    refuses(folder, "w-00000.parquet", "truncated")


def test_a_part_with_one_changed_byte(folder: Path) -> None:
    path = folder / "w-00000.parquet"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    refuses(folder, "w-00000.parquet", "SHA-256")


def test_damage_that_keeps_size_and_is_not_hashed_is_still_an_error(folder: Path) -> None:
    path = folder / "w-00000.parquet"
    raw = path.read_bytes()
    path.write_bytes(b"\0" * len(raw))
    with pytest.raises(TraceError, match="not a readable Parquet"):
        open_trace(folder, hashes=False)
    path.write_bytes(raw[:4] + b"\xff" * 200 + raw[204:])
    with pytest.raises(TraceError, match=r"w-00000\.parquet"):
        list(open_trace(folder, hashes=False).events())


def test_a_foreign_parquet_file(folder: Path) -> None:
    replace_part(folder, lambda table: pa.table({"x": [1, 2]}))
    refuses(folder, "w-00000.parquet", "not a trace file", "no column 'run'")


def test_a_column_of_another_type(folder: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("segment")
        return table.set_column(at, "segment", table.column("segment").cast(pa.int64()))

    replace_part(folder, change)
    refuses(folder, "w-00000.parquet", "'segment'", "int64")


def test_a_column_too_many(folder: Path) -> None:
    replace_part(folder, lambda table: table.append_column("extra", pa.array([1] * len(table))))
    refuses(folder, "w-00000.parquet", "'extra'")


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("kind", [[1]], "length"),
        ("detail", [[None]], "length"),
        ("kind", [[1, 99]], "'kind'"),
        ("kind", [[1, None]], "null"),
        ("number", [None], "null"),
        ("origin", [[0, 1]], "outside of the row's names"),
        ("origin", [[0, -2]], "outside of the row's names"),
        ("peer", [[5, -1]], "outside of the row's names"),
        ("run", ["other"], "'other'"),
        ("events", [3], "events"),
        ("events", [None], "null"),
    ],
)
def test_contents_of_version_1_that_contradict_themselves(
    old_folder: Path, column: str, values: list[Any], reason: str
) -> None:
    replace_part(old_folder, with_column(column, values))
    refuses(old_folder, "w-00000.parquet", reason)


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("kind", [1, 99], "'kind'"),
        ("kind", [1, None], "null"),
        ("number", [1, None], "null"),
        ("origin", ["a", None], "null"),
        ("seq", [0, None], "null"),
        ("run", ["r1", "other"], "'other'"),
        ("run", ["r1", None], "null"),
        ("seq", [0, 2], "missing"),
        ("seq", [0, 0], "twice"),
        ("seq", [-1, 0], "twice"),
    ],
)
def test_contents_that_contradict_themselves(
    folder: Path, column: str, values: list[Any], reason: str
) -> None:
    replace_part(folder, with_column(column, values))
    refuses(folder, "w-0000", reason)


def test_a_part_with_a_row_too_few(folder: Path) -> None:
    replace_part(folder, lambda table: table.slice(0, 1))
    refuses(folder, "w-00000.parquet", "2 events")


@pytest.mark.parametrize("version", [1, 2])
def test_a_hole_in_a_nodes_events_is_named(folder: Path, version: int) -> None:
    if version == 1:
        rewrite_in_version_1(folder)
    replace_part(folder, with_column("first_seq" if version == 1 else "seq", [5]), index=1)
    refuses(folder, "w-00001.parquet", "events 2 to 4 of node 'a'", "missing")


@pytest.mark.parametrize("version", [1, 2])
def test_events_that_are_there_twice(folder: Path, version: int) -> None:
    if version == 1:
        rewrite_in_version_1(folder)
    replace_part(folder, with_column("first_seq" if version == 1 else "seq", [1]), index=1)
    refuses(folder, "w-00001.parquet", "event", "twice")


def test_two_writers_that_recorded_the_same_node(folder: Path) -> None:
    write(folder, writer="w2")
    refuses(folder, "w2-00000.parquet", "node 'a'", "twice")


def test_a_manifest_that_counts_wrongly(folder: Path) -> None:
    edit_manifest(folder, lambda manifest: manifest.update(events=4))
    refuses(folder, "w.manifest.json", "counts 4 events")


def test_a_part_name_must_not_lead_out_of_the_folder(folder: Path) -> None:
    (folder / "w-00000.parquet").rename(folder.parent / "x.parquet")
    edit_manifest(folder, lambda manifest: manifest["parts"][0].update(file="../x.parquet"))
    refuses(folder, "../x.parquet")


def test_a_parquet_file_that_no_manifest_lists(folder: Path) -> None:
    shutil.copy(folder / "w-00000.parquet", folder / "stray.parquet")
    refuses(folder, "stray.parquet", "no manifest")


def test_the_part_that_a_kill_can_leave_behind_is_set_aside(folder: Path) -> None:
    shutil.copy(folder / "w-00000.parquet", folder / "w-00002.parquet")
    trace = open_trace(folder)
    assert [path.name for path in trace.leftovers] == ["w-00002.parquet"]
    assert trace.event_count == 3


def test_writers_of_one_run_must_agree(folder: Path) -> None:
    write(folder, writer="w2", node="b", protocol="fifo")
    refuses(folder, "'w'", "'w2'", "disagree")


def test_a_sweeps_folder_holds_many_runs(tmp_path: Path) -> None:
    for run in ("r2", "r1"):
        write(tmp_path / f"run={run}", run=run)
    trace = open_trace(tmp_path)
    assert trace.runs == ["r1", "r2"]
    assert trace.event_count == 6
    assert {event.run for event in trace.events(run="r2")} == {"r2"}
    assert len(trace.part_files("r1")) == 2
    with pytest.raises(TraceError, match="r1, r2"):
        trace.of_run("r3")


def test_a_sweep_with_a_run_that_lost_its_manifest(tmp_path: Path) -> None:
    for run in ("r1", "r2"):
        write(tmp_path / f"run={run}", run=run)
    (tmp_path / "run=r2" / "w.manifest.json").unlink()
    refuses(tmp_path, "run=r2", "no manifest")


def test_the_same_run_twice_in_a_sweep(tmp_path: Path) -> None:
    write(tmp_path / "run=a")
    write(tmp_path / "run=b")
    refuses(tmp_path, "'r1'", "twice")
