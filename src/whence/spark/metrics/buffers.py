"""How much a node holds: messages that wait for their past, and entries of control information.

A node works in steps: a step is one input (a broadcast, a packet, a link, a timer, a crash) with all
its effects; in the trace, the input's row and the rows behind it. A message is held *after* a step if its
first copy was taken in (received and not discarded) in that step or before, and it was not delivered,
expired or discarded up to that step's end. So what is delivered in the very step in which it arrives is
never held, and `held_peak` is the largest value that the core's own gauge `len(core.explain())` has
between two inputs. A crash does not end the holding: a node comes back with its saved state.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from whence.spark.tables import BUFFERS, EVENTS, carried, columns_of, require
from whence.trace.schema import Kind

INPUTS = (
    Kind.BROADCAST,
    Kind.RECEIVE,
    Kind.LINK_UP,
    Kind.LINK_DOWN,
    Kind.TIMER,
    Kind.COMMAND,
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
        nodes.join(_held_peaks(_stays(_steps(events))), ["run", "node"], "left")
        .withColumn("held_peak", F.when(recorded, F.coalesce("peak", F.lit(0))))
        .select(columns_of(BUFFERS))
    )


def _steps(events: DataFrame) -> DataFrame:
    """What happened to which message in which step (named by the `seq` of its input)."""
    kind = F.col("kind")
    so_far = _up_to_now("seq")
    given = F.when(kind.isin(*INPUTS), F.struct("seq", "kind", "origin", "number"))
    # A packet can be discarded without its name (it came over a link that is none): then the name is
    # that of the packet which the step began with.
    nameless = (kind == Kind.DISCARD) & F.col("origin").isNull() & (F.col("input.kind") == Kind.RECEIVE)
    in_steps = events.where(kind.isin(*INPUTS, *ENDS)).withColumn(
        "input", F.last(given, ignorenulls=True).over(so_far)
    )
    return (
        carried(in_steps)
        .select(
            "run",
            "node",
            "kind",
            F.col("input.seq").alias("step"),
            F.when(nameless, F.col("input.origin")).otherwise(F.col("origin")).alias("origin"),
            F.when(nameless, F.col("input.number")).otherwise(F.col("number")).alias("number"),
        )
        .where(kind.isin(Kind.RECEIVE, *ENDS) & F.col("origin").isNotNull())
    )


def _stays(steps: DataFrame) -> DataFrame:
    """For each message that was held at a node: the step it came in, and the step it left (null: never)."""
    message = ["run", "node", "origin", "number"]
    kind, step = F.col("kind"), F.col("step")
    per_step = steps.groupBy(*message, "step").agg(
        F.bool_or(kind == Kind.RECEIVE).alias("received"),
        F.bool_or(kind == Kind.DISCARD).alias("discarded"),
        F.bool_or(kind.isin(Kind.DELIVER, Kind.EXPIRE)).alias("ended"),
    )
    taken = F.col("received") & ~F.col("discarded")
    # A discard in the step of its own reception ends a copy; in any other step it ends the held message.
    gone = F.col("ended") | (F.col("discarded") & ~F.col("received"))
    stays = per_step.groupBy(*message).agg(
        F.min(F.when(taken, step)).alias("entered"), F.min(F.when(gone, step)).alias("left")
    )
    return stays.where(F.col("left").isNull() | (F.col("left") > F.col("entered"))).where(
        F.col("entered").isNotNull()
    )


def _held_peaks(stays: DataFrame) -> DataFrame:
    """The largest number of stays that overlap after one step, by node."""
    change = F.explode(
        F.array(
            F.struct(F.col("entered").alias("step"), F.lit(1).alias("by")),
            F.struct(F.col("left").alias("step"), F.lit(-1).alias("by")),
        )
    ).alias("change")
    so_far = _up_to_now("step")
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


def _up_to_now(order: str) -> WindowSpec:
    by_node = Window.partitionBy("run", "node").orderBy(order)
    return by_node.rowsBetween(Window.unboundedPreceding, Window.currentRow)
