"""How many messages travel in a packet, and what a message depends on: for protocols that aggregate."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from whence.spark.tables import DEPENDENCIES, EVENTS, PACKING, columns_of, require
from whence.trace.schema import Kind


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
