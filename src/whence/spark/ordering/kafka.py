"""Topics of Kafka as a stream's source and sink, and as a log for the auditor.

    kafka://HOST:PORT[,HOST:PORT]/TOPIC

In: values are JSON, decoded by the schema that the caller gives; the record's key, headers, topic, partition,
offset and time are columns `kafka_*`. Out: a record per row, keyed by the order's key, its value the row as
JSON. Rows of a key are written by one task in their order, so a topic needs no sorting. Spark writes a record
at least once: a batch that is done again is written again. The header `whence-id` (`batch.partition.number`,
the same for the same row) lets a reader drop those: `whence.order.OnceReader`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyspark
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from whence.errors import DataError, MisuseError
from whence.spark.ordering.columns import quoted_column
from whence.spark.progress import spark_failures

PACKAGE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
ROW_ID, ID_HEADER = "__row_id", "whence-id"
_ADDRESS = re.compile(r"kafka:/{1,2}([^/]+:\d+)/([\w.-]+)")


def is_topic(address: str) -> bool:
    """Whether this names a topic."""
    return address.startswith("kafka:/")


def options_of(address: str, *, source: bool) -> dict[str, str]:
    """Spark's options for a topic."""
    found = _ADDRESS.fullmatch(address)
    if not found:
        raise MisuseError(
            f"topic {address}",
            "it does not name a server with its port and a topic",
            "Write kafka://HOST:PORT/TOPIC",
        )
    topic = "subscribe" if source else "topic"
    return {"kafka.bootstrap.servers": found[1], topic: found[2]}


def check_connector(spark: SparkSession) -> None:
    """Refuse before anything begins, where Spark was started without its connector."""
    with spark_failures("Kafka", f"Start Spark with the connector: --packages {PACKAGE}"):
        try:
            spark.read.format("kafka").options(**{"kafka.bootstrap.servers": "x:1", "subscribe": "x"}).load()
        except Exception as error:
            if "data source" not in str(error).lower() and "ClassNotFound" not in str(error):
                raise
            raise DataError(
                "Kafka",
                "Spark was started without its connector",
                f"Set PYSPARK_SUBMIT_ARGS='--packages {PACKAGE} pyspark-shell', or give spark-submit "
                f"--packages {PACKAGE}",
            ) from error


def read_topic(spark: SparkSession, address: str, options: dict[str, str], schema: str | None) -> DataFrame:
    """The records of a topic as a stream of rows."""
    if schema is None:
        raise MisuseError(
            f"topic {address}", "nothing says what its values are", 'Give --schema "id string, ..." (of JSON)'
        )
    check_connector(spark)
    given = {"startingOffsets": "earliest", "includeHeaders": "true"} | options_of(address, source=True)
    records = spark.readStream.format("kafka").options(**(given | options)).load()
    value = F.from_json(F.col("value").cast("string"), schema, {"mode": "FAILFAST"})
    return records.select(value.alias("value"), *_record()).select("value.*", *_NAMES)


_NAMES = ("kafka_key", "kafka_headers", "kafka_topic", "kafka_partition", "kafka_offset", "kafka_time")


def _record() -> list[Column]:
    """What a record has beside its value, as columns."""
    headers = F.transform(
        "headers",
        lambda each: F.struct(each["key"].alias("key"), each["value"].cast("string").alias("value")),
    )
    found = (F.col("key").cast("string"), headers, *map(F.col, ("topic", "partition", "offset", "timestamp")))
    return [column.alias(name) for name, column in zip(_NAMES, found, strict=True)]


def as_records(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Rows with their ids as records: key, value and the header with the id."""
    columns = [quoted_column(name) for name in rows.columns if name != ROW_ID]
    parts = [quoted_column(name).cast("string") for name in key]
    header = F.struct(F.lit(ID_HEADER).alias("key"), F.col(ROW_ID).cast("binary").alias("value"))
    return rows.select(
        (F.concat_ws("/", *parts) if parts else F.lit("")).alias("key"),
        F.to_json(F.struct(*columns)).alias("value"),
        F.array(header).alias("headers"),
    )


def topic_log(spark: SparkSession, address: str) -> DataFrame:
    """A topic as the auditor's preset `kafka` reads it: what one consumer, this one, was handed."""
    check_connector(spark)
    records = spark.read.format("kafka").options(**options_of(address, source=True)).load()
    who: dict[str, Any] = {"consumer": "whence", "group": "whence", "assignment": 1}
    return records.select(
        "topic", "partition", "offset", *(F.lit(value).alias(name) for name, value in who.items())
    ).orderBy("partition", "offset")
