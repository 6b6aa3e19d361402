"""Every study at its smallest scale: the same runs, claims, pages and figures as were recorded.

`record_studies.py` says what is recorded, and records it anew where a change is meant.
"""

from __future__ import annotations

import pytest

from golden.record_studies import (
    COUNTED,
    PARTS,
    Golden,
    changes,
    counted_study,
    golden,
    load,
)


@pytest.fixture(scope="module", params=COUNTED)
def study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Golden]:
    return request.param, golden(counted_study(request.param, tmp_path_factory.mktemp(request.param)))


@pytest.mark.parametrize("part", PARTS)
def test_a_study_is_as_recorded(study: tuple[str, Golden], part: str) -> None:
    name, found = study
    assert changes(load(f"studies-{name}")[part], found[part]) == []
