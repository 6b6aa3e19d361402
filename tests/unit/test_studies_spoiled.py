"""Spoil every measure of every study, as recorded at the scale `demo`; and the page that counts verdicts.

Nothing is simulated here: the runs are those of tests/golden/data/runs-*.json.gz.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.recorded import NAMES, path_of, recorded
from support.spoil import fates
from whence.studies import registry

RECORDED = [name for name in NAMES if path_of(name).exists()]


@pytest.mark.parametrize("name", RECORDED)
def test_every_demand_notices_a_spoiled_measure(name: str) -> None:
    study = registry.lookup(name)
    found = fates(study, recorded(name))
    assert [fate for fate in found if fate.is_dead] == []
    assert len(found) >= 4
    excused = [fate for fate in found if fate.excuse]
    assert len(excused) <= len(found) / 4, (
        "an excuse is for what exists and for printed bounds, not a way out"
    )


@pytest.mark.parametrize("name", RECORDED)
def test_what_was_recorded_holds(name: str) -> None:
    study = registry.lookup(name)
    assert [one.claim.id for one in study.judge(recorded(name)) if one.failed] == []


def test_the_page_of_fidelity_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "tools/fidelity.py"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
