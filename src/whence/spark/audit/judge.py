"""The judge of foreign logs on Spark.

A log of any format but a table is judged in one task, by the judge itself. A table becomes events
(`columns.normalise`). Then, by what the log has:

- deliveries with ranks and nothing else that says what precedes what (a topic, a stream): every property is a
  join or a window, and the log may be larger than any memory;
- sends, dependencies, links or clocks: order needs the whole graph. Scopes are independent, so that each task
  takes the whole log and a block of the scopes. If the log does not fit a task, what joins and windows can
  judge is judged, and the rest is not, with the size as the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DecimalType, StringType

from whence.errors import ImportFormatError, WhenceError
from whence.foreign.judge import check_contract, judge, scope_split
from whence.foreign.mapping import LogMapping, order_of, reader_notes, watched_columns
from whence.foreign.model import Contract, EventKind, Log, Note, log_of_table, make_log
from whence.foreign.ranked import RankedCounts, RankedPlan, plan_of
from whence.foreign.read import read_log
from whence.foreign.report import (
    EXITS,
    FINDINGS_MAX,
    NOT_JUDGED,
    OK,
    Audit,
    AuditFinding,
    Judged,
    demands,
    verdict_of,
)
from whence.foreign.tables import is_json_list, resolution_of
from whence.spark.audit.columns import TABLES, UNREAD, exact_reading, normalise, read_rows
from whence.spark.audit.ranked import count_ranked
from whence.spark.progress import spark_failures
from whence.spark.session import cores_of
from whence.spark.shipping import find_shipped
from whence.spark.tables import small_table, table_of

EVENT_BYTES = 400  # of one event in a task that has the whole log, about
MEMORY_BYTES = 4 << 30  # what the judge may take in one task unless told otherwise
LARGE_BYTES = 64 << 20  # of a file of ranked deliveries that is not worth having whole in a task
_SEND, _DELIVER, _ACK = int(EventKind.SEND), int(EventKind.DELIVER), int(EventKind.ACK)
_RECEIVE, _RESTART = int(EventKind.RECEIVE), int(EventKind.RESTART)


def audit_log(
    spark: SparkSession,
    path: Path | str,
    mapping: LogMapping,
    *,
    findings_max: int = FINDINGS_MAX,
    blocks: int | None = None,
    memory_bytes: int = MEMORY_BYTES,
    large_bytes: int = LARGE_BYTES,
) -> Audit:
    """The verdict on a log; `blocks` tasks share the scopes (as many as there are cores)."""
    check_contract(mapping.contract)
    check = "Check that the workers can read the file and have whence"
    with spark_failures(f"judging {path}", check), exact_reading(spark):
        if mapping.format not in TABLES or _is_json_list(path, mapping):
            return _in_one_task(spark, path, mapping, findings_max)
        rows = read_rows(spark, path, mapping)
        plan = plan_of(mapping) if _bytes_of(path) >= large_bytes else None
        if plan is not None:
            counts = count_ranked(rows, path, mapping, plan, findings_max)
            if counts is not None:
                return _of_ranks(counts, str(path), mapping, plan, findings_max)
        events = normalise(rows, mapping)
        facts = _facts(events, mapping)
        if facts["odd_orders"] or facts["unread_send_order"]:
            events = normalise(rows, mapping, exact=True)
            facts = _facts(events, mapping)
        _require_rows(path, mapping.format, facts)
        if facts["events"] * EVENT_BYTES > memory_bytes:
            whole = bool(facts["ranks"]) and not _graph(facts)
            return _by_joins(events, str(path), mapping, facts, findings_max, whole=whole)
        count = blocks or max(1, min(cores_of(spark), facts["scopes"]))
        return _in_blocks(spark, events, str(path), mapping, facts, count, findings_max)


def _is_json_list(path: Path | str, mapping: LogMapping) -> bool:
    """Spark reads such a file in one piece, too."""
    here = "://" not in str(path) and Path(path).is_file()
    return here and mapping.format == "jsonl" and is_json_list(Path(path))


def _bytes_of(path: Path | str) -> int:
    """The size of a file or a folder; what lies elsewhere is taken to be large."""
    if "://" in str(path):
        return LARGE_BYTES
    path = Path(path)
    return sum(each.stat().st_size for each in path.rglob("*")) if path.is_dir() else path.stat().st_size


def _of_ranks(
    counts: RankedCounts, source: str, mapping: LogMapping, plan: RankedPlan, findings_max: int
) -> Audit:
    """The verdict on ranked deliveries: rank alone says what precedes what, so causal order is fifo."""
    if not counts.rows:
        raise ImportFormatError(source, "it has no rows", "Check the file")
    made = dict(judge(_empty(mapping), contract=mapping.contract).properties)
    firsts = sum(each[0] for each in counts.channels.values())
    ordered = sum(count for count, low, high in counts.channels.values() if low < high)
    late = counts.late_findings[:findings_max]
    if firsts:
        made["causal"] = Judged(status=OK, count=counts.late, judged=firsts, findings=late)
    if ordered:
        made["fifo"] = Judged(status=OK, count=counts.late, judged=ordered, findings=late)
    if counts.grouped:
        again = counts.again_findings[:findings_max]
        made["duplicate"] = Judged(status=OK, count=counts.again, judged=counts.grouped, findings=again)
    made["cycle"] = Judged(status=OK, judged=counts.rows)
    not_looked_at = set(watched_columns(mapping)) - set(plan.keys)
    notes = reader_notes(mapping, {}, 0, set(counts.had) | not_looked_at, {})
    split = sum(len(ctxs) - 1 for ctxs in counts.scopes.values())
    if split:
        notes.append(scope_split(split))
    return _audit(source, counts.rows, order_of(mapping), mapping.contract, made, notes)


def _in_one_task(spark: SparkSession, path: Path | str, mapping: LogMapping, findings_max: int) -> Audit:
    where = str(path if "://" in str(path) else Path(path).resolve())

    def perform(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        find_shipped()
        for _ in batches:
            try:
                audit = judge(read_log(where, mapping), str(path), findings_max=findings_max)
                said: dict[str, Any] = {"audit": msgspec.json.encode(audit).decode(), "error": None}
            except WhenceError as error:
                said = {"audit": None, "error": [error.what, error.reason, error.fix]}
            said["block"] = 0
            yield pa.RecordBatch.from_pylist([said], schema=to_arrow_schema(_SAID))

    return _merged(spark.range(0, 1, 1, 1).mapInArrow(perform, _SAID))


_SAID = table_of("block bigint, audit string, error array<string>")  # what a task says


def _merged(said: DataFrame) -> Audit:
    """One verdict from those of all blocks: counts of order are added, the rest is the same in all."""
    parts = []
    for row in sorted(said.collect(), key=lambda row: int(row.block)):
        if row.error is not None:
            raise ImportFormatError(*row.error)
        parts.append(msgspec.json.decode(row.audit, type=Audit))
    first = parts[0]
    made = dict(first.properties)
    for name in ("causal", "fifo"):
        each = [part.properties[name] for part in parts if part.properties[name].status != NOT_JUDGED]
        if each:
            findings = sorted((one for part in each for one in part.findings), key=lambda one: one.line or 0)
            made[name] = Judged(
                status=OK, count=sum(part.count for part in each), judged=sum(part.judged for part in each),
                findings=findings[:FINDINGS_MAX],
            )  # fmt: skip
    if len(parts) == 1:
        return first
    return _audit(first.source, first.events, first.order, first.contract, made, first.notes)


def _audit(
    source: str, events: int, order: str, contract: Contract, made: dict[str, Judged], notes: list[Note]
) -> Audit:
    verdict, properties = verdict_of(made, *demands(contract, spans=False))
    return Audit(
        source=source, verdict=verdict, exit=EXITS[verdict], events=events, order=order, contract=contract,
        properties=properties, notes=notes,
    )  # fmt: skip


# What there is


def _facts(events: DataFrame, mapping: LogMapping) -> dict[str, Any]:
    """Counts of what decides how a log is judged, in one pass; what the mapping does not name is 0."""
    kind, message = F.col("kind"), F.col("msg").isNotNull()
    delivers = kind.isin(_DELIVER, _ACK)
    has = mapping.event.keys()
    placed = "interval" if order_of(mapping) == "interval" else ""
    conditions = {
        "deliveries": kind == _DELIVER,
        "acks": kind == _ACK,
        "scoped": delivers & message & F.col("scope").isNotNull(),
        "grouped": delivers & message & F.col("group").isNotNull(),
        "named": delivers & message,
        "sends": kind == _SEND,
        "arrivals": (kind == _RECEIVE) & message,
        "restarts": kind == _RESTART,
        "ranks": message & F.col("rank").isNotNull() & F.col("channel").isNotNull(),
        "deps": F.size("deps") > 0 if "depends_on" in has else None,
        "links": F.size("links") > 0 if "links" in has else None,
        "clocks": F.col("vc").isNotNull() if "clock" in has else None,
        "unplaced": F.col("pos").isNull() if "order" in has or "clock" in has or placed else None,
        "odd_kinds": F.col("odd_kind").isNotNull(),
        "odd_orders": F.col("odd_order"),
        **{f"unread_{field}": F.col(f"unread_{field}") if field in has else None for field in UNREAD},
        "corrupt": F.col("corrupt"),
        **{
            f"{name}_{unit}": F.col(name) % unit != 0 if field in has else None
            for name, field in (("t0", "time"), ("t1", "end"))
            for unit in _UNITS
        },
    }
    wanted = {name: each for name, each in conditions.items() if each is not None}
    counts = [F.count_if(F.coalesce(each, F.lit(False))).alias(name) for name, each in wanted.items()]
    had = F.array_distinct(F.flatten(F.collect_set(F.array_compact("has"))))
    row = events.agg(
        F.count(F.lit(1)).alias("events"),
        F.array_sort(F.collect_set("odd_kind")).alias("unknown_kinds"),
        F.approx_count_distinct("scope").alias("scopes"),
        (had if watched_columns(mapping) else F.array()).alias("had"),
        *counts,
    ).collect()[0]
    return dict.fromkeys(conditions, 0) | row.asDict()


_UNITS = (1_000_000, 1_000)
_CORRUPT = {
    "csv": ("have more cells than the header", "Quote"),
    "jsonl": ("are not JSON", "One object per line"),
}


def _graph(facts: dict[str, Any]) -> bool:
    return any(
        facts[name] for name in ("sends", "deps", "links", "clocks", "arrivals", "unplaced", "restarts")
    )


def _require_rows(path: Path | str, format_: str | None, facts: dict[str, Any]) -> None:
    if facts["corrupt"]:
        why, fix = _CORRUPT[format_ or "jsonl"]
        raise ImportFormatError(str(path), f"{facts['corrupt']} lines {why}", fix)
    if not facts["events"]:
        raise ImportFormatError(str(path), "it has no rows", "Check the file")


def _notes(mapping: LogMapping, facts: dict[str, Any]) -> list[Note]:
    odd = {"": facts["odd_kinds"]} if facts["odd_kinds"] else {}
    unknown = dict.fromkeys(facts["unknown_kinds"], 0) | odd
    unread = {field: facts[f"unread_{field}"] for field in UNREAD}
    return reader_notes(mapping, unknown, facts["odd_orders"], set(facts["had"] or ()), unread)


# The whole log in each task


_MODEL = (
    "proc", "ctx", "pos", "kind", "msg", "to", "scope", "group", "channel", "rank", "deps", "links", "ref",
    "vc", "t0", "t1", "line",
)  # fmt: skip


def _in_blocks(
    spark: SparkSession, events: DataFrame, source: str, mapping: LogMapping, facts: dict[str, Any],
    blocks: int, findings_max: int,
) -> Audit:  # fmt: skip
    about = {
        "order": order_of(mapping), "contract": mapping.contract, "notes": tuple(_notes(mapping, facts)),
        "resolution_ns": resolution_of(
            lambda unit: not facts[f"t0_{unit}"] and not facts[f"t1_{unit}"]
        ),
    }  # fmt: skip

    def perform(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        find_shipped()
        log = log_of_table(table.sort_by("line"), **about)
        block = key[0].as_py()
        audit = judge(log, source, findings_max=findings_max, block=(block, blocks))
        said = {"block": block, "audit": msgspec.json.encode(audit).decode(), "error": None}
        return pa.Table.from_pylist([said], schema=to_arrow_schema(_SAID))

    every = spark.range(0, blocks, 1, 1).withColumnRenamed("id", "block")
    copies = events.select(*_MODEL).crossJoin(F.broadcast(every))
    return _merged(copies.groupBy("block").applyInArrow(perform, _SAID))


# Joins and windows


def _by_joins(
    events: DataFrame, source: str, mapping: LogMapping, facts: dict[str, Any], findings_max: int, *,
    whole: bool,
) -> Audit:  # fmt: skip
    """Every property that needs no graph. `whole`: the log has nothing else to say."""
    contract = mapping.contract
    if facts["acks"]:
        taken = EventKind.INTERNAL if facts["deliveries"] else EventKind.DELIVER
        events = events.withColumn("kind", F.when(F.col("kind") == _ACK, int(taken)).otherwise(F.col("kind")))
    size = f"the log has {facts['events']} events, more than a task holds"
    too_large = Judged(status=NOT_JUDGED, why=size, remedy="give more --memory, or judge a part of it")
    made = dict(judge(_empty(mapping), contract=contract).properties)
    events, are_exact = _as_numbers(events)
    delivered = events.where((F.col("kind") == _DELIVER) & F.col("msg").isNotNull())
    if facts["scoped"] and facts["ranks"]:
        made["fifo"] = _fifo(delivered, findings_max) if are_exact else _NOT_EXACT
        made["causal"] = made["fifo"] if whole else too_large
    elif not whole:
        made["causal"] = made["fifo"] = too_large
    if facts["grouped"]:
        made["duplicate"] = _duplicates(delivered, findings_max)
    if "sends" in contract.complete and facts["named"]:
        made["created"] = _created(events, delivered, findings_max)
    if facts["clocks"]:
        made["clock"] = too_large
    if whole:
        made["cycle"] = Judged(status=OK, judged=facts["events"])
    else:
        made |= {"cycle": too_large, "time": too_large}
        made |= {name: too_large for name in ("lost", "stuck") if "deliveries" in contract.complete}
    if whole and {"deliveries", "ranks"} <= set(contract.complete) and contract.members:
        made["lost"] = _gaps(delivered, contract, findings_max)
    notes = _notes(mapping, facts)
    return _audit(source, facts["events"], order_of(mapping), contract, made, notes)


_NOT_EXACT = Judged(
    status=NOT_JUDGED, why="a place or rank has parts, over 20 digits, or 18 decimals",
    remedy="give more --memory, or number with less digits",
)  # fmt: skip


def _as_numbers(events: DataFrame) -> tuple[DataFrame, bool]:
    """Events with places and ranks that can be compared, and whether these are exact."""
    texts = [name for name in ("pos", "rank") if isinstance(events.schema[name].dataType, StringType)]
    if not texts:
        return events, True
    made = {name: F.col(name).try_cast("decimal(38,18)") for name in texts}
    lost = [F.col(name).isNotNull() & (each.isNull() | F.col(name).rlike(r"\.\d{19}|e-|E-"))
            for name, each in made.items()]  # fmt: skip
    return events.withColumns(made), not events.where(reduce(or_, lost)).head(1)


def _empty(mapping: LogMapping) -> Log:
    return make_log([], order=order_of(mapping), contract=mapping.contract)


def _fifo(delivered: DataFrame, findings_max: int) -> Judged:
    """First deliveries in a scope that come after one of a higher rank: a running maximum, in one shuffle."""
    keys = ["scope", "ctx", "channel"]
    ranked = delivered.where("scope is not null and channel is not null and rank is not null")
    first = (
        ranked.select(*keys, "msg", "pos", "rank", "line")
        .repartition(*keys)
        .groupBy(*keys, "msg")
        .agg(  # not the least of a struct: Spark would sort for that, where these go into a hash table
            F.min("pos").alias("pos"),
            F.min_by("rank", "pos").alias("rank"),
            F.min_by("line", "pos").alias("line"),
        )
    )
    ordered = Window.partitionBy(*keys).orderBy("pos")
    if isinstance(first.schema["pos"].dataType, DecimalType):  # "all before" is then not "1 less"
        first = first.withColumn("pos", F.dense_rank().over(ordered))
    before = ordered.rangeBetween(Window.unboundedPreceding, -1)
    seen = first.withColumn("top", F.max("rank").over(before))
    late = F.coalesce(F.col("top") > F.col("rank"), F.lit(False))
    groups = seen.groupBy(*keys).agg(
        F.count(F.lit(1)).alias("judged"),
        F.count_if(late).alias("count"),
        F.min(F.when(late, F.struct("line", "msg", "rank", "top"))).alias("one"),
    )
    row = _total(groups, findings_max, *keys)
    findings = [
        AuditFinding(
            text=f"{each.ctx} delivers {one.msg} ({each.channel} @ {one.rank}) after {one.top} of it",
            message=one.msg, scope=each.scope, line=one.line,
        )
        for each in row["some"] for one in [each.one]
    ]  # fmt: skip
    return Judged(status=OK, count=row["count"] or 0, judged=row["judged"] or 0, findings=findings)


def _total(groups: DataFrame, most: int, *beside: str) -> Any:
    """The sums of `judged` and `count`, and as `some` the first few groups that have `one`."""
    found = F.collect_list(F.when(F.col("one").isNotNull(), F.struct("one", *beside)))
    some = F.slice(F.array_sort(found), 1, max(1, most)).alias("some")
    return groups.agg(F.sum("judged").alias("judged"), F.sum("count").alias("count"), some).collect()[0]


def _duplicates(delivered: DataFrame, findings_max: int) -> Judged:
    """Second deliveries, of which the first per group is spelled out."""
    counts = delivered.where("group is not null").groupBy("group", "msg").agg(F.count(F.lit(1)).alias("n"))
    groups = counts.groupBy("group").agg(
        F.sum("n").alias("judged"),
        F.sum(F.col("n") - 1).alias("count"),
        F.min(F.when(F.col("n") > 1, F.struct("msg", "n"))).alias("one"),
    )
    row = _total(groups, findings_max, "group")
    findings = [
        AuditFinding(text=f"{one.msg} is delivered {one.n} times in {each.group}", message=one.msg)
        for each in row["some"] for one in [each.one]
    ]  # fmt: skip
    return Judged(status=OK, count=row["count"] or 0, judged=row["judged"] or 0, findings=findings)


def _created(events: DataFrame, delivered: DataFrame, findings_max: int) -> Judged:
    sent = events.where(F.col("kind") == _SEND).select("msg").distinct()
    firsts = delivered.select(
        F.coalesce("group", F.concat(F.lit("\0"), "proc")).alias("group"), "msg"
    ).distinct()
    found = firsts.join(sent, "msg", "left_anti")
    count = found.count()
    told = found.orderBy("msg").limit(findings_max).collect() if count else []
    findings = [
        AuditFinding(text=f"{each.msg} is delivered, which no one sent", message=each.msg) for each in told
    ]
    return Judged(status=OK, count=count, judged=firsts.count(), findings=findings)


def _gaps(delivered: DataFrame, contract: Contract, findings_max: int) -> Judged:
    """Ranks between the first and last of a channel that a member lacks."""
    ranked = delivered.where("channel is not null and rank is not null")
    spans = ranked.groupBy("channel").agg(F.min("rank").alias("low"), F.max("rank").alias("high"))
    names = small_table(
        delivered.sparkSession, [(each,) for each in contract.members], table_of("member string")
    )
    of_member = (F.col("proc") == F.col("member")) | (F.col("group") == F.col("member"))
    got = ranked.join(F.broadcast(names), of_member).groupBy("member", "channel")
    has = got.agg(F.count_distinct("rank").alias("has"))
    each = spans.crossJoin(F.broadcast(names)).join(has, ["channel", "member"], "left")
    size = F.col("high") - F.col("low") + 1
    lacks = each.select("*", size.alias("size"), (size - F.coalesce("has", F.lit(0))).alias("lacks"))
    row = lacks.agg(F.sum("size").alias("judged"), F.sum("lacks").alias("count")).collect()[0]
    told = lacks.where("lacks > 0").orderBy("channel", "member").limit(findings_max).collect()
    findings = [
        AuditFinding(text=f"{one.member} lacks {one.lacks} of {one.channel} @ {one.low} to {one.high}")
        for one in told
    ]
    return Judged(status=OK, count=int(row["count"] or 0), judged=int(row["judged"] or 0), findings=findings)
