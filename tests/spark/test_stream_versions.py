"""The versioned state of `whence stream`: objects of partitions and batches, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from test_stream_state import ENDED, settings_of, table

from spark.streaming import COLUMNS, job, write_batches
from whence.errors import DataError, MisuseError
from whence.order import Arrival
from whence.spark.ordering.buckets import Bucket
from whence.spark.ordering.job import run_job
from whence.spark.ordering.versions import BATCH_PROPERTY, StateHeader, StateStore

HEADER = StateHeader(query={"lifetime": "1s", "policy": "emit"}, columns="struct<id:string>", partitions=4)


def saved(store: StateStore, batches: int, retain: int = 3) -> list[int]:
    """One partition over some batches, its versions read before each; how many versions made it up."""
    chain = []
    for batch in range(batches):
        known = store.versions(0, batch - 1) if batch else []
        bucket = Bucket(settings_of(), ENDED, "test", [each.bucket for each in known])
        rows = [Arrival(f"{batch}-{n}", 1000 * batch + n, 10**6, {"never": None}, "x") for n in range(3)]
        bucket.step(table(rows, f"key{batch % 7}"), 0)
        store.save(0, batch, bucket, known, retain)
        chain.append(len(store.versions(0, batch)))
    return chain


def test_changes_are_put_together_and_old_versions_removed(tmp_path: Path) -> None:
    store = StateStore(str(tmp_path))
    chain = saved(store, 60)
    assert 1 < max(chain) <= 22  # neither written whole each time nor read without end
    assert chain.count(1) > 2
    last = store.versions(0, 59)
    assert Bucket(settings_of(), ENDED, "test", [each.bucket for each in last]).waiting == 180
    kept = sorted(int(path.name) for path in (tmp_path / "state" / "0").iterdir())
    assert set(range(56, 60)) <= set(kept)
    assert len(kept) <= 3 + 22 + 1
    for batch in (56, 57, 58):  # what Spark may go back to can be read
        assert store.versions(0, batch)
    assert store.newest_us(59, 1) == 1000 * (59_000 + 2)
    assert len(list((tmp_path / "time").iterdir())) <= 5


def test_a_batch_that_is_done_again_writes_the_same(tmp_path: Path) -> None:
    store = StateStore(str(tmp_path))
    saved(store, 3)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    saved(store, 3)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_state_that_is_not_there(tmp_path: Path) -> None:
    store = StateStore(str(tmp_path))
    with pytest.raises(DataError, match="state after the batch before is missing"):
        store.versions(0, 4)
    saved(store, 2)
    with pytest.raises(DataError, match="times of 1 of 2 partitions"):
        store.newest_us(1, 2)
    assert store.due_us(1, 2, 0) is None  # a batch that was stopped on the way


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"query": {"lifetime": "2s", "policy": "emit"}}, "lifetime was 1s when it was begun, and is 2s now"),
        ({"query": {"lifetime": "1s"}}, "policy was emit when it was begun, and is not given now"),
        ({"columns": "struct<id:bigint>"}, "the columns of the rows was struct<id:string>"),
        ({"version": 2}, "the version of the state was 1"),
    ],
)
def test_other_options_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    store = StateStore(str(tmp_path))
    assert store.begin(HEADER, fresh=True) == HEADER
    other = {"query": HEADER.query, "columns": HEADER.columns, "partitions": 9} | change
    with pytest.raises(MisuseError, match=words):
        store.begin(StateHeader(**other), fresh=False)


def test_partitions_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    store = StateStore(str(tmp_path))
    store.begin(HEADER, fresh=True)
    more = StateHeader(query=HEADER.query, columns=HEADER.columns, partitions=9)
    assert store.begin(more, fresh=False).partitions == 4


def test_a_state_of_another_checkpoint(tmp_path: Path) -> None:
    store = StateStore(str(tmp_path))
    with pytest.raises(MisuseError, match="older version of Whence"):
        store.begin(HEADER, fresh=False)
    store.begin(HEADER, fresh=True)
    saved(store, 1)
    with pytest.raises(MisuseError, match="belongs to another checkpoint"):
        store.begin(HEADER, fresh=True)


@pytest.mark.spark
def test_spark_tells_tasks_their_batch_and_runs_empty_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """What the state rests on and Spark does not document: to be looked at with each version of it."""
    seen = tmp_path / "seen"
    seen.mkdir()

    def look(batches: Any) -> Any:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        rows = sum(batch.num_rows for batch in batches)
        name = f"{context.getLocalProperty(BATCH_PROPERTY)}-{context.partitionId()}-{rows}"
        (seen / name).touch()
        yield pa.RecordBatch.from_pydict({"n": pa.array([rows], pa.int64())})

    write_batches(tmp_path / "in", [{"id": "a", "at": 0}], [], [{"id": "b", "at": 1}])
    stream = spark.readStream.schema("id string").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    looked = stream.selectExpr("1 as place").repartitionById(3, "place").mapInArrow(look, "n bigint")
    writer = looked.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    rows = {(0, 1): 1, (2, 1): 1}
    assert {path.name for path in seen.iterdir()} == {
        f"{batch}-{part}-{rows.get((batch, part), 0)}" for batch in range(3) for part in range(3)
    }


@pytest.mark.spark
def test_a_batch_without_rows_writes_its_state(spark: SparkSession, tmp_path: Path) -> None:
    """Adaptive execution leaves out the tasks of such a batch, and the next would find no state."""
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        write_batches(tmp_path / "in", [{"id": "a", "at": 0}], [], [{"id": "b", "after": ["a"], "at": 1}])
        run_job(spark, job(tmp_path / "in", tmp_path / "out"))
        assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    found = {row.id: row.position for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert found == {"a": 1, "b": 2}


@pytest.mark.spark
@pytest.mark.parametrize("place", ["beside", "elsewhere"])
def test_time_passes_without_rows(spark: SparkSession, tmp_path: Path, place: str) -> None:
    """The last batch moves time beyond a deadline: a tick ends what waits, and the flush the rest.

    Ticks are written by us where the state is beside the checkpoint, and by Spark where it is elsewhere.
    """
    state = {"state": str(tmp_path / "state") if place == "elsewhere" else None}
    write_batches(
        tmp_path / "in",
        [{"room": "slow", "id": "b", "after": ["a"], "at": 0}],
        [{"room": "fast", "id": "x", "after": ["y"], "at": 10}],
    )
    first = run_job(spark, job(tmp_path / "in", tmp_path / "out", flush=False, **state))
    found = {row.id: row.outcome for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert found == {"b": "predecessor expired"}
    assert (first.rows_in, first.rows_out, first.state_rows) == (2, 1, 1)
    with pytest.raises(MisuseError, match="lifetime was 100 ms when it was begun, and is 1s now"):
        run_job(spark, job(tmp_path / "in", tmp_path / "out", **state, order=COLUMNS | {"lifetime": "1s"}))
    last = run_job(spark, job(tmp_path / "in", tmp_path / "out", **state))
    assert (last.rows_in, last.rows_out, last.state_rows, last.state_keys) == (0, 1, 0, 0)
    with pytest.raises(MisuseError, match="it was flushed"):
        run_job(spark, job(tmp_path / "in", tmp_path / "out", flush=False, **state))
