"""The auditor on a stream: each batch of rows is put in the order of its contexts and judged, in a horizon.

    query = audit_stream(spark.readStream.schema(json_schema(mapping)).json("incoming"), mapping, "audit")

The state, some tables within the horizon, is the driver's and is saved after each batch beside the
checkpoint, so that a stream that is started again goes on; `audit/audit.json` has the verdict so far.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from whence.errors import MisuseError
from whence.foreign.mapping import LogMapping, order_of
from whence.foreign.report import Audit
from whence.foreign.running import HORIZON_ROWS, RunningAudit, StreamRow
from whence.spark.audit.columns import CORRUPT, LINE, json_schema, normalise

_FIELDS = ("proc", "ctx", "kind", "msg", "scope", "group", "channel", "rank", "deps", "line", "pos")


class _Saved(msgspec.Struct):
    """The state after a batch; a batch that Spark repeats is not judged twice."""

    batch: int
    state: RunningAudit


def audit_stream(
    rows: DataFrame,
    mapping: LogMapping,
    folder: Path | str,
    *,
    horizon: int = HORIZON_ROWS,
    available_now: bool = False,
) -> StreamingQuery:
    """Judge a stream of rows. `mapping` must have an `order`: files of a stream have no lines."""
    if order_of(mapping) not in {"seq", "clock"}:
        raise MisuseError(
            "the mapping", "nothing in it orders the rows of a context", "Map `order` to a column"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    events = normalise(rows.withColumn(LINE, F.lit(0)), mapping)

    def judge(batch: DataFrame, number: int) -> None:
        saved = load_state(folder, horizon)
        if saved.batch >= number:
            return
        found = batch.orderBy("pos").select(*_FIELDS).toArrow().to_pylist()
        saved.state.feed(msgspec.convert(found, list[StreamRow]))
        audit = saved.state.audit("stream", mapping.contract)
        _replace(folder / "audit.json", msgspec.json.encode(audit))
        _replace(folder / "state.json", msgspec.json.encode(_Saved(number, saved.state)))

    writer = events.writeStream.foreachBatch(judge).option("checkpointLocation", str(folder / "checkpoint"))
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def read_stream(spark: SparkSession, folder: Path | str, mapping: LogMapping) -> DataFrame:
    """The rows of the files that come into a folder: JSON lines or Parquet."""
    if mapping.format == "parquet":
        return spark.readStream.schema(spark.read.parquet(str(folder)).schema).parquet(str(folder))
    if mapping.format not in {None, "jsonl"}:
        raise MisuseError(f"format {mapping.format}", "it is not read as a stream", "Give jsonl or parquet")
    return spark.readStream.schema(json_schema(mapping)).json(str(folder), columnNameOfCorruptRecord=CORRUPT)


def read_verdict(folder: Path | str, mapping: LogMapping) -> Audit:
    """The verdict so far."""
    return load_state(folder).state.audit("stream", mapping.contract)


def load_state(folder: Path | str, horizon: int = HORIZON_ROWS) -> _Saved:
    """What was saved last, or the beginning."""
    path = Path(folder) / "state.json"
    if not path.exists():
        return _Saved(-1, RunningAudit(horizon=horizon))
    return msgspec.json.decode(path.read_bytes(), type=_Saved)


def _replace(path: Path, data: bytes) -> None:
    aside = path.with_suffix(".tmp")
    aside.write_bytes(data)
    aside.replace(path)
