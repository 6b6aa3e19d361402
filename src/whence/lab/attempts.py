"""One run of a sweep on disk: claimed, simulated, and then either finished or failed.

    OUT/run=<id>/          a finished run: its trace, measures.json if it counted something, and status.json
    OUT/_failed/<id>.json  what went wrong, of a run that failed
    OUT/_running/<id>.<k>/ attempt k at a run, so far

A run is simulated in `_running` and moved into its place as a whole, with its status inside: a reader that
finds `run=<id>/status.json` has all of it. Spark may try a task again, or even run it twice at a time;
each attempt has a folder of its own, and the first one to arrive is kept.
"""

from __future__ import annotations

import shutil
import time
import traceback
from pathlib import Path
from typing import Literal

import msgspec

from whence.errors import writing
from whence.lab.run import run as run_scenario
from whence.sim.files import Scenario, from_dict
from whence.sim.outcome import Outcome, Runner
from whence.trace.schema import Level

STATUS_FILE = "status.json"
RUNNING, FAILED = "_running", "_failed"
FINISHED = "run="  # before the name of a run: its folder, which is moved there as a whole
ATTEMPTS_MAX = 2  # a run that has killed its worker twice is not given a third


def simulated(scenario: Scenario, folder: Path, level: Level | None) -> Outcome:
    """Run a scenario of a sweep: by a kernel where there is one, for what one run compiles serves all."""
    return run_scenario(scenario, folder, level=level, kernel="always")


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How one run of a sweep ended."""

    run: str
    status: Literal["done", "skipped", "failed"]
    seconds: float  # of simulation, not of waiting for a place
    events: int
    folder: str
    parameters_json: str
    error: str | None = None  # a traceback


class _Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The content of status.json."""

    status: RunStatus
    level: str


def folder_of(out: Path, run: str) -> Path:
    """Where a finished run is."""
    return out / f"{FINISHED}{run}"


def find_finished(out: Path, run: str, level: Level) -> RunStatus | None:
    """The status of a run that has been finished and recorded at least `level`."""
    try:
        found = msgspec.json.decode((folder_of(out, run) / STATUS_FILE).read_bytes(), type=_Finished)
    except (OSError, msgspec.DecodeError):
        return None  # not there or damaged: either way the run must be done again
    enough = found.status.run == run and Level[found.level.upper()] >= level
    # The folder may have been moved since it was written.
    return msgspec.structs.replace(found.status, folder=str(folder_of(out, run))) if enough else None


def find_failed(out: Path, run: str) -> RunStatus | None:
    """What is on record about a failed run."""
    try:
        return msgspec.json.decode((out / FAILED / f"{run}.json").read_bytes(), type=RunStatus)
    except OSError:
        return None


def clear(out: Path, run: str) -> None:
    """Remove what is left of an earlier, unfinished or insufficient attempt at a run."""
    if folder_of(out, run).exists():
        shutil.rmtree(folder_of(out, run))
    (out / FAILED / f"{run}.json").unlink(missing_ok=True)


def perform(
    out: Path, run: str, parameters_json: str, level: Level | None, runner: Runner | None
) -> RunStatus:
    """Simulate one run (in a Spark task) and leave its record in `out`; never raises for the run's sake."""
    # The driver removed all old records: one that is there is of an earlier attempt at the same task.
    ended = find_failed(out, run) or find_finished(out, run, Level.MEASURES)
    if ended is not None:
        return ended
    claimed = _claim(out, run)
    if claimed is None:
        text = f"The worker process died {ATTEMPTS_MAX} times during this run (out of memory, or a crash)."
        return _record_failure(out, run, parameters_json, 0.0, text)
    began = time.perf_counter()
    trace = claimed / "trace"
    try:
        scenario = from_dict(msgspec.json.decode(parameters_json))
        outcome = (runner or simulated)(scenario, trace, level)
    except Exception:  # noqa: BLE001 - whatever a run raises is its result; the other runs go on
        shutil.rmtree(claimed, ignore_errors=True)
        return _record_failure(out, run, parameters_json, time.perf_counter() - began, traceback.format_exc())
    manifest = None if outcome is None else outcome.manifest
    status = RunStatus(
        run=run,
        status="done",
        seconds=time.perf_counter() - began,
        events=0 if manifest is None else manifest.events,
        folder=str(folder_of(out, run)),
        parameters_json=parameters_json,
    )
    kept = Level.MEASURES.name.lower() if manifest is None else manifest.level
    _write(trace / STATUS_FILE, _Finished(status=status, level=kept))
    try:
        trace.rename(folder_of(out, run))
    except OSError:
        # Another attempt at the same run has arrived first; anything else is a fault of the disk.
        if not (folder_of(out, run) / STATUS_FILE).exists():
            raise
    shutil.rmtree(claimed, ignore_errors=True)
    return status


def _claim(out: Path, run: str) -> Path | None:
    """A folder for this attempt; None if there have been too many (an attempt that ends cleans up)."""
    for attempt in range(ATTEMPTS_MAX):
        folder = out / RUNNING / f"{run}.{attempt}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    return None


def _record_failure(out: Path, run: str, parameters_json: str, seconds: float, text: str) -> RunStatus:
    status = RunStatus(
        run=run,
        status="failed",
        seconds=seconds,
        events=0,
        folder=str(folder_of(out, run)),
        parameters_json=parameters_json,
        error=text,
    )
    _write(out / FAILED / f"{run}.json", status)
    return status


def _write(path: Path, content: msgspec.Struct) -> None:
    temporary = path.with_name(path.name + ".tmp")
    with writing(path):
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2))
        temporary.replace(path)
