"""A grid of scenarios, one simulation per run, on as many cores or machines as the session has.

Resumable: a run is named by the hash of its parameters, and one that is finished in the out folder is not
run again. A run that fails is reported with its parameters and traceback; the others go on. The out folder
must be the same storage for the driver and all workers.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from whence import plugins
from whence.errors import DiskError, MisuseError, PlatformError
from whence.lab import attempts as runs
from whence.lab.attempts import RunStatus
from whence.lab.run import expected_seconds
from whence.lab.tasks import tasks_of
from whence.sim.files import Scenario, run_id, to_dict
from whence.sim.outcome import Runner
from whence.spark.progress import platform_problem
from whence.spark.session import cores_of
from whence.spark.tables import STATUS
from whence.trace.schema import Level

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["Progress", "RunStatus", "sweep"]

# Told (runs ended, runs in all), from another thread while the sweep is under way.
Progress: TypeAlias = Callable[[int, int], None]

POLL_SECONDS = 0.25
VISIBLE_SECONDS_MAX = 10.0


class _Job(NamedTuple):
    """One run that is to be done."""

    run: str
    parameters_json: str
    seconds: float  # estimated


def sweep(
    spark: SparkSession,
    scenarios: Iterable[Scenario],
    out_folder: Path | str,
    *,
    level: Level | None = None,
    progress: Progress | None = None,
    runner: Runner | None = None,
) -> list[RunStatus]:
    """Run every scenario that is not finished in `out_folder`; the statuses in the order given.

    Equal scenarios are one run. `level` overrides what the scenarios themselves say about recording; a
    finished run that recorded less is done again. `runner` replaces the simulator, for a study that
    measures more, or for a test; the workers must be able to import it.
    """
    out = Path(out_folder).resolve()
    wanted: dict[str, Scenario] = {run_id(scenario): scenario for scenario in scenarios}
    ended: dict[str, RunStatus] = {}
    with _only_sweep_in(out):
        jobs = []
        for run, scenario in wanted.items():
            needed = scenario.record.as_level() if level is None else level
            found = runs.find_finished(out, run, needed)
            if found is not None:
                ended[run] = msgspec.structs.replace(found, status="skipped")
                continue
            runs.clear(out, run)
            jobs.append(_Job(run, _parameters(scenario), expected_seconds(scenario, "always")))
        with _watched(out, [job.run for job in jobs], len(wanted), progress):
            ended |= _run_all(spark, out, jobs, level, runner)
    return [ended[run] for run in wanted]


def _parameters(scenario: Scenario) -> str:
    return msgspec.json.encode(to_dict(scenario), order="sorted").decode()


def _run_all(
    spark: SparkSession, out: Path, jobs: Sequence[_Job], level: Level | None, runner: Runner | None
) -> Mapping[str, RunStatus]:
    """Run the jobs; again those that Spark gave up with a dead worker, as long as that gets anywhere."""
    ended: dict[str, RunStatus] = {}
    left = list(jobs)
    while left:
        problem = _run_once(spark, out, left, level, runner)
        ended |= _collect(out, left, patient=problem is None)
        unended = [job for job in left if job.run not in ended]
        if unended and problem is None:
            raise PlatformError(
                f"sweep into {out}",
                f"run {unended[0].run} ended on a worker, but this machine does not see its result",
                "Give an out folder on storage that the driver and all workers share",
            )
        if len(unended) == len(left):
            full = None if problem is None else platform_problem(problem, f"sweep into {out}")
            if isinstance(full, DiskError):
                raise full from problem
            raise PlatformError(
                f"sweep into {out}",
                f"Spark gave up: {_last_line(str(problem))}",
                "Check that the workers have the Python and the packages of this machine (docs/cluster.md); "
                "finished runs are kept, so the same command goes on where it stopped",
            ) from problem
        left = unended
    return ended


def _collect(out: Path, jobs: Sequence[_Job], *, patient: bool) -> dict[str, RunStatus]:
    """The records of the jobs. Patient: all have ended, but a network file system may show it late."""
    deadline = time.monotonic() + (VISIBLE_SECONDS_MAX if patient else 0.0)
    ended: dict[str, RunStatus] = {}
    while True:
        for job in jobs:
            status = runs.find_failed(out, job.run) or runs.find_finished(out, job.run, Level.MEASURES)
            if status is not None:
                ended[job.run] = status
        if len(ended) == len(jobs) or time.monotonic() >= deadline:
            return ended
        time.sleep(POLL_SECONDS)


def _run_once(
    spark: SparkSession, out: Path, jobs: Sequence[_Job], level: Level | None, runner: Runner | None
) -> Exception | None:
    """One Spark job over all runs, or the error with which Spark ended it."""
    from pyspark.errors import PySparkException

    py4j = importlib.import_module("py4j.protocol")  # it has no type hints
    tasks = tasks_of([job.seconds for job in jobs], cores_of(spark))
    contents = [[(jobs[index].run, jobs[index].parameters_json) for index in task] for task in tasks]

    wanted = plugins.names()

    def perform(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plugins.use(*wanted)
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            for task in numbers:
                for run, parameters_json in contents[task]:
                    yield _status_row(runs.perform(out, run, parameters_json, level, runner))

    # range: partition i holds exactly the number i, so each task is one partition, in this order.
    # mapInArrow rather than an RDD: it is the form that Spark Connect has too.
    partitions = spark.range(0, len(tasks), 1, numPartitions=len(tasks))
    try:
        partitions.mapInArrow(perform, STATUS).select("run").collect()
    except (PySparkException, py4j.Py4JError) as error:
        return error
    return None


def _status_row(status: RunStatus) -> pa.RecordBatch:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.RecordBatch.from_pylist([msgspec.to_builtins(status)], schema=to_arrow_schema(STATUS))


def _last_line(text: str) -> str:
    """The telling line of a Python traceback inside a Java stack trace, or the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error:" in line and not line.startswith("at ")]
    return (errors or lines or ["it gave no reason"])[-1 if errors else 0]


@contextmanager
def _only_sweep_in(out: Path) -> Iterator[None]:
    """Make the folder and hold its lock: two sweeps at once would remove each other's attempts."""
    import fcntl
    import shutil

    try:
        out.mkdir(parents=True, exist_ok=True)
        lock: IO[str] = (out / "_sweep.lock").open("w")
    except OSError as error:
        raise PlatformError(
            f"sweep into {out}", error.strerror or str(error), "Choose a folder that can be written"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the system frees it if we are killed
        except OSError as error:
            raise MisuseError(
                f"sweep into {out}", "another sweep is at work there", "Wait for it, or choose another folder"
            ) from error
        shutil.rmtree(out / runs.RUNNING, ignore_errors=True)
        (out / runs.RUNNING).mkdir()
        (out / runs.FAILED).mkdir(exist_ok=True)
        yield
        shutil.rmtree(out / runs.RUNNING, ignore_errors=True)


@contextmanager
def _watched(out: Path, pending: Sequence[str], total: int, progress: Progress | None) -> Iterator[None]:
    """Call `progress` whenever a run has ended, by looking at the folder: this works on any cluster."""
    if progress is None:
        yield
        return
    left = set(pending)
    stopped = threading.Event()

    def look() -> None:
        # Two listings, whatever is left: to ask for each of thousands of runs cost as much as a worker.
        ended = {entry.name.removeprefix(runs.FINISHED) for entry in out.iterdir()}
        ended |= {entry.stem for entry in (out / runs.FAILED).iterdir()}
        left.difference_update(ended)
        progress(total - len(left), total)

    def watch() -> None:
        while not stopped.wait(POLL_SECONDS):
            look()

    progress(total - len(left), total)
    watcher = threading.Thread(target=watch, name="sweep-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stopped.set()
        watcher.join()
    look()
