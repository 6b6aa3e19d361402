"""The PRC study from its grid to its page, on Spark, at its smallest scale."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from whence.studies.prc.grid import STUDY
from whence.studies.run import run_study

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_study_holds_at_the_smallest_scale(spark: SparkSession, tmp_path: Path) -> None:
    result = run_study(spark, STUDY, "tiny", tmp_path)
    assert result.failures == ()
    assert len(result.results.rows) == len(STUDY.grid("tiny"))
    assert [one.claim.text for one in result.judged if one.failed] == []
    judged = [row for row in result.results.rows if row.judged]
    assert {row.labels["part"] for row in judged} == {"opening", "growth", "churn"}
    assert all(row.ok for row in judged)
