"""How the VCube study simulates a run: in the kernel, with two measures more than the kernel's own.

    pair_*             Figure 8: the copies that came in packets of two messages, and the same copies in
                       the same scenario without aggregation
    *_by_start         Figure 1: reception by the time of the broadcast, the window cut into ten parts

Spark's workers import this module; so does the study's driver, to compile the kernel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from whence.errors import InvariantError
from whence.kernels import vcube
from whence.kernels.recording import keep
from whence.kernels.vcube import Outcome, Trail
from whence.sim.model import Scenario
from whence.sim.scenario import checked
from whence.studies.vcube_measures import WINDOW_PARTS as PARTS
from whence.trace.measures import Value
from whence.trace.schema import Level, Manifest

PAIRED_BYTES = 50  # Figure 8 is about messages of this size only; a second simulation is not free


def simulate_to(scenario: Scenario, folder: Path, level: Level | None = None) -> Manifest:
    """Run a scenario of the study and write its trace and all its measures."""
    scenario = checked(scenario)
    level = scenario.record.as_level() if level is None else level
    outcome = vcube.run(scenario, level=level, trail=True)
    further = by_start(outcome)
    is_paired = any(load.payload_bytes == PAIRED_BYTES for load in scenario.workloads)
    if is_paired and scenario.params["aggregate"] and scenario.params["tree"] == "source":
        plain = msgspec.structs.replace(scenario, params={**scenario.params, "aggregate": False})
        further |= pairs(_trail(outcome), _trail(vcube.run(plain, trail=True)))
    return keep(outcome, folder, level, further)


def pairs(aggregated: Trail, plain: Trail) -> dict[str, Value]:
    """Sums over the copies that came in packets of two: with aggregation, and the same ones without."""
    chosen = aggregated.together == 2
    sums = {"pair_copies": int(np.count_nonzero(chosen))}
    for prefix, trail in (("pair", aggregated), ("pair_plain", plain)):
        reception_us, delivery_us = _latencies(trail)
        sums[f"{prefix}_reception_us"] = int(reception_us[chosen].sum())
        sums[f"{prefix}_delivery_us"] = int(delivery_us[chosen].sum())
    return dict(sums)


def by_start(outcome: Outcome) -> dict[str, Value]:
    """Receptions and the sum of their latencies, by the part of the window in which the broadcast was."""
    trail = _trail(outcome)
    # A copy at its own origin has no reception, but in the single tree, which brings it back.
    remote = np.arange(trail.received_us.shape[0])[:, None] != trail.origin[None, :]
    part = np.minimum(trail.broadcast_us * PARTS // outcome.scenario.stop.duration_us, PARTS - 1)
    sums_us = np.where(remote, _latencies(trail)[0], 0).sum(axis=0)
    return {
        "receptions_by_start": np.bincount(part, remote.sum(axis=0), PARTS).astype(np.int64).tolist(),
        "reception_us_by_start": np.bincount(part, sums_us, PARTS).astype(np.int64).tolist(),
    }


def _latencies(trail: Trail) -> tuple[Any, Any]:
    return trail.received_us - trail.broadcast_us, trail.delivered_us - trail.broadcast_us


def _trail(outcome: Outcome) -> Trail:
    if outcome.trail is None:
        raise InvariantError("study vcube", "the kernel kept no trail")
    return outcome.trail
