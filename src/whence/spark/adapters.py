"""Logs of other tools as tables that can be ordered: OpenTelemetry spans and ShiViz logs.

    requests --spans--> SPANS        a trace's spans: parent and links are their predecessors
    texts ----clocked--> CLOCKED     a log's events: each with its host and vector clock

Both work on streams and on tables at rest; `ORDERS` has the arguments of `causal_order` and `causal_sort`
for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from whence.errors import ImportFormatError
from whence.spark.shipping import find_shipped
from whence.spark.tables import CLOCKED, SPANS, columns_of

ADAPTERS = ("otel", "shiviz")

# What the columns of the two tables mean.
ORDERS: dict[str, dict[str, Any]] = {
    "otel": {"key": "trace_id", "id": "span_id", "depends_on": "depends_on", "event_time": "start"},
    "shiviz": {"key": ["log", "execution"], "clock": "clock", "origin": "host"},
}

# OTLP in JSON: one export request per line, as the collector's file exporter writes it. 64-bit integers are
# text.
_OTLP = """
resourceSpans array<struct<
  resource: struct<attributes: array<struct<key: string, value: struct<stringValue: string>>>>,
  scopeSpans: array<struct<spans: array<struct<
    traceId: string, spanId: string, parentSpanId: string, name: string,
    startTimeUnixNano: string, endTimeUnixNano: string,
    links: array<struct<traceId: string, spanId: string>>>>>>>>
"""


def read_adapted(
    spark: SparkSession,
    name: str,
    path: str,
    *,
    streaming: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The SPANS or CLOCKED table of a file or folder, at rest or as a stream of files.

    `options` are those of Spark's reader; for ShiViz logs also `pattern` and `delimiter`, as it takes them.
    """
    if "://" not in path and not Path(path).exists():
        raise ImportFormatError(path, "there is no such file or folder", "Check the path")
    given = dict(options or {})
    pattern, delimiter = given.pop("pattern", None), given.pop("delimiter", None)
    reader: Any = spark.readStream if streaming else spark.read
    reader = reader.options(**given)
    if name == "otel":
        return spans(reader.schema(_OTLP).json(path))
    texts = reader.text(path, wholetext=True)
    logs = texts.select("value", F.col("_metadata.file_name").alias("log"))
    return clocked(logs, pattern, delimiter)


def spans(requests: DataFrame) -> DataFrame:
    """SPANS: one row per span of the export requests.

    `depends_on` has the parent and the links within the trace; links into other traces are in `linked`.
    """
    resource = F.explode("resourceSpans").alias("of")
    scope = requests.select(resource).select("of.resource", F.explode("of.scopeSpans").alias("scope"))
    flat = scope.select("resource", F.explode("scope.spans").alias("span"))
    service = F.filter("resource.attributes", lambda pair: pair["key"] == "service.name")
    nothing = F.array().cast("array<string>")
    parent = F.when(F.length("span.parentSpanId") > 0, F.array("span.parentSpanId")).otherwise(nothing)
    linked = F.filter("span.links", lambda link: link["traceId"] != F.col("span.traceId"))
    own = F.filter("span.links", lambda link: link["traceId"] == F.col("span.traceId"))
    before = F.concat(parent, F.coalesce(F.transform(own, lambda link: link["spanId"]), nothing))
    names = F.transform(linked, lambda link: F.concat(link["traceId"], F.lit(":"), link["spanId"]))
    return flat.select(
        F.col("span.traceId").alias("trace_id"),
        F.col("span.spanId").alias("span_id"),
        F.get(service, F.lit(0))["value"]["stringValue"].alias("service"),
        F.col("span.name").alias("name"),
        _nanoseconds("span.startTimeUnixNano").alias("start"),
        _nanoseconds("span.endTimeUnixNano").alias("end"),
        F.array_distinct(before).alias("depends_on"),
        F.coalesce(names, nothing).alias("linked"),
    ).select(*columns_of(SPANS))


def _nanoseconds(column: str) -> Column:
    """A time from the text of its nanoseconds."""
    return F.timestamp_micros(F.floor(F.col(column).cast("decimal(20)") / 1000).cast("bigint"))


def clocked(texts: DataFrame, pattern: str | None = None, delimiter: str | None = None) -> DataFrame:
    """CLOCKED: one row per event of ShiViz logs; `texts` has a whole log and its name in each row.

    Without a `pattern` every line belongs to an event; with one, lines that do not match are not events, as
    in ShiViz.
    """

    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        find_shipped()  # the texts may be a stream
        from whence.foreign.shiviz import parse_log

        for batch in batches:
            for text, log in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                parsed = parse_log(str(log), str(text), pattern, delimiter)
                rows = [
                    {
                        "log": log,
                        "execution": execution.label or str(number),
                        "host": event.host,
                        "clock": list(event.clock.items()),
                        "line": event.line,
                        "event": event.text,
                    }
                    for number, execution in enumerate(parsed.executions, 1)
                    for event in execution.events
                ]
                yield pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(CLOCKED))

    return texts.select("value", "log").mapInArrow(parse, CLOCKED)
