"""How much a node holds: messages that wait for their past, and entries of control information."""

from __future__ import annotations

from pyspark.sql import DataFrame

from whence.spark.metrics.nodes import nodes
from whence.spark.tables import BUFFERS, columns_of


def buffer_peaks(events: DataFrame) -> DataFrame:
    """BUFFERS: one row for each node that has events.

    held_peak      as `whence.spark.metrics.holding` says; null where deliveries were recorded but receptions
                   were not
    entries_peak   largest SAMPLE of the gauge "entries"; null where none was taken
    """
    return nodes(events).select(columns_of(BUFFERS))
