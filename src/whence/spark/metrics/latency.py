"""How long messages travel, and how long they are held back for the sake of order."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from whence.spark.tables import EVENTS, LATENCY, carried, columns_of, require
from whence.trace.schema import Kind


def latencies(events: DataFrame) -> DataFrame:
    """LATENCY: one row for each message at each node other than its origin that received or delivered it.

    reception_us   first RECEIVE there - BROADCAST; null unless the run recorded receptions (Level.ALL)
    delivery_us    DELIVER there - BROADCAST; null if it was not delivered there
    held_us        DELIVER - first RECEIVE, both there: what the order costs, the network's share left out

    A message that no BROADCAST row tells of keeps its row, with null latencies: dropping it would make
    the means look better than the trace.
    """
    require(events, EVENTS, "events")
    key = ["run", "origin", "number"]
    kind = F.col("kind")
    sent = (
        events.where((kind == Kind.BROADCAST) & (F.col("node") == F.col("origin")))
        .groupBy(*key)
        .agg(F.min("time_us").alias("broadcast_us"))
    )
    arrived = (
        carried(events.where(kind.isin(Kind.RECEIVE, Kind.DELIVER)))
        .where(F.col("origin").isNotNull() & (F.col("node") != F.col("origin")))
        .groupBy("node", *key)
        .agg(
            F.min(F.when(kind == Kind.RECEIVE, F.col("time_us"))).alias("received_us"),
            F.min(F.when(kind == Kind.DELIVER, F.col("time_us"))).alias("delivered_us"),
        )
    )
    received, delivered, broadcast = F.col("received_us"), F.col("delivered_us"), F.col("broadcast_us")
    return (
        arrived.join(sent, key, "left")
        .withColumn("reception_us", received - broadcast)
        .withColumn("delivery_us", delivered - broadcast)
        .withColumn("held_us", delivered - received)
        .select(columns_of(LATENCY))
    )
