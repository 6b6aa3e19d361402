"""Runs through the cores, whatever kernels there are, and the trace of a run on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whence.lab.run import run
from whence.sim.model import Scenario
from whence.sim.outcome import Outcome
from whence.trace.schema import Level, Manifest, Recorder


def simulate(scenario: Scenario, recorder: Recorder | None = None, **options: Any) -> Outcome:
    """Run a scenario; `recorder` hears the rows."""
    return run(scenario, recorder=recorder, kernel="never", **options)


def simulate_in(scenario: Scenario, folder: Path, level: Level | None = None, **options: Any) -> Outcome:
    """Run a scenario and write its trace."""
    return run(scenario, folder, level=level, kernel="never", **options)


def simulate_to(scenario: Scenario, folder: Path, level: Level | None = None, **options: Any) -> Manifest:
    """Run a scenario and write its trace, of which the manifest is returned."""
    manifest = simulate_in(scenario, folder, level, **options).manifest
    assert manifest is not None
    return manifest
