"""Order in a log that no task can hold: by parts that share no cause, or by the causes that messages name.

Two events can only be cause and effect if a chain of contexts that send, messages, links and ranks connects
them. Where contexts are short-lived (requests, tasks, spans) that makes many small parts, and each is judged
by the judge itself; contexts that only deliver connect nothing. Parts are found by spreading the least label
of each over its edges and halving paths, until nothing changes.

Where messages name their causes and nothing else orders them, one join tells more: if every cause of a
message is delivered in its scope, something is late iff a direct cause is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from whence.foreign.model import EventKind
from whence.foreign.report import NOT_JUDGED, OK, Audit, AuditFinding, Judged
from whence.spark.shipping import find_shipped
from whence.spark.tables import table_of

PARTS = ("causal", "fifo", "cycle")  # the properties that need causes; their counts add up over parts
_ROUNDS_MAX = 60  # a part of n events needs about log n
_SAID = table_of("bin bigint, audit string")
_SEND = int(EventKind.SEND)


class Parts(NamedTuple):
    """The events with the number of their part, and the size of the largest."""

    events: DataFrame
    largest: int


def find_parts(events: DataFrame, *, intervals: bool) -> Parts:
    """Events by part; those that no order hangs on are left out. Equal hashes can only join parts."""
    keyed = events.withColumn("keys", F.array_compact(F.array_distinct(_keys(events, intervals=intervals))))
    keyed = keyed.where(F.size("keys") > 0).persist()
    first = F.element_at("keys", 1)
    edges = keyed.select(first.alias("a"), F.explode("keys").alias("b")).where("a <> b").distinct().persist()
    labels = _spread(keyed.select(F.explode("keys").alias("node")).distinct(), edges)
    placed = keyed.withColumn("node", first).join(labels, "node").drop("node", "keys")
    largest = placed.groupBy("part").count().agg(F.max("count")).collect()[0][0]
    return Parts(placed, int(largest or 0))


def _keys(events: DataFrame, *, intervals: bool) -> Column:
    """What connects an event to others, as hashes: its context, if that sends; messages, links, channels."""
    senders = events.where(F.col("kind") == _SEND).select("ctx").distinct()
    sends = [row.ctx for row in senders.limit(_BROADCAST_MAX + 1).collect()]
    sending = F.col("ctx").isin(sends) if len(sends) <= _BROADCAST_MAX else F.lit(True)

    def key(kind: str, value: Column) -> Column:
        return F.when(value.isNotNull(), F.xxhash64(F.lit(kind), value))

    ranked = F.when(F.col("rank").isNotNull(), F.col("channel"))
    beside = F.when(F.col("kind") == _SEND, F.concat_ws("\0", "proc", "channel"))
    return F.concat(
        F.array(
            F.when(sending, key("c", F.col("ctx"))), key("m", F.col("msg")), key("r", F.col("ref")),
            key("h", ranked), key("p", beside) if intervals else F.lit(None).cast("bigint"),
        ),
        F.transform("deps", lambda name: F.xxhash64(F.lit("m"), name)),
        F.transform("links", lambda name: F.xxhash64(F.lit("r"), name)),
    )  # fmt: skip


_BROADCAST_MAX = 10_000  # sending contexts that an expression may list; of more, all contexts count as such


def _spread(nodes: DataFrame, edges: DataFrame) -> DataFrame:
    """The least node of each connected part, by node."""
    both = edges.union(edges.select(F.col("b").alias("a"), F.col("a").alias("b"))).persist()
    labels = nodes.withColumn("part", F.col("node")).localCheckpoint()
    for _ in range(_ROUNDS_MAX):
        near = (
            both.join(labels.withColumnRenamed("node", "b"), "b")
            .groupBy("a")
            .agg(F.min("part").alias("near"))
        )
        least = F.least("part", F.coalesce("near", "part"))
        lower = labels.join(near.withColumnRenamed("a", "node"), "node", "left").select(
            "node", least.alias("to")
        )
        jump = labels.select(F.col("node").alias("to"), F.col("part").alias("jump"))
        halved = F.least("to", F.coalesce("jump", "to")).alias("part")
        made = lower.join(jump, "to", "left").select("node", halved).localCheckpoint()
        if not made.join(labels.withColumnRenamed("part", "was"), "node").where("part <> was").head(1):
            return made
        labels = made
    return labels.limit(0)  # a part that is too long to be found in time: nothing is judged


def judge_parts(
    parts: Parts, columns: tuple[str, ...], rows_max: int, judged: Callable[[pa.Table], Audit]
) -> dict[str, Judged]:
    """The properties of `PARTS`, from tasks that hold as many whole parts as fit."""
    total = parts.events.count()
    bins = max(1, -(-2 * total // max(1, rows_max)))

    def perform(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        find_shipped()
        audit = judged(table.select(columns).sort_by("line"))
        said = {"bin": key[0].as_py(), "audit": msgspec.json.encode(audit).decode()}
        return pa.Table.from_pylist([said], schema=to_arrow_schema(_SAID))

    binned = parts.events.withColumn("bin", F.pmod(F.xxhash64("part"), F.lit(bins)))
    said = binned.groupBy("bin").applyInArrow(perform, _SAID).collect()
    audits = [
        msgspec.json.decode(row.audit, type=Audit) for row in sorted(said, key=lambda row: int(row.bin))
    ]
    made = {}
    for name in PARTS:
        each = [audit.properties[name] for audit in audits if audit.properties[name].status != NOT_JUDGED]
        if each:
            findings = [one for part in each for one in part.findings]
            made[name] = Judged(
                status=OK, count=sum(part.count for part in each), judged=sum(part.judged for part in each),
                findings=sorted(findings, key=lambda one: one.line or 0)[:10],
            )  # fmt: skip
    return made


def judge_named_causes(delivered: DataFrame, findings_max: int) -> Judged | None:
    """Causal order where messages name their causes and nothing else orders them; None: it cannot tell.

    A count above 0 is of direct causes: what these precede in turn may be late, too.
    """
    keys = ["scope", "ctx"]
    placed = delivered.where("scope is not null and pos is not null")
    first = placed.groupBy(*keys, "msg").agg(F.min("pos").alias("pos"), F.min_by("line", "pos").alias("line"))
    named = delivered.select("msg", F.explode("deps").alias("cause")).where("cause <> msg").distinct()
    effects = first.join(named, "msg").select(*keys, "msg", F.col("pos").alias("at"), "cause")
    causes = first.select(*keys, F.col("msg").alias("cause"), "pos", "line")
    both = effects.join(causes, [*keys, "cause"], "left").persist()
    late = (
        both.where("pos > at")
        .groupBy(*keys, "cause")
        .agg(F.min("line").alias("line"), F.min("msg").alias("msg"))
    )
    absent = both.where("pos is null").count()
    count = late.count()
    if absent and not count:
        return None
    findings = [
        AuditFinding(
            text=f"{row.ctx} delivers {row.cause} after {row.msg}, which names it as a cause",
            message=row.cause, other=row.msg, scope=row.scope, line=row.line,
        )
        for row in late.orderBy("line").limit(findings_max).collect()
    ]  # fmt: skip
    why = "at least so many: causes of causes were not followed" if count else ""
    return Judged(status=OK, count=count, judged=first.count(), why=why, findings=findings)
