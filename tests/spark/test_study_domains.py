"""The study of domains from its grid to its page, on Spark, at its smallest scale."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from whence.report import html
from whence.studies.domains.grid import DomainsStudy
from whence.studies.run import run_study

pytestmark = pytest.mark.spark


def test_the_study_holds_at_the_smallest_scale(spark: SparkSession, tmp_path: Path) -> None:
    result = run_study(spark, DomainsStudy(), "tiny", tmp_path)
    assert result.failures == ()
    assert [one.claim.text for one in result.judged if one.failed] == []
    named = {one.claim.text: one for one in result.judged}
    assert named["stamp of a message, flat, full, 144 servers"].measured == 4 * 144**2
    assert named["stamp of a message, bus, full, 144 servers"].measured == 12 * 144
    assert named["causal violations on a ring of domains"].measured >= 1
    assert result.witness is not None  # a cycle's violation, told as a story
    page = html.render(result, date="2026-11-16")
    assert len(result.results.select(part="live")) == 2 * 4 * 3  # rounds, systems, workloads
    for title in (
        "Turn-around time on real servers",
        "One to all on real servers",
        "What domains gain on real servers",
        "Measured times: all servers run",
        "flat against bus",
        "Bus, daisy, tree",
        "One to all",
        "Order and cycles",
        "Planned domains",
    ):
        assert title in page
