"""The deadline study from its grid to its page, on Spark, at its smallest scale."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from whence.studies.deadline.grid import DeadlineStudy
from whence.studies.run import run_study

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_study_holds_at_the_smallest_scale(spark: SparkSession, tmp_path: Path) -> None:
    result = run_study(spark, DeadlineStudy(), "tiny", tmp_path)
    assert result.failures == ()
    assert len(result.results.rows) == len(DeadlineStudy().grid("tiny"))
    assert [one.claim.text for one in result.judged if one.failed] == []
    printed = [row for row in result.results.rows if row.labels["part"] == "printed"]
    assert all(row.judged for row in printed)
    assert not all(row.ok for row in printed)
    assert result.witness is not None  # the page shows how the printed algorithm breaks causal order
