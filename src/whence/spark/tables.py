"""Every table of the pipeline: its columns, declared once, and the two ways to get the first of them.

A stage is a function from tables to tables. It calls `require` on what it is given, so that a wrong table
fails at the door with the column's name and not inside Spark. Null in a measure means that the run did not
record what the measure needs, never zero.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whence.errors import SchemaError, missing_extra
from whence.trace.measures import Value, read_measures
from whence.trace.reader import Trace, open_trace

try:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        BooleanType,
        ByteType,
        DataType,
        DoubleType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )
except ImportError as error:
    raise missing_extra("the Spark pipeline", "pyspark", "spark") from error

if TYPE_CHECKING:
    from pyspark.sql import Column

SHARE_BYTES = 32 << 20  # of a file that one row of `read_segments` stands for

_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
    "binary": BinaryType(),
}
_TYPES |= {f"array<{name}>": ArrayType(kind) for name, kind in list(_TYPES.items())}
_TYPES["map<string,bigint>"] = MapType(StringType(), LongType())


def columns_by_name(text: str) -> dict[str, str]:
    """The types of columns, from "name type, name type"."""
    return dict(column.split(" ") for column in text.split(", "))


def table_of(columns: str | Mapping[str, str]) -> StructType:
    """A table's schema: the names of its columns with their types, as a mapping or "name type, name type"."""
    types = columns_by_name(columns) if isinstance(columns, str) else columns
    return StructType([StructField(name, _TYPES[kind]) for name, kind in types.items()])


EVENT = columns_by_name(
    "time_us bigint, kind tinyint, origin int, number bigint, peer int, total_bytes int, "
    "control_bytes int, detail string"
)

# A trace at rest: one row is a segment of one node's events (docs/trace-format.md).
SEGMENTS = table_of(
    {
        "run": "string",
        "node": "string",
        "segment": "int",
        "first_seq": "bigint",
        "events": "int",
        "names": "array<string>",
    }
    | {name: f"array<{kind}>" for name, kind in EVENT.items()}
)
# The flat view: one row is one event, with names instead of indices.
EVENTS = table_of(
    {"run": "string", "node": "string", "seq": "bigint"} | EVENT | {"origin": "string", "peer": "string"}
)
# What the manifests say of each run, as far as the verifier must know it.
MANIFESTS = table_of("run string, protocol string, promises_json string, nodes array<string>")
# One run of a sweep.
STATUS = table_of(
    "run string, status string, seconds double, events bigint, folder string, parameters_json string, "
    "error string"
)
# What kernels counted while they ran: a number, or one place of a list or a histogram.
MEASURED = table_of("run string, measure string, place bigint, value bigint")
# What one node packed into its packets.
PACKING = table_of(
    "run string, node string, packets bigint, copies bigint, aggregated_packets bigint, "
    "aggregated_copies bigint, messages_max bigint"
)
# What one message depends on.
DEPENDENCIES = table_of("run string, origin string, number bigint, dependencies bigint")
# One message at one node other than its origin.
LATENCY = table_of(
    "run string, node string, origin string, number bigint, broadcast_us bigint, received_us bigint, "
    "delivered_us bigint, reception_us bigint, delivery_us bigint, held_us bigint"
)
_TRAFFIC = columns_by_name(
    "run string, broadcasts bigint, deliveries bigint, packets bigint, total_bytes bigint, "
    "control_bytes bigint, payload_bytes bigint, discards bigint, packets_per_broadcast double, "
    "control_bytes_per_packet double"
)
TRAFFIC = table_of(_TRAFFIC)
# How many point-to-point messages one node sent to another.
TRAFFIC_MATRIX = table_of("run string, source string, to string, messages bigint")
BUFFERS = table_of("run string, node string, held_peak bigint, entries_peak bigint")
LATENCY_MEASURES = ("reception", "delivery", "held")
SUMMARY = table_of(
    _TRAFFIC
    | {
        f"{measure}_{statistic}_us": "bigint" if statistic == "max" else "double"
        for measure in LATENCY_MEASURES
        for statistic in ("mean", "p50", "p99", "max")
    }
    | {"held_share": "double", "held_peak_max": "bigint", "entries_peak_max": "bigint"}
)
# Where a node is at a time, in metres; and when two nodes (two names), or one node with itself, are there.
POSITIONS = table_of("time_us bigint, node string, x double, y double")
INTERVALS = table_of("a string, b string, start_us bigint, stop_us bigint")
# One run judged by the verifier. `report_json` is the whole RunReport; if the rows are not a trace, it is
# null and `error` says why.
VERDICTS = table_of("run string, ok boolean, report_json string, error string")
# What a report spells out, one finding a row; `chain` is its witness (docs/verification.md).
STEP = table_of("event string, message string, node string, seq bigint")
FINDINGS = StructType(
    [
        *table_of(dict.fromkeys(("run", "kind", "node", "message"), "string")),
        StructField("seq", LongType()),
        StructField("other", StringType()),
        StructField("other_seq", LongType()),
        StructField("chain", ArrayType(STEP)),
        StructField("broadcast_us", LongType()),
        StructField("delivered_us", LongType()),
        StructField("detail", StringType()),
    ]
)
# An OpenTelemetry span: its parent and its links within the trace are its predecessors.
SPANS = table_of(
    dict.fromkeys(("trace_id", "span_id", "service", "name"), "string")
    | {"start": "timestamp", "end": "timestamp", "depends_on": "array<string>", "linked": "array<string>"}
)
# An event of a ShiViz log.
CLOCKED = table_of(
    "log string, execution string, host string, clock map<string,bigint>, line bigint, event string"
)


def require(table: DataFrame, schema: StructType, table_name: str) -> None:
    """Raise `SchemaError` unless `table` has all columns of `schema` with these types; more are welcome."""
    found = {field.name: field.dataType.simpleString() for field in table.schema.fields}
    for field in schema.fields:
        wanted = field.dataType.simpleString()
        if field.name not in found:
            reason = f"it is missing (expected {wanted}; got the columns {', '.join(found) or 'none'})"
        elif found[field.name] != wanted:
            reason = f"expected {wanted}, got {found[field.name]}"
        else:
            continue
        raise SchemaError(
            f"table {table_name!r}, column {field.name!r}",
            reason,
            "See the tables in docs/spark.md",
        )


def columns_of(schema: StructType) -> list[Column]:
    """The columns of a declared table, in its order and cast to its types: how a stage ends."""
    return [F.col(field.name).cast(field.dataType).alias(field.name) for field in schema.fields]


def small_table(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: StructType) -> DataFrame:
    """Rows of the driver as a table, spread over all cores.

    As Arrow they go to the JVM as they are. Of plain tuples Spark would make rows in Python workers, for
    which it starts a daemon of their own.
    """
    import pyarrow as pa

    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    fields = to_arrow_schema(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=fields), schema)


def read_segments(
    spark: SparkSession, trace: Trace | Path | str, runs: Collection[str] | None = None
) -> DataFrame:
    """The packed rows of a trace folder, or of a sweep's folder: of all its runs, or of those named.

    The manifests, sizes and hashes are checked first, here on the driver. Tasks read the files with Arrow,
    from storage that driver and workers share, and pack the events of each segment into a row.
    """
    import pyarrow as pa

    from whence.trace.columns import FLAT_SCHEMA, PACKED_SCHEMA, packed_of
    from whence.trace.reader import opened_part

    opened = trace if isinstance(trace, Trace) else open_trace(trace)
    shares = [
        (source.manifest.run, str((source.folder / part.file).resolve()), share, count)
        for source in opened.sources
        if runs is None or source.manifest.run in runs
        for part in source.manifest.parts
        for count in [1 + part.size_bytes // SHARE_BYTES]
        for share in range(count)
    ]
    if not shares:
        return small_table(spark, [], SEGMENTS)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for run, path, share, count in zip(*batch.to_pydict().values(), strict=True):
                with opened_part(Path(path)) as stored:
                    for group in range(share, stored.groups, count):
                        names = (FLAT_SCHEMA if stored.is_flat else PACKED_SCHEMA).names
                        rows = stored.read(group, names)
                        yield packed_of(run, rows) if stored.is_flat else rows.cast(PACKED_SCHEMA)

    of_tasks = table_of("run string, path string, share int, count int")
    return small_table(spark, shares, of_tasks).mapInArrow(read, SEGMENTS)


def read_manifests(
    spark: SparkSession, trace: Trace | Path | str, runs: Collection[str] | None = None
) -> DataFrame:
    """One MANIFESTS row for each run of a trace, or for those named."""
    import msgspec

    opened = trace if isinstance(trace, Trace) else open_trace(trace, hashes=False)
    rows = [
        (
            run,
            opened.of_run(run)[0].protocol,
            msgspec.json.encode(opened.promises(run)).decode(),
            opened.nodes(run),
        )
        for run in (opened.runs if runs is None else sorted(set(runs)))
    ]
    return small_table(spark, rows, MANIFESTS)


def read_measured(spark: SparkSession, folder: Path | str, runs: Collection[str] | None = None) -> DataFrame:
    """MEASURED: the `measures.json` of a sweep's runs, of all or of those named, in rows.

    The files are read on the workers, which share the sweep's storage. A run that no kernel ran has no row.
    """
    import pyarrow as pa

    out = Path(folder).resolve()
    names = sorted({path.name.removeprefix("run=") for path in out.glob("run=*")} if runs is None else runs)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = (read_measures(out / f"run={run}") for run in batch.column(0).to_pylist())
            rows = [
                {"run": one.run, "measure": name, "place": place, "value": value}
                for one in found
                if one is not None
                for name, values in one.measures.items()
                for place, value in _places(values)
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(MEASURED))

    return small_table(spark, [(name,) for name in names], table_of("run string")).mapInArrow(read, MEASURED)


def _places(values: Value) -> Iterator[tuple[int | None, int]]:
    if isinstance(values, int):
        yield None, values
    elif isinstance(values, list):
        yield from enumerate(values)
    else:
        yield from ((int(place), value) for place, value in values.items())


def flatten(segments: DataFrame) -> DataFrame:
    """The EVENTS view of packed SEGMENTS: one row per event, names resolved."""
    require(segments, SEGMENTS, "segments")
    position = F.col("position")
    # Positions are exploded and the lists looked up, not the lists zipped and exploded: Spark then reads only
    # the lists that a measure needs, and makes no structs.
    exploded = segments.select(*SEGMENTS.names, F.posexplode("kind").alias("position", "of_kind"))
    lists = {name: F.get(name, position) for name in EVENT if name != "kind"} | {"kind": F.col("of_kind")}
    lists |= {name: F.get("names", lists[name]) for name in ("origin", "peer")}  # index -1 is outside: null
    return exploded.select(
        "run",
        "node",
        (F.col("first_seq") + position).alias("seq"),
        *(lists[name].alias(name) for name in EVENT),
    )
