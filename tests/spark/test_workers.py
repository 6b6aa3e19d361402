"""What a Python worker keeps from one task to the next."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_what_is_loaded_is_collected_once(spark: SparkSession) -> None:
    """PySpark collects garbage after each task: what it finds alive is not looked through after the next."""

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        import pyarrow as pa

        import whence.spark.tables  # noqa: F401 - as all of our tasks do

        for _ in batches:
            row = {"pid": os.getpid(), "frozen": gc.get_freeze_count(), "seen": len(gc.get_objects())}
            yield pa.RecordBatch.from_pylist([row])

    def row() -> Any:
        (found,) = spark.range(0, 1, 1, 1).mapInArrow(count, "pid long, frozen long, seen long").collect()
        return found

    found: dict[int, list[Any]] = {}
    for _ in range(4):
        one = row()
        found.setdefault(one.pid, []).append(one)
    again = max(found.values(), key=len)
    assert len(again) > 1, "workers are used again"
    assert again[-1].frozen > 20_000
    assert again[-1].seen < again[-1].frozen // 4


def test_a_driver_collects_as_it_did() -> None:
    import whence.spark

    assert whence.spark._keep_what_outlived not in gc.callbacks
