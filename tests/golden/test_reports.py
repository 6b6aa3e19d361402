"""The verifier's reports on 10,000 random traces, byte for byte those of the code before the certificate."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from golden.files import load
from golden.of_reports import SEEDS, Drawn, digest, drawn, front_door
from property.test_verify_paths import bounded, in_blocks
from property.test_verify_shares import placed_once
from support.version_1 import rewrite_in_version_1
from whence.trace.reader import events_in
from whence.trace.schema import Level
from whence.trace.writer import TraceWriter
from whence.verify import run as run_module
from whence.verify.bounded import MemoryBudget
from whence.verify.certificate import Certifier, Proof
from whence.verify.kernels import compiled
from whence.verify.report import RunReport
from whence.verify.run import verify_trace

SOME = MemoryBudget(memory_bytes=1 << 30, past_bytes=60, cached_events=20, window_events=2, parts=2)


def write(each: Drawn, folder: Path) -> None:
    """Files which begin a row group now and then."""
    shutil.rmtree(folder, ignore_errors=True)
    rng = random.Random(len(each.table))
    with TraceWriter(
        folder, run="r", writer="w", protocol="", parameters={}, promises=each.promises, seed=None,
        nodes=each.members, level=Level.ALL,
    ) as writer:  # fmt: skip
        for batch in each.table.to_batches():
            for event in events_in(batch):
                writer.event(event.node, *event[3:])
                if rng.random() < 0.02:
                    writer.flush()


def from_files(each: Drawn, folder: Path, version: int) -> RunReport:
    write(each, folder)
    if version == 1:
        rewrite_in_version_1(folder)
    (report,) = verify_trace(folder, witness_max=each.witness_max)
    return report


def placed(each: Drawn, folder: Path) -> RunReport:
    """The report from three blocks of a run that was placed once, as on Spark."""
    write(each, folder)
    return placed_once(folder, each.promises, each.witness_max, 3)


def paths(folder: Path) -> dict[str, Callable[[Drawn], RunReport]]:
    """Every way to a report that needs no Spark."""
    return {
        "proved": front_door,
        "bounded": lambda each: bounded(
            each.table, each.promises, each.members, SOME, each.witness_max, group_rows=8
        ),
        "blocks": lambda each: in_blocks(each.table, each.promises, each.members, 2, each.witness_max),
        "placed": lambda each: placed(each, folder),
        "version 2": lambda each: from_files(each, folder, 2),
        "version 1": lambda each: from_files(each, folder, 1),
    }


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[Proof]:
    """The runs that were proved clean; small ones, too, because the loops are compiled."""
    if compiled() is None:
        pytest.skip("numba is not installed")
    found: list[Proof] = []

    class Noted(Certifier):
        def finish(self) -> Proof | None:
            proof = super().finish()
            found.extend([proof] if proof else [])
            return proof

    monkeypatch.setattr(run_module, "Certifier", Noted)
    return found


def test_some_reports_of_runs_that_were_placed_once(tmp_path: Path) -> None:
    for each in drawn(0, 3):
        assert placed(each, tmp_path / "trace") == front_door(each)


def test_500_reports(proofs: list[Proof]) -> None:
    assert digest(front_door, 0) == load("reports")["0"]
    assert len(proofs) > 100


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", ["proved", "bounded", "blocks", "placed", "version 2", "version 1"])
@pytest.mark.parametrize("seed", SEEDS)
def test_10000_reports_by_every_path(seed: int, path: str, tmp_path: Path, proofs: list[Proof]) -> None:
    assert digest(paths(tmp_path / "trace")[path], seed) == load("reports")[str(seed)]
    assert bool(proofs) is (path not in ("bounded", "blocks", "placed"))
