"""What a run cost on the wire."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from whence.spark.metrics.between import NODE_COUNTS
from whence.spark.metrics.nodes import nodes
from whence.spark.tables import EVENTS, TRAFFIC, TRAFFIC_MATRIX, columns_of, require
from whence.trace.schema import Kind


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
