"""How much a node holds: messages that wait for their past, and entries of control information.

A node works in steps: a step is one input (a broadcast, a packet, a link, a timer, a crash) with all
its effects; in the trace, the input's row and the rows behind it. A message is held *after* a step if its
first copy was taken in (received and not discarded) in that step or before, and it was not delivered,
expired or discarded up to that step's end. So what is delivered in the very step in which it arrives is
never held, and `held_peak` is the largest value that the core's own gauge `len(core.explain())` has
between two inputs. A crash does not end the holding: a node comes back with its saved state.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from whence.spark.tables import BUFFERS, EVENTS, columns_of, require
from whence.trace.schema import Kind

INPUTS = (
    Kind.BROADCAST,
    Kind.RECEIVE,
    Kind.LINK_UP,
    Kind.LINK_DOWN,
    Kind.TIMER,
    Kind.CRASH,
    Kind.RESTART,
)
ENDS = (Kind.DELIVER, Kind.EXPIRE, Kind.DISCARD)


def buffer_peaks(events: DataFrame) -> DataFrame:
    """BUFFERS: one row for each node that has events.

    held_peak      as the module says; null where deliveries were recorded but receptions were not
    entries_peak   largest SAMPLE of the gauge "entries"; null where none was taken
    """
    require(events, EVENTS, "events")
    kind = F.col("kind")
    nodes = events.groupBy("run", "node").agg(
        F.count_if(kind == Kind.RECEIVE).alias("receptions"),
        F.count_if((kind == Kind.DELIVER) & (F.col("node") != F.col("origin"))).alias("remote"),
        F.max(F.when((kind == Kind.SAMPLE) & (F.col("detail") == "entries"), F.col("number"))).alias(
            "entries_peak"
        ),
    )
    recorded = (F.col("receptions") > 0) | (F.col("remote") == 0)
    return (
        nodes.join(_held_peaks(_stays(events)), ["run", "node"], "left")
        .withColumn("held_peak", F.when(recorded, F.coalesce("peak", F.lit(0))))
        .select(columns_of(BUFFERS))
    )


def _stays(events: DataFrame) -> DataFrame:
    """For each message that was held at a node: the step it came in, and the step it left (null: never).

    A step is named by the `seq` of its input. A refused packet shows as its RECEIVE with a DISCARD right
    behind it, of the same name or of none (it came over a link that is none, say). Any other DISCARD ends a
    message that was held.
    """
    kind, origin, number = (F.col(name) for name in ("kind", "origin", "number"))
    in_order = Window.partitionBy("run", "node").orderBy("seq")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    this = F.struct("kind", "origin", "number")
    rows = (
        events.where(kind.isin(*INPUTS, *ENDS))  # not the many SEND rows
        .withColumn("step", F.max(F.when(kind.isin(*INPUTS), F.col("seq"))).over(so_far))
        .withColumn("before", F.lag(this).over(in_order))
        .withColumn("behind", F.lead(this).over(in_order))
        .where(origin.isNotNull())
    )

    def same(row: str) -> Column:
        return (F.col(f"{row}.origin") == origin) & (F.col(f"{row}.number") == number)

    refusal = F.col("behind.origin").isNull() | same("behind")
    refused = F.coalesce((F.col("behind.kind") == Kind.DISCARD) & refusal, F.lit(False))
    refuses = F.coalesce((F.col("before.kind") == Kind.RECEIVE) & same("before"), F.lit(False))
    taken = (kind == Kind.RECEIVE) & ~refused
    gone = kind.isin(Kind.DELIVER, Kind.EXPIRE) | ((kind == Kind.DISCARD) & ~refuses)
    stays = rows.groupBy("run", "node", "origin", "number").agg(
        F.min(F.when(taken, F.col("step"))).alias("entered"), F.min(F.when(gone, F.col("step"))).alias("left")
    )
    held = F.col("left").isNull() | (F.col("left") > F.col("entered"))
    return stays.where(F.col("entered").isNotNull() & held)


def _held_peaks(stays: DataFrame) -> DataFrame:
    """The largest number of stays that overlap after one step, by node."""
    change = F.explode(
        F.array(
            F.struct(F.col("entered").alias("step"), F.lit(1).alias("by")),
            F.struct(F.col("left").alias("step"), F.lit(-1).alias("by")),
        )
    ).alias("change")
    in_order = Window.partitionBy("run", "node").orderBy("step")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        stays.select("run", "node", change)
        .select("run", "node", "change.step", "change.by")
        .where(F.col("step").isNotNull())
        .groupBy("run", "node", "step")
        .agg(F.sum("by").alias("by"))
        .withColumn("held", F.sum("by").over(so_far))
        .groupBy("run", "node")
        .agg(F.max("held").alias("peak"))
    )
