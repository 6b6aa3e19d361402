"""Carry out a study: simulate its grid on Spark, judge and measure the traces, ask the study what it means.

    result = run_study(spark, registry.lookup("demo"), "demo", Path("out/study-demo"))
    save.save(result, folder); report.html.write(result, folder / "report.html", ...)

The traces stay in `<folder>/traces/run=<id>`: a study that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from whence.errors import DataError
from whence.studies import witness
from whence.studies.base import Point, Study, check_grid
from whence.studies.environment import git_commit, versions
from whence.studies.expect import Expectation
from whence.studies.results import Failure, Results, Row, StudyResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from whence.spark.sweep import RunStatus
    from whence.trace.reader import Trace

TRACES = "traces"
# In a session of a minute or two the JVM's optimising compiler costs more than it saves: the demonstration
# takes 50 CPU-seconds instead of 72 without it.
BRIEF_WORK_SECONDS = 120.0
BRIEF_SETTINGS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


class AllRunsFailedError(DataError):
    """Not one run of a study finished, so there is nothing to report on."""


class Bar(Protocol):
    """What shows the progress of one phase (`whence.cli.console.progress` gives one)."""

    def update(self, done: int | None = None) -> None:
        """`done` units of the phase are finished."""


Watch: TypeAlias = Callable[[str, int | None], AbstractContextManager[Bar]]


class _Silent:
    def update(self, done: int | None = None) -> None:
        """Nobody watches."""


def unwatched(phase: str, total: int | None) -> AbstractContextManager[Bar]:
    """The `Watch` of whoever wants no progress."""
    return nullcontext(_Silent())


class _Phases:
    """Runs phases under a watch and keeps their wall times."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str, total: int | None = None) -> Iterator[Bar]:
        began = time.monotonic()
        with self.watch(name, total) as bar:
            yield bar
        self.seconds[name] = time.monotonic() - began


def session_settings(study: Study, scale: str) -> dict[str, str]:
    """What a Spark session that is started for this study alone should be told."""
    from whence.spark.plan import estimate_seconds

    work_seconds = sum(estimate_seconds(point.scenario) for point in study.grid(scale))
    return dict(BRIEF_SETTINGS) if work_seconds <= BRIEF_WORK_SECONDS else {}


def run_study(
    spark: SparkSession,
    study: Study,
    scale: str,
    folder: Path,
    *,
    watch: Watch = unwatched,
    command: str | None = None,
) -> StudyResult:
    """Run `study` at `scale`; everything but the report page and its files is in the result."""
    points = study.grid(scale)
    check_grid(study, points)
    traces = folder / TRACES
    phases = _Phases(watch)
    with phases.phase("simulate", len(points)) as bar:
        ended = _sweep(spark, points, traces, bar)
    failures = tuple(
        Failure(status.run, point.labels, status.error or "no reason was given")
        for status, point in ended
        if status.status == "failed"
    )
    done = {status.run: point for status, point in ended if status.status != "failed"}
    if not done:
        raise AllRunsFailedError(
            f"study {study.name!r}",
            failures[0].error.strip().splitlines()[-1],
            "Mend the first run, then repeat",
        )
    with phases.phase("verify"):
        trace = _open(traces, list(done))
        verdicts = _verify(spark, trace)
    with phases.phase("measure"):
        measures = _measure(spark, trace)
    rows = [_row(study, run, point, measures[run], verdicts[run]) for run, point in done.items()]
    results = Results(tuple(rows), study.repetition)
    found = witness.pick(results.rows)
    told = witness.tell(*found, traces / f"run={found[0].run}") if found else None
    return StudyResult(
        name=study.name,
        title=study.title,
        paper=study.paper,
        summary=study.summary,
        scale=scale,
        scale_text=study.scales[scale],
        results=results,
        failures=failures,
        headline=study.headline(results),
        tables=tuple(study.tables(results)),
        figures=tuple(study.figures(results)),
        expectations=(_finished(points, failures), *study.expectations(results)),
        findings=tuple(study.findings(results)),
        witness=told,
        command=command or f"whence study {study.name} --scale {scale}",
        environment={**versions(), "commit": git_commit(), "spark master": _master(spark)},
        seconds=phases.seconds,
    )


def _sweep(
    spark: SparkSession, points: Sequence[Point], traces: Path, bar: Bar
) -> list[tuple[RunStatus, Point]]:
    """How each point ended, in the order of the grid."""
    from whence.sim.scenario import run_id
    from whence.spark.sweep import sweep

    scenarios = [point.scenario for point in points]
    statuses = sweep(spark, scenarios, traces, progress=lambda done, total: bar.update(done))
    by_run = {status.run: status for status in statuses}
    return [(by_run[run_id(point.scenario)], point) for point in points]


def _open(traces: Path, runs: Sequence[str]) -> Trace:
    """The traces of these runs; the folder may hold others, of another scale or an older grid."""
    from whence.trace.reader import Trace, open_trace

    wanted = set(runs)
    found = open_trace(traces)
    return Trace(found.path, [source for source in found.sources if source.manifest.run in wanted], [])


def _verify(spark: SparkSession, trace: Trace) -> dict[str, Mapping[str, Any]]:
    """The verifier's report on each run, as plain data."""
    from whence.spark.verify import verify_folder

    return {report.run: msgspec.to_builtins(report) for report in verify_folder(spark, trace)}


def _measure(spark: SparkSession, trace: Trace) -> dict[str, Mapping[str, float | None]]:
    """The summary of each run: every column but its name."""
    from whence.spark.metrics.summary import summary
    from whence.spark.tables import flatten, read_segments

    lines = (line.asDict() for line in summary(flatten(read_segments(spark, trace))).collect())
    return {line.pop("run"): line for line in lines}


def _row(
    study: Study,
    run: str,
    point: Point,
    measures: Mapping[str, float | None],
    verdict: Mapping[str, Any],
) -> Row:
    """A run with all its measures: Spark's, the verifier's counts, and what the study derives."""
    from whence.sim.scenario import to_dict

    plain = Row(run, point.labels, to_dict(point.scenario), {**measures, **verdict["counts"]}, verdict)
    derived = study.derive(plain)
    return Row(run, plain.labels, plain.parameters, {**plain.measures, **derived}, verdict)


def _finished(points: Sequence[Point], failures: Sequence[Failure]) -> Expectation:
    return Expectation(
        "runs that finished",
        len(points),
        len(points) - len(failures),
        "every point of the grid must be run before its numbers mean anything",
        unit="runs",
    )


def _master(spark: SparkSession) -> str:
    from whence.spark.session import is_remote

    return "Spark Connect" if is_remote(spark) else str(spark.sparkContext.master)
