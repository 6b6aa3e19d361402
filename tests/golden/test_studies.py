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
from support.tiny_study import TinyStudies


@pytest.fixture(scope="module", params=COUNTED)
def study(request: pytest.FixtureRequest, tiny_studies: TinyStudies) -> tuple[str, Golden]:
    return request.param, golden(counted_study(request.param, tiny_studies))


@pytest.mark.parametrize("part", PARTS)
def test_a_study_is_as_recorded(study: tuple[str, Golden], part: str) -> None:
    name, found = study
    assert changes(load(f"studies-{name}")[part], found[part]) == []
