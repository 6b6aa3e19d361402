"""The study of opportunistic networks from its grid to its page, on Spark, at its smallest scale."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from whence.studies.oppnet import data as oppnet_data
from whence.studies.oppnet.grid import OppnetStudy
from whence.studies.run import run_study

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_study_holds_at_the_smallest_scale(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(oppnet_data.VARIABLE, raising=False)
    study = OppnetStudy()
    result = run_study(spark, study, "tiny", tmp_path)
    assert result.failures == ()
    assert len(result.results.rows) == len(study.grid("tiny"))
    assert [one.claim.text for one in result.judged if one.failed] == []
    judged = [row for row in result.results.rows if row.judged]
    assert {row.labels["mode"] for row in judged} == {"published", "safe"}
    assert all(row.ok for row in judged if row.labels["mode"] == "safe")
    assert result.witness is not None  # the page shows how wrong clocks break the order of the printed codes
    assert result.witness.labels["mode"] == "published"
    assert any("WHENCE_DATA" in sentence for sentence in result.findings)
