"""The cost of a run: packets and bytes, messages per packet, dependencies, and buffers of nodes."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from whence.spark.metrics.events import NODE_COUNTS
from whence.spark.metrics.nodes import nodes
from whence.spark.tables import (
    BUFFERS,
    DEPENDENCIES,
    EVENTS,
    PACKING,
    TRAFFIC,
    TRAFFIC_MATRIX,
    columns_of,
    require,
)
from whence.trace.schema import Kind

# For protocols that aggregate


def packing(events: DataFrame) -> DataFrame:
    """PACKING: one row for each node that sent anything.

    copies               messages in all its packets together
    aggregated_packets   packets with more than one message; `aggregated_copies` are the messages in these
    messages_max         most messages in one packet
    """
    require(events, EVENTS, "events")
    messages = F.col("messages")
    several = messages > 1
    return (
        events.where(F.col("kind") == Kind.SEND)
        .withColumn("further", F.coalesce(F.size(F.split("detail", " ")), F.lit(0)))
        # A packet without a message may still have a detail: what it asks for.
        .withColumn("messages", F.when(F.col("origin").isNull(), 0).otherwise(1 + F.col("further")))
        .groupBy("run", "node")
        .agg(
            F.count("*").alias("packets"),
            F.sum(messages).alias("copies"),
            F.count_if(several).alias("aggregated_packets"),
            F.sum(F.when(several, messages).otherwise(0)).alias("aggregated_copies"),
            F.max(messages).alias("messages_max"),
        )
        .select(columns_of(PACKING))
    )


def dependencies(events: DataFrame) -> DataFrame:
    """DEPENDENCIES: for each broadcast, from how many other nodes something was delivered since the last one.

    These are the entries of a clock that is compressed as Birman does it: what has changed since the
    node's previous broadcast.
    """
    require(events, EVENTS, "events")
    kind = F.col("kind")
    # A broadcast and the deliveries before it share the number of broadcasts that came before.
    before = Window.partitionBy("run", "node").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    past = F.coalesce(F.count_if(kind == Kind.BROADCAST).over(before), F.lit(0)).alias("past")
    steps = events.where(kind.isin(Kind.BROADCAST, Kind.DELIVER)).select(
        "run", "node", "kind", "origin", "number", past
    )
    foreign = F.when((kind == Kind.DELIVER) & (F.col("origin") != F.col("node")), F.col("origin"))
    return (
        steps.groupBy("run", "node", "past")
        .agg(
            F.max(F.when(kind == Kind.BROADCAST, F.col("number"))).alias("number"),
            F.count_distinct(foreign).alias("dependencies"),
        )
        .where(F.col("number").isNotNull())
        .withColumn("origin", F.col("node"))
        .select(columns_of(DEPENDENCIES))
    )


# For all protocols


def buffer_peaks(events: DataFrame) -> DataFrame:
    """BUFFERS: one row for each node that has events.

    held_peak      as `whence.spark.metrics.nodes` says; null where deliveries were recorded but receptions
                   were not
    entries_peak   largest SAMPLE of the gauge "entries"; null where none was taken
    """
    return nodes(events).select(columns_of(BUFFERS))


def traffic(events: DataFrame) -> DataFrame:
    """TRAFFIC: one row per run. A packet is one SEND row: one copy, to one receiver.

    `deliveries` counts every DELIVER row, a node's own messages included. Where messages reached other
    nodes but no SEND was recorded (Level.DELIVERIES), the packet columns are null: unknown, not free.
    """
    return figures(
        nodes(events).groupBy("run").agg(*(F.sum(name).alias(name) for name in NODE_COUNTS))
    ).select(columns_of(TRAFFIC))


def figures(counted: DataFrame) -> DataFrame:
    """The columns of TRAFFIC, made of a run's NODE_COUNTS."""
    recorded = (F.col("sends") > 0) | (F.col("remote") == 0)

    def known(column: str) -> Column:
        return F.when(recorded, F.col(column))

    return (
        counted.withColumn("packets", known("sends"))
        .withColumn("total_bytes", known("total"))
        .withColumn("control_bytes", known("control"))
        .withColumn("payload_bytes", F.col("total_bytes") - F.col("control_bytes"))
        .withColumn("discards", known("discarded"))
        # try_divide: null, not an error, for a run without broadcasts or packets.
        .withColumn("packets_per_broadcast", F.try_divide("packets", "broadcasts"))
        .withColumn("control_bytes_per_packet", F.try_divide("control_bytes", "packets"))
    )


def traffic_matrix(events: DataFrame) -> DataFrame:
    """TRAFFIC_MATRIX: one row for each pair of nodes of which one sent the other point-to-point messages."""
    require(events, EVENTS, "events")
    begins = (
        (F.col("kind") == Kind.BROADCAST) & (F.col("node") == F.col("origin")) & F.col("peer").isNotNull()
    )
    return (
        events.where(begins)
        .groupBy("run", F.col("node").alias("source"), F.col("peer").alias("to"))
        .agg(F.count("*").alias("messages"))
        .select(columns_of(TRAFFIC_MATRIX))
    )
