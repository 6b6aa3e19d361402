"""Tables of many runs: what is committed is read, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from whence.cli.sql import ask
from whence.errors import MisuseError, PlatformError, TraceError
from whence.lab.chunks import chunk_runs, run_chunk
from whence.lab.grid import Grid, expand
from whence.lab.run import run
from whence.trace.dataset import COMMITS, Dataset, is_url, runs_in, url_of
from whence.trace.reader import events_in, open_trace

GRID: dict[str, Any] = {
    "protocol": "vector", "nodes": 3, "record": {"level": "deliveries"}, "stop": {"duration_us": 30_000},
    "workloads": [{"kind": "poisson", "interval_us": 10_000}],
    "grid": {"nodes": [2, 3], "seeds": 3},
}  # fmt: skip


@pytest.fixture
def swept(tmp_path: Path) -> Dataset:
    dataset = Dataset(tmp_path / "out")
    for first in (0, 3):
        run_chunk(GRID, first, 3, None, dataset)
    return dataset


def test_points_by_number_are_those_of_the_grid() -> None:
    grid = Grid(GRID)
    assert [grid.point(at) for at in range(len(grid))] == expand(GRID)
    assert [grid.point(at).labels for at in (0, 5)] == [{"nodes": 2, "seed": 1}, {"nodes": 3, "seed": 3}]


def test_runs_have_the_events_and_hashes_of_traces_in_folders(swept: Dataset, tmp_path: Path) -> None:
    found = 0
    for commit in swept.commits("sweep-").values():
        files = {file.table: file for file in commit.files}
        rows = swept.open(files["runs"]).read().to_pylist()
        segments = swept.open(files["segments"])
        bounds = [(row["first_row"], row["rows"]) for row in rows]
        for row, batches in zip(rows, runs_in(segments, bounds, segments.schema_arrow.names), strict=True):
            scenario = next(
                point.scenario for point in expand(GRID) if json.loads(row["labels_json"]) == point.labels
            )
            folder = tmp_path / row["run"]
            outcome = run(scenario, folder)
            assert (row["run"], row["trace_hash"]) == (outcome.run, outcome.manifest.trace_hash)
            from whence.trace.columns import packed_of

            events = [each for batch in batches for each in events_in(packed_of(row["run"], batch))]
            assert events == list(open_trace(folder).events())
            found += 1
    assert found == 6


def test_a_file_that_no_commit_names_is_not_there(swept: Dataset) -> None:
    before = swept.read("runs")
    swept.write("runs", before)
    assert len(swept.read("runs")) == len(before) == 6


def test_a_task_done_twice_counts_once(swept: Dataset) -> None:
    run_chunk(GRID, 0, 3, None, swept)
    assert len(list(Path(swept.root, COMMITS).iterdir())) == 3
    assert len(swept.read("runs")) == 6


def test_two_attempts_that_differ_are_an_error(swept: Dataset) -> None:
    task, commit = next(iter(swept.commits().items()))
    swept.commit(task, commit.files, "other", {})
    with pytest.raises(TraceError, match="differ"):
        swept.commits()


def test_damage_is_refused(swept: Dataset) -> None:
    (file, *_) = swept.files("runs")
    path = Path(swept.root, file.path)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(TraceError, match="SHA-256"):
        swept.read("runs")
    next(Path(swept.root, COMMITS).iterdir()).write_text("{")
    with pytest.raises(TraceError, match="not a commit"):
        swept.commits()


def test_a_point_that_cannot_run_is_a_row(tmp_path: Path) -> None:
    bad = GRID | {"grid": {"nodes": [2, -1]}}
    commit = run_chunk(bad, 0, 2, None, Dataset(tmp_path))
    assert commit.about["failed"] == 1
    _, rows = ask("select run, error from runs where status = 'failed'", str(tmp_path))
    assert len(rows) == 1
    assert "nodes" in rows[0][1]


def test_sql(swept: Dataset) -> None:
    names, rows = ask("select len(nodes) n, sum(rows) from runs group by 1 order by 1", swept.root)
    assert names[0] == "n"
    assert [row[0] for row in rows] == [2, 3]
    assert ask("select count(*) from segments", swept.root)[1] == [(sum(row[1] for row in rows),)]
    with pytest.raises(MisuseError, match="segments"):
        ask("select * from nothing", swept.root)
    with pytest.raises(MisuseError, match="no tables"):
        ask("select 1", str(Path(swept.root) / "elsewhere"))


def test_addresses() -> None:
    assert url_of(Path("s3://bucket/a b")) == "s3://bucket/a b"
    assert is_url(Path("gs://x"))
    assert not is_url(Path("/tmp/x"))
    with pytest.raises(PlatformError, match="nope"):
        Dataset("nope://x")


def test_chunks_of_a_grid() -> None:
    assert [chunk_runs(points) for points in (1, 60, 16_000, 10**6)] == [1, 3, 1_000, 1_000]


def test_other_tools_read_the_files(swept: Dataset) -> None:
    (file, *_) = swept.files("segments")
    table: pa.Table = swept.open(file).read()
    assert {"run", "node", "seq", "kind"} <= set(table.schema.names)
