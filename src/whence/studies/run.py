"""Carry out a study: simulate its grid on Spark, judge and measure the traces, ask the study what it means.

    result = run_study(spark, registry.lookup("vcube"), "demo", Path("out/study-vcube"))
    save.save(result, folder); report.html.write(result, folder / "report.html", ...)

The traces stay in `<folder>/traces/run=<id>`: a study that was interrupted goes on where it stopped.
A run that records measures only is known by what its kernel counted (`whence.trace.measures`); the verifier
judges all others.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import msgspec

from whence.errors import DataError
from whence.lab.attempts import RunStatus, simulated
from whence.sim.files import run_id, to_dict
from whence.sim.model import Scenario
from whence.sim.outcome import Outcome
from whence.studies import witness
from whence.studies.base import Failure, Point, Study, StudyResult, check_grid
from whence.studies.claims import Claim, Evidence
from whence.studies.environment import git_commit, versions
from whence.studies.results import Results, Row
from whence.studies.verdicts import Judged
from whence.trace.measures import read_measures
from whence.trace.reader import Trace, open_trace
from whence.trace.schema import Level

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Made = TypeVar("_Made")
TRACES = "traces"
# In a session of a minute or two the JVM's optimising compiler costs more than it saves: some 160 small runs
# took 50 CPU-seconds instead of 72 without it.
BRIEF_WORK_SECONDS = 120.0
BRIEF_SETTINGS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


class Bar(Protocol):
    """What shows the progress of one phase (`whence.cli.console.progress` gives one)."""

    def update(self, done: int | None = None) -> None:
        """`done` units of the phase are finished."""


Watch: TypeAlias = Callable[[str, int | None], AbstractContextManager[Bar]]


class _Silent:
    def update(self, done: int | None = None) -> None:
        """Show nothing."""


def unwatched(phase: str, total: int | None) -> AbstractContextManager[Bar]:
    """The `Watch` of a caller that wants no progress."""
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


class _Parts:
    """Makes the parts of a report: one that cannot be made is a line in it, and not its end.

    A study whose runs of one kind all failed may lack what a table is made of; the others are worth reading.
    """

    def __init__(self) -> None:
        self.failures: list[Failure] = []

    def made(self, part: str, make: Callable[[], Iterable[_Made]]) -> tuple[_Made, ...]:
        try:
            return tuple(make())
        except Exception:  # noqa: BLE001 - whatever it lacks: the study fails by it (`REPORTED`), and says so
            self.failures.append(Failure(part, {}, traceback.format_exc()))
            return ()


def session_settings(study: Study, scale: str) -> dict[str, str]:
    """What a Spark session that is started for this study alone should be told."""
    from whence.lab.run import expected_seconds

    work_seconds = sum(expected_seconds(point.scenario, "always") for point in study.grid(scale))
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
    if study.preparation is not None:
        with phases.phase("prepare"):
            study.preparation()
    with phases.phase("simulate", len({run_id(point.scenario) for point in points})) as bar:
        ended = _sweep(spark, study, points, traces, bar)
    failures = [
        Failure(status.run, point.labels, status.error or "no reason was given")
        for status, point in ended
        if status.status == "failed"
    ]
    done = [(status.run, point) for status, point in ended if status.status != "failed"]
    parts = _Parts()
    rows, underived = _judged(spark, study, traces, done, phases)
    failures += underived
    if study.measurement is not None:
        measurement = study.measurement(scale)
        with phases.phase("live", measurement.steps) as bar:
            rows += parts.made("live", lambda: measurement.run(bar.update, folder))
    results = Results(tuple(rows), study.repetition)
    found = witness.pick(results.select(**study.opened))
    told = parts.made(
        "witness", lambda: [witness.tell(*found, traces / f"run={found[0].run}")] if found else []
    )
    headline = parts.made("headline", lambda: [study.headline(results)] if study.headline else [])
    tables = parts.made("tables", lambda: study.tables(results))
    figures = parts.made("figures", lambda: study.figures(results))
    judged = parts.made("claims", lambda: study.judge(results))
    findings = parts.made("findings", lambda: study.findings(results))
    return StudyResult(
        name=study.name,
        title=study.title,
        paper=study.paper,
        summary=study.summary,
        scale=scale,
        scale_text=study.scales[scale],
        results=results,
        failures=(*failures, *parts.failures),
        headline=headline[0] if headline else None,
        tables=tables,
        figures=figures,
        judged=(*judged, *_finished(points, failures, parts.failures)),
        findings=findings,
        witness=told[0] if told else None,
        command=command or f"whence study {study.name} --scale {scale}",
        environment={**versions(), "commit": git_commit(), "spark master": _master(spark)},
        seconds=phases.seconds,
    )


def _sweep(
    spark: SparkSession, study: Study, points: Sequence[Point], traces: Path, bar: Bar
) -> list[tuple[RunStatus, Point]]:
    """How each point ended, in the order of the grid."""
    from whence.spark.sweep import sweep

    runners = {run_id(point.scenario): study.runners.get(point.task, simulated) for point in points}

    def carry_out(scenario: Scenario, place: Path, level: Level | None) -> Outcome | None:
        return runners[run_id(scenario)](scenario, place, level)

    scenarios = [point.scenario for point in points]
    statuses = sweep(
        spark, scenarios, traces, progress=lambda done, total: bar.update(done), runner=carry_out
    )
    by_run = {status.run: status for status in statuses}
    return [(by_run[run_id(point.scenario)], point) for point in points]


def _judged(
    spark: SparkSession, study: Study, traces: Path, done: Sequence[tuple[str, Point]], phases: _Phases
) -> tuple[list[Row], list[Failure]]:
    """The points whose runs finished, verified and measured; two points may share a run.

    A run from whose counts the numbers of the study cannot be derived is a failure.
    """
    counted = _counted(traces, done)
    with phases.phase("verify"):
        traced = _open(traces, done)
        verdicts = _verify(spark, traced)
    with phases.phase("measure"):
        measures = _measure(spark, _unmeasured(traced, counted))
    rows, failures = [], []
    for run, point in done:
        known = (measures.get(run, {}), verdicts.get(run, {}), counted.get(run, {}))
        try:
            rows.append(_row(study, run, point, *known))
        except Exception:  # noqa: BLE001 - whatever it lacks: one line of the report, and not its end
            failures.append(Failure(run, point.labels, traceback.format_exc()))
    return rows, failures


def _counted(traces: Path, done: Sequence[tuple[str, Point]]) -> dict[str, Mapping[str, Any]]:
    """What kernels counted in these runs; a run without a trace must have it."""
    found: dict[str, Mapping[str, Any]] = {}
    for run, point in done:
        own = read_measures(traces / f"run={run}")
        if own is not None:
            found[run] = own.measures
        elif point.scenario.record.as_level() is Level.MEASURES:
            raise DataError(
                f"run {run} in {traces}",
                "it recorded measures only, and there are none: no kernel ran it, or they were removed",
                "Install the kernels' needs (pip install 'whence[lab]'), remove the run's folder, and repeat",
            )
    return found


def _open(traces: Path, done: Sequence[tuple[str, Point]]) -> Trace:
    """The traces that these runs left; the folder may hold others, of another scale or an older grid.

    A run that recorded measures only has nothing to be judged by.
    """
    wanted = {run for run, point in done if point.scenario.record.as_level() > Level.MEASURES}
    opened = (open_trace(traces / f"run={run}") for run in sorted(wanted))
    return Trace(traces, [source for trace in opened for source in trace.sources], [])


def _unmeasured(traced: Trace, counted: Mapping[str, Any]) -> Trace:
    """The traces to measure: all that hold every event, and of the others those that no kernel measured."""
    every_event = Level.ALL.name.lower()
    sources = [
        source
        for source in traced.sources
        if source.manifest.level == every_event or source.manifest.run not in counted
    ]
    return Trace(traced.path, sources, [])


def _verify(spark: SparkSession, trace: Trace) -> dict[str, Mapping[str, Any]]:
    """The verifier's report on each run, as plain data."""
    from whence.spark.verify import verify_folder

    if not trace.runs:
        return {}
    return {report.run: msgspec.to_builtins(report) for report in verify_folder(spark, trace)}


def _measure(spark: SparkSession, trace: Trace) -> dict[str, Mapping[str, float | None]]:
    """The summary of each run: every column but its name."""
    from whence.spark.metrics.summary import summary
    from whence.spark.tables import read_segments

    if not trace.runs:
        return {}
    lines = (line.asDict() for line in summary(read_segments(spark, trace)).collect())
    return {line.pop("run"): line for line in lines}


def _row(
    study: Study,
    run: str,
    point: Point,
    measures: Mapping[str, float | None],
    verdict: Mapping[str, Any],
    counted: Mapping[str, Any],
) -> Row:
    """A run with all its measures: Spark's, the verifier's counts, and what the study derives."""
    known = {**measures, **verdict.get("counts", {})}
    plain = Row(run, point.labels, to_dict(point.scenario), known, verdict, counted)
    return replace(plain, measures={**known, **study.derive(plain)})


FINISHED = Claim(
    "runs-finished",
    "runs that finished",
    None,
    "every point of the grid must be run before its numbers mean anything",
    "finished",
    unit="runs",
    evidence=Evidence.INVARIANT,
)


REPORTED = replace(
    FINISHED,
    id="report-made",
    text="parts of the report that could not be made",
    published=0,
    source="a part that fails is listed among the failures",
    measure="reported",
    unit="parts",
)


def _finished(
    points: Sequence[Point], failures: Sequence[Failure], parts: Sequence[Failure]
) -> tuple[Judged, Judged]:
    done = len(points) - len(failures)
    return Judged(FINISHED, len(points), done, len(points)), Judged(REPORTED, 0, len(parts), 1)


def _master(spark: SparkSession) -> str:
    from whence.spark.session import is_remote

    return "Spark Connect" if is_remote(spark) else str(spark.sparkContext.master)
