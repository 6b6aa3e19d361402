"""Messages in causal order, as a table of a declarative pipeline."""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from whence.spark.ordering.stream import causal_order

spark = SparkSession.active()
FILES = Path(__file__).parents[1] / "in"  # JSON, a message a line
SCHEMA = "room string, id string, after array<string>, at timestamp"

# Not in the function below: an order must know its columns, and Spark lets no such function ask for them.
ORDERED = causal_order(
    spark.readStream.schema(SCHEMA).json(str(FILES)),
    key="room",
    id="id",
    depends_on="after",
    event_time="at",
    lifetime="10s",
)


@dp.table
def ordered() -> DataFrame:
    """Every message once: `where position is not null` is the order, by room, epoch and position."""
    return ORDERED
