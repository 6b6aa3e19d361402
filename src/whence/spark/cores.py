"""How much a session can do at a time. Knows nothing else of the package: the verifier may import it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMOTE_CORES = 8  # a Spark Connect client cannot know, and assumes a few


def is_remote(session: SparkSession) -> bool:
    """Whether this is a Spark Connect client, which has no JVM."""
    return not hasattr(session, "_jvm")


def cores_of(session: SparkSession) -> int:
    """How many tasks run at a time."""
    return REMOTE_CORES if is_remote(session) else int(session.sparkContext.defaultParallelism)
