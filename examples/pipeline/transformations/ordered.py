"""Messages as they come, and the same in causal order: two tables of a declarative pipeline."""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from whence.spark.ordering.stream import causal_order

spark = SparkSession.active()
FILES = Path(__file__).parents[1] / "in"  # JSON, a message a line
SCHEMA = "room string, id string, after array<string>, at timestamp"


@dp.table
def messages() -> DataFrame:
    """The files that are new."""
    return spark.readStream.schema(SCHEMA).json(str(FILES))


@dp.table
def ordered() -> DataFrame:
    """Every message once: `where position is not null` is the order, by room, epoch and position."""
    return causal_order(
        spark.readStream.table("messages"),
        key="room",
        id="id",
        depends_on="after",
        event_time="at",
        lifetime="10s",
    )
