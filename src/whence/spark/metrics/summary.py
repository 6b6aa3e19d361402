"""One row of figures for each run."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from whence.spark.metrics.buffers import buffer_peaks
from whence.spark.metrics.latency import latencies
from whence.spark.metrics.traffic import traffic
from whence.spark.tables import EVENTS, LATENCY_MEASURES, SUMMARY, columns_of, require


def summary(events: DataFrame) -> DataFrame:
    """SUMMARY: traffic, latency statistics and buffer peaks of each run.

    Percentiles are exact (interpolated between the two nearest values), and means are exact sums divided
    once, so that the figures do not depend on how Spark split the data. `held_share` is the share of
    remote deliveries that waited after their first reception.
    """
    require(events, EVENTS, "events")
    held = F.col("held_us")
    share = F.try_divide(F.count_if(held > 0), F.count(held)).alias("held_share")
    statistics = [each for measure in LATENCY_MEASURES for each in _statistics(measure)]
    by_run = latencies(events).groupBy("run").agg(*statistics, share)
    for measure in LATENCY_MEASURES:
        both = F.col(f"{measure}_percentiles")
        by_run = by_run.withColumn(f"{measure}_p50_us", both[0]).withColumn(f"{measure}_p99_us", both[1])
    peaks = (
        buffer_peaks(events)
        .groupBy("run")
        .agg(F.max("held_peak").alias("held_peak_max"), F.max("entries_peak").alias("entries_peak_max"))
    )
    joined = traffic(events).join(by_run, "run", "left").join(peaks, "run", "left")
    return joined.select(columns_of(SUMMARY))


def _statistics(measure: str) -> list[Column]:
    value = F.col(f"{measure}_us")
    return [
        F.try_divide(F.sum(value), F.count(value)).alias(f"{measure}_mean_us"),
        # Both at once: each percentile aggregate keeps a table of all values.
        F.percentile(value, F.array(F.lit(0.5), F.lit(0.99))).alias(f"{measure}_percentiles"),
        F.max(value).alias(f"{measure}_max_us"),
    ]
