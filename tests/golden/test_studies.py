"""Every study at its smallest scale: the same runs, claims, pages and figures as were recorded.

`record_studies.py` says what is recorded, and records it anew where a change is meant.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from golden.record_studies import (
    COUNTED,
    PARTS,
    Golden,
    changes,
    counted_study,
    demo_simulated,
    demo_study,
    golden,
    load,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module", params=COUNTED)
def study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Golden]:
    return request.param, golden(counted_study(request.param, tmp_path_factory.mktemp(request.param)))


@pytest.mark.parametrize("part", PARTS)
def test_a_study_is_as_recorded(study: tuple[str, Golden], part: str) -> None:
    name, found = study
    assert changes(load(f"studies-{name}")[part], found[part]) == []


def test_the_runs_of_the_demonstration_are_as_recorded(tmp_path: Path) -> None:
    assert changes(load("studies-demo")["simulated"], demo_simulated(tmp_path)) == []


@pytest.mark.slow
@pytest.mark.spark
def test_the_demonstration_is_as_recorded(spark: SparkSession, tmp_path: Path) -> None:
    found = golden(demo_study(spark, tmp_path))
    kept = load("studies-demo")
    for part in PARTS:
        assert changes(kept[part], found[part]) == [], part
