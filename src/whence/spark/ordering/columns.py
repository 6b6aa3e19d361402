"""The description of a table that callers of `causal_order` and `causal_sort` give, checked, as columns.

Whatever the caller's columns are called and typed, an ordering sees five: the row's time and lifetime in
microseconds, its id, its predecessors with their deadlines, and a number to break ties with. Where a column
of the caller's is just that, it is not sent to the workers twice (`OrderColumns.own`). On the workers these
become arrivals of `whence.order`: the few lines that stream and sort share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.errors import MisuseError, SchemaError, missing_extra
from whence.order import POLICIES, Arrival, CausalOrder, Ending, Policy

try:
    from pyspark.errors import PySparkException
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import (
        ArrayType,
        DataType,
        DayTimeIntervalType,
        IntegralType,
        LongType,
        MapType,
        NumericType,
        StringType,
        StructField,
        StructType,
        TimestampNTZType,
        TimestampType,
    )
except ImportError as error:
    raise missing_extra("the Spark pipeline", "pyspark", "spark") from error

# The columns that an ordering adds to a row.
ADDED = StructType(
    [
        StructField("outcome", StringType()),
        StructField("missing", ArrayType(StringType())),  # of the type of the ids, if that is another one
        StructField("position", LongType()),
        StructField("epoch", TimestampType()),
    ]
)
HELPERS = ("__at_us", "__id", "__needs", "__needs_us", "__lifetime_us", "__tie")
KEY = "__key"
_ALL_TIME_US = 1 << 61  # a lifetime that outlives every table
_UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_UNIT_OF = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d"}
_UNIT_OF |= {"millisecond": "ms", "microsecond": "us"}


class OrderOptions(TypedDict, total=False):
    """What a caller says of a table, beside the lifetime of its rows (docs/stream.md, What goes in)."""

    key: str | Sequence[str] | None  # None: one order for all rows
    id: str | None
    depends_on: str | None
    event_time: str | None
    clock: str | None
    origin: str | None
    policy: str
    lifetime_max: str | timedelta | None
    remember: str | timedelta | None


class OrderColumns(NamedTuple):
    """A caller's description, checked: which columns mean what, and how long things last."""

    key: tuple[str, ...]
    id_type: DataType
    policy: Policy
    remember_us: int | None  # None: the largest lifetime, which a column of them tells only row by row
    horizon_us: int
    vector: bool
    own: dict[str, str]  # those of HELPERS and KEY that are columns of the caller's as they stand
    constant_us: int | None  # the lifetime, if it is the same for all rows
    # The five columns.
    at: Column
    id: Column
    needs: Column  # array of struct<id string, deadline_us bigint>
    lifetime_us: Column
    tie: Column

    @property
    def numeric(self) -> bool:
        """Whether ids are numbers, to be compared as such."""
        return isinstance(self.id_type, IntegralType)


def describe(
    table: DataFrame, *, lifetime: str | timedelta | None = None, **options: Unpack[OrderOptions]
) -> OrderColumns:
    """Check a description against a table; the first thing that is wrong is the error."""
    for unknown in options.keys() - OrderOptions.__annotations__.keys():
        raise MisuseError(
            f"argument {unknown!r}", "the order has none of that name", "See docs/stream.md, What goes in"
        )
    policy, remember = options.get("policy", "emit"), options.get("remember")
    if policy not in POLICIES:
        raise MisuseError(f"policy {policy!r}", "there is none of that name", "Choose from: emit, drop")
    key, id_, depends_on = options.get("key"), options.get("id"), options.get("depends_on")
    clock, event_time = options.get("clock"), options.get("event_time")
    keys = (key,) if isinstance(key, str) else tuple(key or ())
    for name in keys:
        type_of(table, name, "key")
    for name in ADDED.names:
        if name in table.columns:
            raise SchemaError(
                f"column {name!r}",
                "the table has it already, and the order adds it",
                "Rename or drop it first",
            )
    if (clock is None) == (id_ is None):
        raise MisuseError(
            "causal order",
            "rows are known by `id` or by a vector `clock`: give one of the two",
            'Give id="..." and depends_on="...", or clock="..." and origin="..."',
        )
    id_type, id_column, needs = (
        _named(table, str(id_), depends_on)
        if clock is None
        else _clocked(table, clock, options.get("origin"))
    )
    lifetime_us, horizon_us = _lifetime(table, lifetime, options.get("lifetime_max"))
    is_constant = lifetime is not None and (isinstance(lifetime, timedelta) or lifetime not in table.columns)
    return OrderColumns(
        key=keys,
        id_type=id_type,
        policy=policy,
        remember_us=None if remember is None else duration_us("remember", remember),
        horizon_us=horizon_us,
        vector=clock is not None,
        own=_own(table, keys, event_time, *((id_, depends_on) if clock is None else (None, None))),
        constant_us=duration_us("lifetime", lifetime) if is_constant and lifetime is not None else None,
        at=_time(table, event_time),
        id=id_column,
        needs=needs,
        lifetime_us=lifetime_us,
        tie=_tie(table),
    )


def type_of(table: DataFrame, name: str, role: str) -> DataType:
    """The type of a column that the caller named, or a `SchemaError`."""
    for field in table.schema.fields:
        if field.name == name:
            return field.dataType
    raise SchemaError(
        f"column {name!r} ({role})",
        f"it is missing (got the columns {', '.join(table.columns) or 'none'})",
        f"Name the column that holds the {role}",
    )


def duration_us(what: str, value: str | timedelta) -> int:
    """A duration such as `10s`, `1.5 minutes` or a timedelta, in microseconds."""
    if isinstance(value, timedelta):
        us = value // timedelta(microseconds=1)
    else:
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", value.lower())
        unit = found[2] if found else ""
        if unit not in _UNITS_US:
            unit = _UNIT_OF.get(unit.removesuffix("s"), "")
        if not found or unit not in _UNITS_US:
            raise MisuseError(
                f"{what} {value!r}",
                "it is not a duration",
                "Write a number and a unit: 10s, 500 ms, 5 minutes",
            )
        us = round(float(found[1]) * _UNITS_US[unit])
    if us < 0:
        raise MisuseError(f"{what} {value!r}", "it is negative", "Give a positive duration")
    return us


def helpers(order: OrderColumns) -> list[Column]:
    """The five columns of an order, under separate names; predecessors and their deadlines apart.

    Without those that the workers have already.
    """
    columns = (
        F.unix_micros(order.at),
        order.id,
        F.transform(order.needs, lambda need: need["id"]),
        F.transform(order.needs, lambda need: need["deadline_us"]),
        order.lifetime_us,
        order.tie,
    )
    known = set(order.own)
    if "__needs" in known:
        known.add("__needs_us")  # there are none
    if order.constant_us is not None:
        known.add("__lifetime_us")
    return [column.alias(name) for name, column in zip(HELPERS, columns, strict=True) if name not in known]


def keyed_helpers(table: DataFrame, order: OrderColumns) -> list[Column]:
    """The same, and the key of a row as one text."""
    return [*helpers(order), *([] if KEY in order.own else [_key_of(table, order).alias(KEY)])]


def placed_rows(table: DataFrame, order: OrderColumns, parts: int, name: str) -> DataFrame:
    """The rows with the columns of an order, and which of so many parts the key of each belongs to."""
    place = F.pmod(F.xxhash64(_key_of(table, order)), F.lit(parts)).cast("int")
    own = map(quoted_column, table.columns)
    return table.select(*own, *keyed_helpers(table, order), place.alias(name))


def nulls_of(rows: DataFrame, *but: str) -> list[Column]:
    """Nothing in each column but these: for a time that comes without a row."""
    fields = (field for field in rows.schema.fields if field.name not in but)
    return [F.lit(None).cast(field.dataType).alias(field.name) for field in fields]


def _key_of(table: DataFrame, order: OrderColumns) -> Column:
    """The key of a row as one text: a column of text as it is, anything else as JSON."""
    if not order.key:
        return F.lit("")
    if len(order.key) == 1 and isinstance(type_of(table, order.key[0], "key"), StringType):
        return quoted_column(order.key[0])
    # Without these options times would lose their microseconds.
    exact = {
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
        "ignoreNullFields": "false",
    }
    return F.to_json(F.struct(*map(quoted_column, order.key)), exact)


def ordered_schemas(schema: StructType, order: OrderColumns) -> tuple[StructType, pa.Schema]:
    """The table's columns and what the order adds; and as Spark wants them back from a worker in any zone."""
    missing = StructField("missing", ArrayType(order.id_type))
    added = (missing if field.name == "missing" else field for field in ADDED)
    ordered = StructType([*schema.fields, *added])
    try:
        return ordered, to_arrow_schema(ordered, timezone="UTC")
    except PySparkException as error:
        reason = str(error).split("] ")[-1].rstrip(".")
        raise SchemaError(
            "the table", f"a row of it cannot be held back: {reason}", "Cast or drop it"
        ) from error


# The five columns


def _own(
    table: DataFrame, key: tuple[str, ...], event_time: str | None, id_: str | None, depends_on: str | None
) -> dict[str, str]:
    """Which of the order's columns are the caller's own, of the very type that the order wants."""
    types: dict[str | None, DataType] = {field.name: field.dataType for field in table.schema.fields}
    needs = types.get(depends_on)
    found = {
        "__at_us": event_time if isinstance(types.get(event_time), TimestampType) else None,
        "__id": id_ if types.get(id_) == StringType() else None,
        "__needs": depends_on if isinstance(needs, ArrayType) and needs.elementType == StringType() else None,
        KEY: key[0] if len(key) == 1 and types[key[0]] == StringType() else None,
    }
    return {name: column for name, column in found.items() if column is not None}


def _named(table: DataFrame, id_: str, depends_on: str | None) -> tuple[DataType, Column, Column]:
    """Ids and the ids of predecessors, each with a deadline or without."""
    if depends_on is None:
        raise MisuseError(
            "causal order", "no column with predecessors is named", 'Give depends_on="...", or a vector clock'
        )
    id_type = type_of(table, id_, "id")
    if not isinstance(id_type, StringType | IntegralType):
        raise _wrong(id_, "id", "a string or an integer", id_type)
    found = type_of(table, depends_on, "depends_on")
    wanted = f"array<{id_type.simpleString()}>, or of struct<id {id_type.simpleString()}, deadline timestamp>"
    inner = found.elementType if isinstance(found, ArrayType) else None
    pair = inner.fields if isinstance(inner, StructType) else None
    named = pair[0].dataType if pair else inner
    same = type(named) is type(id_type) or (
        isinstance(named, IntegralType) and isinstance(id_type, IntegralType)
    )
    if not same or (pair and (len(pair) != 2 or not isinstance(pair[1].dataType, TimestampType))):
        raise _wrong(depends_on, "depends_on", wanted, found)
    fields = [field.name for field in pair] if pair else None

    def need(entry: Column) -> Column:
        id_of = entry[fields[0]] if fields else entry
        deadline = F.unix_micros(entry[fields[1]]) if fields else F.lit(None).cast("bigint")
        return F.struct(id_of.cast("string").alias("id"), deadline.alias("deadline_us"))

    return id_type, F.col(_quoted(id_)).cast("string"), F.transform(F.col(_quoted(depends_on)), need)


def _clocked(table: DataFrame, clock: str, origin: str | None) -> tuple[DataType, Column, Column]:
    """A vector clock is an id, origin:number, and names all that is before: the newest of every origin."""
    if origin is None:
        raise MisuseError(
            "causal order", "a vector clock needs the column that says whose it is", 'Give origin="..."'
        )
    if not isinstance(type_of(table, origin, "origin"), StringType):
        raise _wrong(origin, "origin", "string", type_of(table, origin, "origin"))
    found = type_of(table, clock, "clock")
    if not (
        isinstance(found, MapType)
        and isinstance(found.keyType, StringType)
        and isinstance(found.valueType, IntegralType)
    ):
        raise _wrong(clock, "clock", "map<string,bigint>", found)
    me, counts = F.col(_quoted(origin)), F.col(_quoted(clock))
    own = F.element_at(counts, me).cast("bigint")

    def need(entry: Column) -> Column:
        number = F.when(entry["key"] == me, own - 1).otherwise(entry["value"].cast("bigint"))
        text = F.concat(entry["key"], F.lit(":"), number.cast("string"))
        return F.struct(
            text.alias("id"), F.lit(None).cast("bigint").alias("deadline_us"), number.alias("number")
        )

    needs = F.filter(F.transform(F.map_entries(counts), need), lambda entry: entry["number"] > 0)
    bare = F.transform(needs, lambda entry: F.struct(entry["id"], entry["deadline_us"]))
    return StringType(), F.concat(me, F.lit(":"), own.cast("string")), bare


def _lifetime(
    table: DataFrame, lifetime: str | timedelta | None, lifetime_max: str | timedelta | None
) -> tuple[Column, int]:
    """Microseconds of each row, and the largest that is known beforehand."""
    horizon_us = 0 if lifetime_max is None else duration_us("lifetime_max", lifetime_max)
    if lifetime is None:
        return F.lit(None).cast("bigint"), horizon_us
    if isinstance(lifetime, timedelta) or lifetime not in table.columns:
        constant_us = duration_us("lifetime", lifetime)
        return F.lit(constant_us).cast("bigint"), max(horizon_us, constant_us)
    found = type_of(table, lifetime, "lifetime")
    column = F.col(_quoted(lifetime))
    if isinstance(found, NumericType):
        us = F.round(column * 1_000_000).cast("bigint")  # a number is seconds
    elif isinstance(found, DayTimeIntervalType):
        us = F.unix_micros(F.timestamp_micros(F.lit(0)) + column)
    else:
        raise _wrong(lifetime, "lifetime", "a number (of seconds) or an interval", found)
    return F.greatest(us, F.lit(0).cast("bigint")), horizon_us


def _time(table: DataFrame, event_time: str | None) -> Column:
    if event_time is None:
        # The time of the batch: Spark records it with the batch, so a restarted query sees the same one.
        return F.current_timestamp() if table.isStreaming else F.timestamp_micros(F.lit(0))
    found = type_of(table, event_time, "event_time")
    if not isinstance(found, TimestampType | TimestampNTZType):
        raise _wrong(event_time, "event_time", "timestamp", found)
    return F.col(_quoted(event_time)).cast("timestamp")


def _tie(table: DataFrame) -> Column:
    """A number that depends on the row alone, so that equal times and ids do not leave room for chance."""
    hashable = [
        F.col(_quoted(field.name))
        for field in table.schema.fields
        if "map<" not in field.dataType.simpleString() and "variant" not in field.dataType.simpleString()
    ]
    return F.xxhash64(*hashable) if hashable else F.lit(0).cast("bigint")


def _quoted(name: str) -> str:
    """A column's name with its dots and backticks taken literally."""
    return "`" + name.replace("`", "``") + "`"


def quoted_column(name: str) -> Column:
    """The column of exactly that name."""
    return F.col(_quoted(name))


def _wrong(name: str, role: str, wanted: str, found: DataType) -> SchemaError:
    return SchemaError(
        f"column {name!r} ({role})", f"expected {wanted}, got {found.simpleString()}", "Cast it first"
    )


# On the workers: from rows to arrivals, and from endings to rows


class OrderSettings(NamedTuple):
    """The settings of an order that a worker must know."""

    policy: Policy
    remember_us: int | None
    horizon_us: int
    vector: bool
    numeric: bool  # ids are numbers
    lifetime_us: int | None = None  # of every row, if no column tells it
    own: tuple[tuple[str, str], ...] = ()  # as in `OrderColumns`

    def column(self, rows: pa.Table, name: str) -> Any:
        """One of HELPERS or KEY."""
        found: Any = rows.column(dict(self.own).get(name, name))
        return found.cast(pa.int64()) if name == "__at_us" else found

    def order(self, saved: Sequence[bytes] = ()) -> CausalOrder:
        """A new order, or one that goes on."""
        return CausalOrder(
            self.policy,
            remember_us=self.remember_us,
            horizon_us=self.horizon_us,
            vector=self.vector,
            saved=saved,
        )


class GivenRows:
    """The order's columns of some rows, as Python values; the rows themselves stay in Arrow."""

    def __init__(self, rows: pa.Table, settings: OrderSettings) -> None:
        at_us, id_, needs = (settings.column(rows, name) for name in HELPERS[:3])
        self._at_us = at_us.to_pylist()
        self.ids: list[str | None] = id_.to_pylist()
        self._lifetime_us = (
            rows.column("__lifetime_us").to_pylist()
            if "__lifetime_us" in rows.column_names
            else [settings.lifetime_us] * rows.num_rows
        )
        self._needs = _flat_lists(needs)
        self._needs_us = (
            _flat_lists(rows.column("__needs_us"))
            if "__needs_us" in rows.column_names
            else ([], [0] * (rows.num_rows + 1))
        )
        # Most rows name predecessors, and none of them a deadline or nothing.
        self._plain = not any(us is not None for us in self._needs_us[0]) and None not in self._needs[0]
        # In order of time; ties by id and then content, so that partitions make no difference.
        by_id: Any = pc.fill_null(id_.cast(pa.int64()), 0) if settings.numeric else pc.fill_null(id_, "")
        by_time: Any = pc.fill_null(at_us, -1)
        keys = pa.table({"at": by_time, "id": by_id, "tie": rows.column("__tie")})
        places: Any = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])
        self.in_time: list[int] = places.to_pylist()

    def arrival(self, row: int, order: CausalOrder, payload: Any) -> Arrival:
        """A row to offer. One without a time arrives now; one without a lifetime has the largest."""
        at_us, lifetime_us = self._at_us[row], self._lifetime_us[row]
        values, bounds = self._needs
        first, last = bounds[row], bounds[row + 1]
        if self._plain:
            needs: dict[str, int | None] = dict.fromkeys(values[first:last])
        else:
            needs = {}
            deadlines, bounds = self._needs_us
            until_us = deadlines[bounds[row] : bounds[row + 1]] or [None] * (last - first)
            for need, us in zip(values[first:last], until_us, strict=True):
                if need is not None:
                    known = needs.get(need)
                    needs[need] = us if known is None or us is None else max(us, known)
        return Arrival(
            self.ids[row],
            order.now_us if at_us is None else at_us,
            order.horizon_us if lifetime_us is None else lifetime_us,
            needs,
            payload,
        )

    @property
    def needs(self) -> list[str | None]:
        """The predecessors of all rows."""
        return self._needs[0]

    @property
    def newest_us(self) -> int:
        """The largest time."""
        return max((us for us in self._at_us if us is not None), default=0)


def _flat_lists(column: Any) -> tuple[list[Any], list[int]]:
    """The elements of a column of lists, and where each list begins: faster than lists of Python."""
    whole = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    lengths = pc.fill_null(pc.list_value_length(whole), 0).to_numpy(zero_copy_only=False)
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return pc.list_flatten(whole).to_pylist(), bounds.tolist()


def moved(
    rows: pa.Table, places: Any, endings: Sequence[Ending], settings: OrderSettings, schema: pa.Schema
) -> pa.Table:
    """The rows at these places, as they ended: their own columns are moved, never converted."""
    ended = rows.take(pa.array(places, pa.int64()))
    missing: list[Any] = [end.missing for end in endings]
    added: dict[str, list[Any]] = {
        "outcome": [end.outcome for end in endings],
        "missing": [list(map(int, ids)) for ids in missing] if settings.numeric else missing,
        "position": [end.position for end in endings],
        "epoch": [end.epoch_us for end in endings],
    }
    for name in ADDED.names:
        ended = ended.append_column(name, pa.array(added[name], schema.field(name).type))
    return ended.cast(schema)


def settings_of(order: OrderColumns, *, at_rest: bool = False) -> OrderSettings:
    """The settings for the workers; of a table at rest nothing is ever forgotten."""
    if at_rest:
        order = order._replace(remember_us=_ALL_TIME_US, horizon_us=_ALL_TIME_US)
    return OrderSettings(
        order.policy,
        order.remember_us,
        order.horizon_us,
        order.vector,
        order.numeric,
        order.constant_us,
        tuple(order.own.items()),
    )
