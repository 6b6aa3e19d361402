"""A mapping as DataFrame expressions: `normalise` gives the rows of `whence.foreign.mapping`, as a table.

An expression of a mapping is a column, a template or a list of these, so that it compiles to a Spark column
as it does to a Python closure; a property test holds the two to each other on every case of the corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from whence.errors import ImportFormatError, MisuseError
from whence.foreign.mapping import (
    BASIC_TIME,
    BELOW_MICROS,
    ISO_TIME,
    LIST_SPLIT,
    SEPARATOR,
    UNITS_NS,
    LogMapping,
    Template,
    columns_of,
    kind_rule,
    order_of,
    parse,
    session_columns,
    watched_columns,
)
from whence.foreign.model import NUMBER, PLAIN_NUMBER, EventKind
from whence.foreign.tables import require_columns

UNREAD = ("send_order", "clock", "time", "end")  # fields whose texts may mean nothing
TABLES = ("csv", "jsonl", "parquet")  # the formats that are tables for Spark, too
LINE = "_line"  # the place of a row in its file
CORRUPT = "_corrupt"  # the text of a line that is not JSON


@contextmanager
def exact_reading(spark: SparkSession) -> Iterator[None]:
    """Names of columns keep their case, and times of nanoseconds can be read, while a log is judged."""
    wanted = dict.fromkeys(("spark.sql.caseSensitive", "spark.sql.legacy.parquet.nanosAsLong"), "true")
    before = {key: str(spark.conf.get(key)) for key in wanted}
    try:
        for key, value in wanted.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def read_rows(spark: SparkSession, path: Path | str, mapping: LogMapping) -> DataFrame:
    """The rows of a table as they are; every column a text or a whole number, and `LINE`."""
    path = str(path)
    several = "://" not in path and Path(path).is_dir()
    if several and order_of(mapping) == "line":
        raise MisuseError(
            path, "it is several files, whose lines are in no order together", "Map `order` to a column"
        )
    read = {"csv": _csv_rows, "parquet": _parquet_rows}.get(mapping.format or "", _json_rows)
    rows = read(spark, path, mapping)
    require_columns(path, mapping, dict.fromkeys(name for name in rows.columns if name != CORRUPT))
    return rows.withColumn(LINE, F.monotonically_increasing_id() + 1)


def _csv_rows(spark: SparkSession, path: str, mapping: LogMapping) -> DataFrame:
    """A record may go over several lines, which Spark reads in one piece; most tables have none."""
    options = {"header": "true", "sep": mapping.delimiter or ",", "quote": '"', "escape": '"'}
    names = spark.read.options(**options).csv(path).schema
    if any(name.startswith(" ") for name in names.names):  # blanks after delimiters are no part of cells
        options["ignoreLeadingWhiteSpace"] = "true"
        names = spark.read.options(**options).csv(path).schema
    quotes = F.length("value") - F.length(F.replace("value", F.lit('"'), F.lit("")))
    torn = "true" if _some_line(spark, path, quotes % 2 == 1) else "false"
    rows = spark.read.options(
        **options, multiLine=torn, enforceSchema="false", columnNameOfCorruptRecord=CORRUPT
    )
    read = rows.schema(StructType([*names, StructField(CORRUPT, StringType())])).csv(path)
    more = ", ".join(f"_{at} string" for at in range(len(names) + 1))  # one cell more than the header has
    cells = F.from_csv(CORRUPT, more, {**options, "header": "false"})
    return read.withColumn(CORRUPT, cells.getField(f"_{len(names)}"))


def _json_rows(spark: SparkSession, path: str, mapping: LogMapping) -> DataFrame:
    """Spark would take a list of objects for several rows, and letters that are none for others."""
    text = F.btrim("value", F.lit(" \t\r"))
    is_object = text.startswith("{") & text.endswith("}") & F.is_valid_utf8("value")
    if _some_line(spark, path, (text != "") & ~is_object):
        raise ImportFormatError(path, "some lines are not JSON objects in UTF-8", "One object per line")
    reader = spark.read.schema(json_schema(mapping))
    return reader.json(path, columnNameOfCorruptRecord=CORRUPT, allowSingleQuotes=False)


def _parquet_rows(spark: SparkSession, path: str, mapping: LogMapping) -> DataFrame:
    read = spark.read.parquet(path)
    finer = _nanosecond_columns(read)
    return read.select(*(_plain(field, field.name in finer).alias(field.name) for field in read.schema))


def _some_line(spark: SparkSession, path: str, condition: Column) -> bool:
    return bool(spark.read.text(path).where(condition).head(1))


def _nanosecond_columns(rows: DataFrame) -> set[str]:
    """Spark reads these as numbers, and does not say which; of what lies elsewhere none are known."""
    files = local_files(rows)
    schema = pq.read_schema(files[0]) if files else ()
    return {each.name for each in schema if pa.types.is_timestamp(each.type) and each.type.unit == "ns"}


def local_files(rows: DataFrame) -> list[Path]:
    """The files that a table is read from, in order; none if one of them lies elsewhere."""
    found = [urlsplit(each) for each in rows.inputFiles()]
    if any(each.scheme not in {"", "file"} for each in found):
        return []
    return sorted(Path(unquote(each.path)) for each in found)


def json_schema(mapping: LogMapping) -> StructType:
    """The columns that a mapping names, and where a line goes that is not JSON."""
    return _json_schema(columns_of_mapping(mapping)).add(CORRUPT, StringType())


def _plain(field: StructField, is_nanoseconds: bool) -> Column:
    column = F.col(f"`{field.name}`")
    if is_nanoseconds:
        micros = F.timestamp_micros(F.floor(column / 1000))
        below = F.lpad(F.pmod(column, F.lit(1000)).cast("string"), 3, "0")
        return F.concat(F.date_format(micros, "yyyy-MM-dd HH:mm:ss.SSSSSS"), below, F.lit("Z"))
    if isinstance(field.dataType, ArrayType | MapType | StructType):
        return F.to_json(column)
    if isinstance(field.dataType, IntegralType):
        return column
    if isinstance(field.dataType, BinaryType):
        text = column.cast("string")
        return F.when(F.is_valid_utf8(text), text).otherwise(F.lower(F.hex(column)))
    if isinstance(field.dataType, TimestampType):
        return F.date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
    return column.cast("string")


def columns_of_mapping(mapping: LogMapping) -> list[str]:
    """The columns that a mapping reads."""
    return list(dict.fromkeys(column for field in mapping.event for column in columns_of(mapping, field)))


def _json_schema(columns: Iterable[str]) -> StructType:
    """Texts at the paths that are named, by the whole name and by its parts."""
    tree: dict[str, Any] = {}
    for column in columns:
        tree.setdefault(column, None)
        *inner, last = column.split(".")
        at = tree
        for name in inner:
            if not isinstance(at.get(name), dict):
                at[name] = {}
            at = at[name]
        at.setdefault(last, None)
    return _struct(tree)


def _struct(tree: Mapping[str, Any]) -> StructType:
    return StructType([
        StructField(name, StringType() if below is None else _struct(below)) for name, below in tree.items()
    ])  # fmt: skip


class AuditColumns:
    """The expressions of a mapping over the columns of a table."""

    def __init__(self, table: DataFrame) -> None:
        self._schema = table.schema

    def path(self, path: str) -> Column:
        """A column, or what lies at a dotted path; null if the table has neither."""
        found = []
        if path in self._schema.names:
            found.append(F.col(f"`{path}`"))
        first, *inner = path.split(".")
        if inner and first in self._schema.names and isinstance(self._schema[first].dataType, StructType):
            found.append(reduce(lambda column, name: column.getField(name), inner, F.col(f"`{first}`")))
        elif inner and first in self._schema.names:
            found.append(F.get_json_object(f"`{first}`", "$." + ".".join(inner)))
        usable = [F.nullif(column.cast("string"), F.lit("")) for column in found]
        return F.coalesce(*usable) if usable else F.lit(None).cast("string")

    def value(self, path: str) -> Column:
        """As `path`, but whole numbers stay numbers."""
        if path in self._schema.names and isinstance(self._schema[path].dataType, IntegralType):
            return F.col(f"`{path}`")
        return self.path(path)

    def text(self, expression: Any) -> Column:
        """The text of an expression."""
        parts = self.cells(expression)
        if len(parts) == 1:
            return parts[0]
        doubled = [F.coalesce(F.replace(part, F.lit("|"), F.lit("||")), F.lit("")) for part in parts]
        pieces = [doubled[0]]
        for part in doubled[1:]:
            pieces += [F.lit(SEPARATOR), part]
        return F.when(F.coalesce(*parts).isNotNull(), F.concat(*pieces))

    def cells(self, expression: Any) -> list[Column]:
        """The texts of its parts."""
        return [self._template(template) for template in parse(expression)]

    def _template(self, template: Template) -> Column:
        parts = [self.path(text) if is_column else F.lit(text) for is_column, text in template.parts]
        return parts[0] if len(parts) == 1 else F.concat(*parts)


def normalise(rows: DataFrame, mapping: LogMapping, *, exact: bool = False) -> DataFrame:
    """The events of a table: the columns of the model, and `odd_kind`, `odd_order`, `unread_*`, `has`.

    Places and ranks are whole numbers of 64 bits; with `exact` they are texts of any numbers.
    """
    of, event = AuditColumns(rows), mapping.event
    nothing = F.lit(None).cast("string")

    def text(field: str) -> Column:
        return of.text(event[field]) if field in event else nothing

    def names(field: str) -> Column:
        cells = [_names(cell) for cell in of.cells(event[field])] if field in event else []
        return F.concat(*cells) if cells else F.array().cast("array<string>")

    def time(field: str) -> Column:
        unit_ns = UNITS_NS[mapping.time_unit]
        return _time(text(field), unit_ns) if field in event else F.lit(None).cast("bigint")

    def odd(field: str, number: Column) -> Column:
        return text(field).isNotNull() & number.isNull() if field in event else F.lit(False)

    proc = F.coalesce(text("process"), F.lit("log"))
    ctx = F.coalesce(text("context"), proc)
    kind, odd_kind = _kind(of, event.get("kind", "deliver"))
    delivers = kind.isin(int(EventKind.DELIVER), int(EventKind.ACK))
    no_clock = F.lit(None).cast("map<string,bigint>")
    clock = _clock(text("clock")) if "clock" in event else no_clock
    channel = event.get("channel") or event.get("sender")
    rank = _number(text("send_order"), exact)
    t0, t1 = time("time"), time("end")
    readings = dict(zip(UNREAD, (rank, clock, t0, t1), strict=True))
    order = order_of(mapping)
    of_session = session_columns(mapping)
    line = F.col(LINE).cast("bigint")
    if order == "seq":
        place = _number(text("order"), exact)
        pos = F.coalesce(place, _time(text("order"), 1).cast("string")) if exact else place
    else:
        pos = {"line": line, "clock": F.try_element_at(clock, ctx)}.get(order, F.lit(None).cast("bigint"))
    return rows.select(
        proc.alias("proc"),
        ctx.alias("ctx"),
        pos.alias("pos"),
        kind.cast("tinyint").alias("kind"),
        text("message").alias("msg"),
        names("to").alias("to"),
        F.when(delivers, text("session") if "session" in event else ctx).alias("scope"),
        F.when(delivers, text("group") if "group" in event else proc).alias("group"),
        (of.text(channel) if channel else nothing).alias("channel"),
        rank.alias("rank"),
        names("depends_on").alias("deps"),
        names("links").alias("links"),
        text("ref").alias("ref"),
        clock.alias("vc"),
        t0.alias("t0"),
        t1.alias("t1"),
        line.alias("line"),
        odd_kind.alias("odd_kind"),
        odd("order", pos).alias("odd_order"),
        *(odd(field, read).alias(f"unread_{field}") for field, read in readings.items()),
        F.array(
            *(
                F.when(of.path(column).isNotNull() & (delivers | F.lit(column not in of_session)), column)
                for column in watched_columns(mapping)
            )
        ).alias("has"),
        (F.col(CORRUPT).isNotNull() if CORRUPT in rows.columns else F.lit(False)).alias("corrupt"),
    )


def _kind(of: AuditColumns, spec: Any) -> tuple[Column, Column]:
    """The kind of a row, and whether its text is unknown."""
    rule = kind_rule(spec)
    if rule.constant is not None:
        return F.lit(int(rule.constant)), F.lit(None).cast("string")
    text = of.text(rule.column)
    pairs = [F.lit(each) for item in rule.values.items() for each in (item[0], int(item[1]))]
    table = F.create_map(*pairs)
    known = F.coalesce(F.try_element_at(table, text), F.try_element_at(table, F.lower(text)))
    absent = int(EventKind.INTERNAL if rule.default is None else rule.default)
    kind = F.when(text.isNull(), F.lit(absent)).otherwise(F.coalesce(known, F.lit(int(EventKind.INTERNAL))))
    return kind, F.when(known.isNull(), text)


def _clock(text: Column) -> Column:
    clock = F.from_json(text, "map<string,bigint>")
    return F.when(F.forall(F.map_values(clock), lambda count: F.coalesce(count >= 0, F.lit(False))), clock)


def _number(text: Column, exact: bool) -> Column:
    if exact:
        return F.nullif(F.regexp_extract(text, NUMBER, 1), F.lit(""))
    return F.trim(text).try_cast("bigint")


def _time(text: Column, unit_ns: int) -> Column:
    """Nanoseconds, from a number in units or from an ISO time; null for what 64 bits do not hold."""
    number = F.nullif(F.regexp_extract(text, PLAIN_NUMBER, 1), F.lit(""))
    whole = F.try_multiply(number.try_cast("bigint"), F.lit(unit_ns))
    parts = F.try_multiply(number.try_cast("decimal(38,9)"), F.lit(unit_ns)).try_cast("bigint")
    iso = F.regexp_replace(F.trim(text), BASIC_TIME, "$1-$2-$3T$4:$5:$6")
    when = F.try_to_timestamp(F.when(iso.rlike(ISO_TIME), F.translate(iso, ",", ".")))
    finer = F.rpad(F.regexp_extract(iso, BELOW_MICROS, 1), 3, "0").cast("bigint")
    written = F.try_add(F.try_multiply(F.unix_micros(when), F.lit(1000)), finer)
    return F.coalesce(whole, parts, written)


def _names(text: Column) -> Column:
    """The names in a cell: a JSON list, or words."""
    listed = F.from_json(text, "array<string>")
    words = F.split(text, LIST_SPLIT)
    found = F.when(text.startswith("["), listed).otherwise(words)
    kept = F.filter(found, lambda name: name.isNotNull() & (name != ""))
    return F.coalesce(kept, F.array().cast("array<string>"))
