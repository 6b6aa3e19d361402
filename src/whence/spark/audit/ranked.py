"""Ranked deliveries on Spark: encoded where they are read, sorted by rank, judged as they stream by.

One pass over the log, one shuffle of four numbers per row, and no Python object per row; Spark's sort goes to
disk where it must, so a log may be larger than any memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from whence.errors import DataError
from whence.foreign.mapping import LogMapping
from whence.foreign.ranked import KeyEncoder, RankedCounts, RankedJudge, RankedPlan, Unsuited
from whence.spark.audit.columns import CORRUPT, LINE, AuditColumns
from whence.spark.shipping import find_shipped
from whence.spark.tables import table_of

_SAMPLE_ROWS = 10_000
_ENCODED = table_of("stem bigint, key bigint, rank bigint, pos bigint, name string")
_SAID = table_of("counts string, unsuited string")


def count_ranked(
    rows: DataFrame, mapping: LogMapping, plan: RankedPlan, findings_max: int
) -> RankedCounts | None:
    """What the deliveries of a log show; None if it is not a log of ranked deliveries alone."""
    of = AuditColumns(rows)
    wanted = dict.fromkeys([*plan.keys, plan.rank, *([plan.order] if plan.order else [])])
    corrupt = F.col(CORRUPT).isNotNull() if CORRUPT in rows.columns else F.lit(False)
    read = rows.select(
        *(of.value(name).alias(name) for name in wanted), F.col(LINE).alias(LINE), corrupt.alias(CORRUPT)
    )
    sample = read.limit(_SAMPLE_ROWS).toArrow().combine_chunks().to_batches()
    try:
        for batch in sample:
            _encode(KeyEncoder(mapping, plan), batch)
    except Unsuited:
        return None
    least = rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or "1"
    tasks = max(read.rdd.getNumPartitions(), int(least))
    by_rank = (
        read.mapInArrow(_encoder(mapping, plan), _ENCODED)
        .repartition(tasks, "stem")
        .sortWithinPartitions(F.desc_nulls_first("rank"))
    )
    total = RankedCounts()
    for row in by_rank.mapInArrow(_judge(mapping, plan, findings_max), _SAID).toLocalIterator():
        if row.unsuited is not None:
            return None
        total.add(msgspec.json.decode(row.counts, type=RankedCounts))
    return total


def _encode(encoder: KeyEncoder, batch: pa.RecordBatch) -> Any:
    if pc.any(batch.column(CORRUPT)).as_py():
        raise Unsuited("lines that are not JSON")
    return encoder.encode(batch, batch.column(LINE).to_numpy(zero_copy_only=False))


def _encoder(mapping: LogMapping, plan: RankedPlan) -> Any:
    schema = to_arrow_schema(_ENCODED)

    def perform(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        find_shipped()
        encoder = KeyEncoder(mapping, plan)
        for batch in batches:
            try:
                rows = _encode(encoder, batch)
            except Unsuited as error:
                said = {"stem": 0, "key": 0, "name": f"!{error}"}
                yield pa.RecordBatch.from_pylist([said], schema=schema)
                return
            names = [{"stem": stem, "key": key, "name": values} for stem, key, values in encoder.new_keys()]
            if names:
                yield pa.RecordBatch.from_pylist(names, schema=schema)
            yield pa.RecordBatch.from_arrays(
                [*map(pa.array, rows), pa.nulls(len(rows.key), pa.string())], schema=schema
            )

    return perform


def _judge(mapping: LogMapping, plan: RankedPlan, findings_max: int) -> Any:
    schema = to_arrow_schema(_SAID)

    def counted(batches: Iterator[pa.RecordBatch]) -> RankedCounts:
        keys: dict[int, str] = {}
        judge: RankedJudge | None = None
        for batch in batches:
            named = batch.filter(batch.column("rank").is_null())
            for row in named.select(["key", "name"]).to_pylist():
                if row["name"].startswith("!"):
                    raise Unsuited(row["name"][1:])
                if keys.setdefault(row["key"], row["name"]) != row["name"]:
                    raise DataError(row["name"], "it shares its hash with another name", "Report this")
            if named.num_rows < batch.num_rows:
                judge = judge or RankedJudge(mapping, plan, keys)
                rows = batch.slice(named.num_rows)
                judge.feed(*(np.asarray(rows.column(name)) for name in ("key", "rank", "pos")))
        return judge.counts(findings_max) if judge else RankedCounts()

    def perform(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        find_shipped()
        try:
            said = {"counts": msgspec.json.encode(counted(batches)).decode()}
        except Unsuited as error:
            said = {"unsuited": str(error)}
        yield pa.RecordBatch.from_pylist([said], schema=schema)

    return perform
