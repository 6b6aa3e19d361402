"""The verifier on Spark: each run is gathered in one task and judged by the very function that judges a
trace in process, so the reports are equal. Knows no protocol: import-linter keeps it so.

On one machine the in-process verifier needs less CPU (docs/spark.md). This is for traces that do not fit one
machine, for the many runs of a sweep on a cluster, and for pipelines that go on with the verdicts as a table.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

from whence.errors import TraceError
from whence.spark.tables import (
    FINDINGS,
    MANIFESTS,
    SEGMENTS,
    VERDICTS,
    columns_of,
    read_manifests,
    read_segments,
    require,
)
from whence.trace.reader import Trace, open_trace
from whence.trace.schema import PromisesMade
from whence.verify.load import columns_needed
from whence.verify.report import WITNESS_MAX, RunReport
from whence.verify.run import promised, require_verifiable, verify_table


def verify(
    segments: DataFrame,
    manifests: DataFrame,
    *,
    witness_max: int | None = WITNESS_MAX,
    complete: bool | None = None,
    causal: bool | None = None,
    timed: bool = True,
) -> DataFrame:
    """VERDICTS: one row for each run that has a manifest or rows.

    `witness_max`, `complete` and `causal` are those of `whence.verify.run.verify_trace`. `timed=False`
    leaves the events' times behind, where no run promises to be timely: fewer bytes are shuffled.
    """
    require(segments, SEGMENTS, "segments")
    require(manifests, MANIFESTS, "manifests")

    def judge(rows: pa.Table, about: pa.Table) -> pa.Table:
        return _verdict(rows, about, witness_max, complete, causal)

    # Only what the verifier reads is shuffled: without times a quarter of a full trace.
    rows = segments.select(*columns_needed(timed)).groupBy("run")
    return rows.cogroup(manifests.groupBy("run")).applyInArrow(judge, VERDICTS)


def verify_folder(
    spark: SparkSession,
    folder: Trace | Path | str,
    *,
    runs: Collection[str] | None = None,
    witness_max: int | None = WITNESS_MAX,
    complete: bool | None = None,
    causal: bool | None = None,
) -> list[RunReport]:
    """Verify a trace folder, or a sweep's folder: `verify_trace`'s reports, sorted by run.

    `runs` limits it to those named: a sweep's folder may hold runs of other grids too.
    """
    trace = folder if isinstance(folder, Trace) else open_trace(folder)
    wanted = trace.runs if runs is None else runs
    for run in wanted:
        require_verifiable(trace, run)
    verdicts = verify(
        read_segments(spark, trace, runs),
        read_manifests(spark, trace, runs),
        witness_max=witness_max,
        complete=complete,
        causal=causal,
        timed=any(trace.promises(run).timely for run in wanted),
    )
    rows = sorted(verdicts.collect(), key=lambda row: str(row.run))
    for row in rows:
        if row.error is not None:
            raise TraceError(
                f"run {row.run!r} in {trace.path}", row.error, "Record it again; see docs/trace-format.md"
            )
    return [msgspec.json.decode(row.report_json, type=RunReport) for row in rows]


def findings(verdicts: DataFrame) -> DataFrame:
    """FINDINGS: what the reports spell out, one row each."""
    require(verdicts, VERDICTS, "verdicts")
    each = StructType([field for field in FINDINGS.fields if field.name != "run"])
    report = F.from_json("report_json", StructType([StructField("findings", ArrayType(each))]))
    return (
        verdicts.select("run", F.explode(report["findings"]).alias("finding"))
        .select("run", "finding.*")
        .select(columns_of(FINDINGS))
    )


def _verdict(
    rows: pa.Table, about: pa.Table, witness_max: int | None, complete: bool | None, causal: bool | None
) -> pa.Table:
    """Judge one run; bad data becomes an `error`, so that one bad run does not end the job for all."""
    verdict: dict[str, Any]
    described = about.to_pylist()
    if not described:
        run = rows.column("run")[0].as_py()
        verdict = {"run": run, "ok": False, "error": "the run has rows but no manifest"}
    else:
        run, protocol, promises_json, nodes = (described[0][name] for name in MANIFESTS.names)
        promises = promised(msgspec.json.decode(promises_json, type=PromisesMade), complete, causal)
        try:
            report = verify_table(rows, promises, nodes, witness_max, run=run, protocol=protocol)
        except TraceError as error:
            verdict = {"run": run, "ok": False, "error": f"{error.what}: {error.reason}"}
        else:
            text = msgspec.json.encode(report).decode()
            verdict = {"run": run, "ok": report.ok, "report_json": text}
    return pa.Table.from_pylist([verdict], schema=to_arrow_schema(VERDICTS))
