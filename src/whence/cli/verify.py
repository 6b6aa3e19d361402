"""`whence verify`: judge a trace, or a log that another program wrote, and say why."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from whence.cli import console
from whence.cli.console import AsJson, ProgressBar, SparkMaster
from whence.errors import MisuseError
from whence.trace.reader import Trace, open_trace
from whence.trace.schema import MANIFEST_SUFFIX
from whence.verify.report import KINDS, WITNESS_MAX, Finding, RunReport

if TYPE_CHECKING:
    from whence.foreign.mapping import LogMapping
    from whence.foreign.report import Audit

SPARK_EVENTS = 50_000_000  # several runs of more events together go to Spark, where there is one
WIDE_NODES = 2_000  # so does a run of more nodes, split by columns
TABLES_SHOWN = 3  # reports on broken runs of tables; the others are rows
LONG_EVENTS = 5_000_000  # from here on progress and speed are shown
TABLE_RUNS = 40  # with more runs only those that are not in order are listed
SHOWN = 3  # findings of each kind that are printed unless --witnesses says otherwise

# numpy asks for huge pages unless told otherwise. Every array is gone through from end to end here, which
# gains nothing from them; where a virtual machine gets its memory on demand the first touch of each takes
# milliseconds.
ENVIRONMENT = {"NUMPY_MADVISE_HUGEPAGE": "0"}


# What the command takes, in the order of its --help.
TracePath = Annotated[
    Path,
    typer.Argument(help="A trace folder, a sweep's folder, one manifest; or a foreign log (docs/audit.md)."),
]
Run = Annotated[str | None, typer.Option(help="Judge this run only.")]
Witnesses = Annotated[
    int | None, typer.Option(min=0, help="Findings of each kind to spell out.", show_default="3; 10 in JSON")
]
Complete = Annotated[
    bool | None,
    typer.Option(
        "--complete/--no-complete",
        help="Demand that every survivor delivers every message, or do not, whatever was promised.",
    ),
]
AsPromised = Annotated[
    bool,
    typer.Option(
        "--as-promised", help="Do not demand causal order of a protocol that never promised it (fifo)."
    ),
]
Spark = Annotated[
    bool | None,
    typer.Option(
        "--spark/--no-spark",
        help="Use Spark; by default for 50 M events or more in several runs or over 2,000 nodes.",
    ),
]
Blocks = Annotated[
    int | None, typer.Option(min=1, help="Split each run over so many Spark tasks, by blocks of columns.")
]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Memory for the work, e.g. 8G; a run that needs more is judged in parts.",
        show_default="half of the machine's",
    ),
]
MapFile = Annotated[
    str | None,
    typer.Option("--map", help="Foreign log: how to read it, a TOML file or a preset (kafka, ...)."),
]
ContractTerms = Annotated[
    list[str] | None,
    typer.Option("--contract", help="Foreign log: a term it is held to, e.g. order=causal; may be repeated."),
]
Require = Annotated[
    list[str] | None,
    typer.Option(help="Foreign log: a property that must be judged, else exit 3; may be repeated."),
]
Scope = Annotated[
    str | None,
    typer.Option(help="Foreign log: columns or attributes within which deliveries are compared: A,B."),
]


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `whence verify` for a foreign log."""

    map_: str | None = None
    contract: list[str] = []
    require: list[str] = []
    scope: str | None = None

    @property
    def given(self) -> bool:
        """Whether any was given."""
        return self != LogOptions()


class SparkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Whether, where and with how much memory Spark judges a foreign log."""

    wanted: bool
    master: str | None = None
    blocks: int | None = None
    memory_bytes: int | None = None


def command(
    trace: TracePath,
    run: Run = None,
    witnesses: Witnesses = None,
    complete: Complete = None,
    as_promised: AsPromised = False,
    spark: Spark = None,
    master: SparkMaster = None,
    blocks: Blocks = None,
    memory: Memory = None,
    map_: MapFile = None,
    contract: ContractTerms = None,
    require: Require = None,
    scope: Scope = None,
    as_json: AsJson = False,
) -> None:
    """Judge a trace from its broadcasts and deliveries alone; exit 0: causal and as promised, 1: not.

    A log that another program wrote is judged by docs/audit.md; exit 3: it cannot tell.
    """
    os.environ.update({**ENVIRONMENT, **os.environ})  # numpy looks when it is imported, below
    for option, given in (("--master", master), ("--blocks", blocks)):
        if given is not None and spark is False:
            raise MisuseError(option, "it is given together with --no-spark", "Leave out one of the two")
    memory_bytes = None if memory is None else parse_bytes(memory)
    witness_max = witnesses if witnesses is not None else WITNESS_MAX if as_json else SHOWN
    foreign = LogOptions(map_=map_, contract=contract or [], require=require or [], scope=scope)
    if str(trace).startswith("kafka:/"):
        _judge_topic(str(trace), foreign, witness_max, master, as_json)
    is_log = trace.exists() and not trace.is_dir() and not trace.name.endswith(MANIFEST_SUFFIX)
    if foreign.given or is_log:
        wanted = bool(spark) or master is not None or blocks is not None
        on_spark = SparkOptions(wanted=wanted, master=master, blocks=blocks, memory_bytes=memory_bytes)
        audit(trace, foreign, witness_max, on_spark, as_json)
    if is_tables(trace):
        asked = VerifyOptions(witness_max, complete, None if as_promised else True, memory_bytes)
        _judge_tables(trace, master, asked, as_json)
        return
    opened = open_trace(trace, dense=False)  # whatever judges it follows every event
    for leftover in opened.leftovers:
        console.err.print(f"note: {leftover} was not finished by its writer and is not judged", markup=False)
    options = VerifyOptions(witness_max, complete, None if as_promised else True, memory_bytes)
    began = time.perf_counter()
    if spark or master is not None or blocks is not None or (spark is None and _worth_spark(opened, run)):
        reports = _by_spark(opened, run, master, blocks, options)
    else:
        reports = _in_process(opened, run, options)
    reports = [_marked(opened, report, options) for report in reports]
    _say_speed(sum(report.events for report in reports), time.perf_counter() - began)
    if as_json:
        console.print_json(reports)
    else:
        show(reports)
        _point_at_the_page(trace, reports)
    if not all(report.ok for report in reports):
        raise typer.Exit(1)
    if any(report.unfinished is True for report in reports):
        raise typer.Exit(3)


def _judge_topic(
    address: str, options: LogOptions, witnesses: int, master: str | None, as_json: bool
) -> None:
    """Judge the records that a topic of Kafka has, by the preset `kafka` unless another mapping is given."""
    import tempfile

    import pyarrow.parquet as pq

    with console.progress(f"reading {address}"):
        from whence.spark.ordering.kafka import topic_log
        from whence.spark.session import get_session

        records = topic_log(get_session("whence verify", master=master), address).toArrow()
    with tempfile.TemporaryDirectory(prefix="whence-topic-") as folder:
        log = Path(folder) / "topic.parquet"
        pq.write_table(records, log)
        chosen = options if options.map_ is not None else msgspec.structs.replace(options, map_="kafka")
        audit(log, chosen, witnesses, SparkOptions(wanted=False), as_json)


def _marked(trace: Trace, report: RunReport, options: VerifyOptions) -> RunReport:
    """The report on a run, marked if a writer was interrupted or has not ended: the rest is unknown."""
    from whence.verify.run import verify_trace, without_lost

    open_ended = [each.writer for each in trace.of_run(report.run) if each.unfinished is True]
    if not open_ended:
        return report
    notes = ["it was interrupted, or still runs, and is judged as far as it went"]
    if report.counts.created or report.counts.malformed:
        [whole] = verify_trace(trace, run=report.run, **options._replace(witness_max=None)._asdict())
        before = report.counts.created + report.counts.malformed
        report = without_lost(whole, open_ended, options.witness_max)
        unknown = before - report.counts.created - report.counts.malformed
        if unknown:
            words = f"{unknown} deliveries or expiries of what it said after its last row are not judged"
            notes.append(f"{', '.join(open_ended)} did not end its trace: {words}")
    for note in notes:
        console.err.print(f"note: run {report.run} is unfinished: {note}", markup=False)
    return msgspec.structs.replace(report, unfinished=True)


def is_tables(trace: Path) -> bool:
    """Whether it is what `whence sweep --tables` has written."""
    from whence.trace.dataset import COMMITS, is_url

    return is_url(trace) or (trace / COMMITS).is_dir()


def _judge_tables(trace: Path, master: str | None, options: VerifyOptions, as_json: bool) -> None:
    """Judge every run of a sweep's tables; the verdicts become a table beside them."""
    from whence.trace.dataset import Dataset, url_of

    where = url_of(trace)
    if not Dataset(where).exists:
        raise MisuseError(
            where, "there are no tables", "Give the place that 'whence sweep --tables' wrote to"
        )
    with console.progress("starting Spark"):
        from whence.spark.datasets import first_broken, verify_tables
        from whence.spark.session import get_session

        session = get_session("whence verify", master=master)
    with console.progress("judging, tasks", total=0) as bar:
        totals = verify_tables(
            session, where, witness_max=options.witness_max, complete=options.complete, causal=options.causal,
            progress=lambda done, total: bar.update(done, total=total),
        )  # fmt: skip
    if as_json:
        console.print_json(totals)
    else:
        broken = list(first_broken(Dataset(where), TABLES_SHOWN))
        if broken:
            show(broken)
        said = f"{totals.runs:,} runs judged in {where}: {totals.failed:,} not as promised"
        console.out.print(f'{said} (whence sql --in {where} "select * from verdicts")', markup=False)
    if totals.failed:
        raise typer.Exit(1)


def _point_at_the_page(trace: Path, reports: list[RunReport]) -> None:
    """For a reader: the command that shows the first finding among its events."""
    broken = next((report for report in reports if not report.ok), None)
    if broken is not None:
        run = f" --run {shlex.quote(broken.run)}" if len(reports) > 1 else ""
        console.out.print(
            f"see it: whence view {shlex.quote(str(trace))}{run} --around 1", markup=False, soft_wrap=True
        )


def _say_speed(events: int, seconds: float) -> None:

    if events >= LONG_EVENTS:
        rate = f"{events / seconds / 1e6:.1f} M events/s"
        console.err.print(f"{events:,} events in {seconds:.1f} s ({rate})", markup=False)


class VerifyOptions(NamedTuple):
    """The options that every way of judging takes."""

    witness_max: int | None
    complete: bool | None
    causal: bool | None
    memory_bytes: int | None


def parse_bytes(text: str) -> int:
    """`8G`, `500M`, `2.5g` or a plain number of bytes."""
    units = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise MisuseError(f"--memory {text}", "it is not an amount of memory", "Write it like 8G or 500M")
    return int(float(found[1]) * units[found[2].upper()])


def _worth_spark(trace: Trace, run: str | None) -> bool:
    """Spark judges runs, or blocks of a very wide one, side by side: it helps where they are large."""
    from importlib.util import find_spec

    several = run is None and len(trace.runs) > 1
    wide = any(len(trace.nodes(each)) > WIDE_NODES for each in (trace.runs if run is None else [run]))
    return (several or wide) and trace.event_count >= SPARK_EVENTS and find_spec("pyspark") is not None


def _by_spark(
    trace: Trace, run: str | None, master: str | None, blocks: int | None, options: VerifyOptions
) -> list[RunReport]:

    with console.progress("starting Spark"):
        from whence.spark.session import get_session
        from whence.spark.verify import verify_folder

        session = get_session("whence verify", master=master)
    runs = None if run is None else [run]
    with console.progress("judging, tasks", total=0) as bar:
        return verify_folder(
            session, trace, runs=runs, blocks=blocks, **options._asdict(),
            progress=lambda done, total: bar.update(done, total=total),
        )  # fmt: skip


def _in_process(trace: Trace, run: str | None, options: VerifyOptions) -> list[RunReport]:
    from whence.verify.run import verify_trace

    def notice(words: str) -> None:
        console.err.print(f"note: {words}", markup=False)

    runs = trace.runs if run is None else [run]
    reports: list[RunReport] = []
    if len(runs) >= TABLE_RUNS:
        with console.progress("runs judged", total=len(runs)) as bar:
            for each in runs:
                reports += verify_trace(trace, run=each, notice=notice, **options._asdict())
                bar.advance()
        return reports
    for each in runs:
        events = sum(manifest.events for manifest in trace.of_run(each))
        if events < LONG_EVENTS:
            reports += verify_trace(trace, run=each, notice=notice, **options._asdict())
            continue
        with console.progress("reading", total=events) as bar:
            progress = _stages(bar)
            reports += verify_trace(trace, run=each, notice=notice, progress=progress, **options._asdict())
    return reports


def _stages(bar: ProgressBar) -> Callable[[str, int], None]:
    """Progress through the events, once per stage of the work."""
    stage, done = "", 0

    def progress(what: str, events: int) -> None:
        nonlocal stage, done
        stage, done = what, events + (done if what == stage else 0)
        bar.update(done, description=stage)

    return progress


def show(reports: list[RunReport]) -> None:
    """Print the reports for a reader: a table, the findings that break a promise, the verdict."""
    listed = reports if len(reports) <= TABLE_RUNS else [report for report in reports if not report.ok]
    columns = ["run", "protocol", "nodes", "broadcasts", "deliveries", "found", "verdict"]
    rows = [
        (
            report.run,
            report.protocol,
            report.nodes,
            report.broadcasts,
            report.deliveries,
            _found(report),
            _verdict([report]),
        )
        for report in listed[:TABLE_RUNS]
    ]
    if rows:
        tolerated = any("(" in str(row[5]) for row in rows)
        caption = "(in brackets): not demanded of this protocol" if tolerated else None
        console.out.print(console.table("Verdicts", columns, rows, caption=caption))
    broken = [report for report in reports if not report.ok]
    for report in broken[:TABLE_RUNS]:
        for finding in report.findings:
            if finding.kind in report.broken:
                _show_finding(report, finding)
    kept = len(reports) - len(broken)
    console.out.print(
        f"{_verdict(reports)}: {kept} of {len(reports)} run(s) keep what is demanded", markup=False
    )


def _verdict(reports: list[RunReport]) -> str:
    if not all(report.ok for report in reports):
        return "BROKEN"
    return "unfinished" if any(report.unfinished is True for report in reports) else "ok"


def _found(report: RunReport) -> str:
    """The findings by kind; in brackets those that the promises tolerate."""
    counts = {kind: getattr(report.counts, kind) for kind in KINDS}
    words = [
        f"{kind} {count}" if kind in report.broken else f"({kind} {count})"
        for kind, count in counts.items()
        if count
    ]
    return ", ".join(words) or "nothing"


def _show_finding(report: RunReport, finding: Finding) -> None:

    where = f"{report.run}: " if report.run else ""
    at = "" if finding.seq is None else f" at seq {finding.seq}"
    lines = [f"{where}{finding.kind}: node {finding.node}, message {finding.message}{at}: {finding.detail}"]
    if finding.other is not None:
        lines.append(f"    {finding.node} delivers {finding.other} (seq {finding.other_seq}), and only then")
        lines.append(f"    {finding.node} delivers {finding.message} (seq {finding.seq}); yet")
    times = (finding.broadcast_us, finding.delivered_us)  # of the two steps of a late delivery
    when = [f" at {each} us" for each in times if each is not None] or [""] * len(finding.chain)
    lines += [f"      {step}{at_us}" for step, at_us in zip(finding.chain, when, strict=True)]
    console.out.print("\n".join(lines), markup=False, soft_wrap=True)


# Foreign logs


def audit(log: Path, options: LogOptions, witnesses: int, spark: SparkOptions, as_json: bool) -> None:
    """Judge a foreign log; exit 0 ok, 1 broken, 3 unknown."""
    from whence.foreign.judge import judge
    from whence.foreign.read import read_log

    mapping = mapping_of_log(log, options)
    if spark.wanted:
        found = _audit_by_spark(log, mapping, witnesses, spark)
    else:
        found = judge(read_log(log, mapping), str(log), findings_max=witnesses)
    say(found, as_json, witnesses)
    if not as_json and found.verdict == "broken":
        map_ = f" --map {shlex.quote(options.map_)}" if options.map_ is not None else ""
        console.out.print(
            f"see it: whence view {shlex.quote(str(log))}{map_} --around 1", markup=False, soft_wrap=True
        )
    raise typer.Exit(found.exit)


def say(found: Audit, as_json: bool, witnesses: int) -> None:
    """Print a verdict on a foreign log."""
    from whence.foreign.report import text_of

    if as_json:
        console.print_json(found)
    else:
        console.out.print(text_of(found, witnesses), markup=False, soft_wrap=True)


def mapping_of_log(log: Path, options: LogOptions) -> LogMapping:
    """The mapping of a log, with what the command line states on top."""
    from whence.foreign.mapping import load_mapping
    from whence.foreign.read import complete_mapping

    mapping = complete_mapping(log, None if options.map_ is None else load_mapping(options.map_))
    mapping = with_contract(mapping, options)
    if options.scope is not None:
        names = tuple(each.strip() for each in options.scope.split(","))
        mapping = msgspec.structs.replace(
            mapping, scope=names, event=mapping.event | {"session": list(names)}
        )
    return mapping


def _audit_by_spark(log: Path, mapping: LogMapping, witnesses: int, options: SparkOptions) -> Audit:
    with console.progress("starting Spark"):
        from whence.spark.audit.judge import MEMORY_BYTES, audit_log
        from whence.spark.session import get_session

        session = get_session("whence verify", master=options.master)
    memory_bytes = options.memory_bytes or MEMORY_BYTES
    with console.progress("judging"):
        return audit_log(
            session, log, mapping, findings_max=witnesses, blocks=options.blocks, memory_bytes=memory_bytes
        )


def with_contract(mapping: LogMapping, options: LogOptions) -> LogMapping:
    """The mapping, its contract with what the command line states on top."""
    from whence.foreign.mapping import contract_of

    table: dict[str, object] = {}
    for each in options.contract:
        key, equals, value = each.partition("=")
        if not equals:
            raise MisuseError(f"--contract {each}", "it is not KEY=VALUE", "Write it like order=causal")
        several = key.strip() in {"complete", "members", "require"}
        words = [word.strip() for word in value.split(",")]
        table[key.strip()] = words if several else value.strip()
    stated = contract_of(table, "--contract")
    over = {name: getattr(stated, name) for name in stated.__struct_fields__ if getattr(stated, name)}
    contract = msgspec.structs.replace(mapping.contract, **over)
    contract = msgspec.structs.replace(contract, require=(*contract.require, *options.require))
    return msgspec.structs.replace(mapping, contract=contract)
