"""The verifier's front door: a trace folder, a table of packed rows, or events in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whence.errors import TraceError
from whence.trace.columns import is_flat, numbers_of, packed_of
from whence.trace.memory import MemoryTrace
from whence.trace.reader import Event, Trace, events_in, open_trace, opened_part
from whence.trace.schema import Level, PromisesMade
from whence.verify.analysis import WHOLE, Analysis, Block, analyse, findings, missing_by_node
from whence.verify.bounded import Bounded, MemoryBudget
from whence.verify.certificate import LOG_BYTES, Certifier, Proof
from whence.verify.kernels import COMPILED_EVENTS, choose_kernels, compiled
from whence.verify.lives import judge_lives, node_of_stream
from whence.verify.load import Loader, RunEvents
from whence.verify.messages import NEVER_BROADCAST
from whence.verify.report import KINDS, WITNESS_MAX, Counts, Finding, Progress, RunReport, demanded_kinds
from whence.verify.segments import TraceGroups

if TYPE_CHECKING:
    import pyarrow as pa  # where it is missing, whence.trace.columns says so

# Memory per event when a run is judged in one piece, pasts of messages apart; with times and without.
EVENT_BYTES = 45
TIMED_EVENT_BYTES = 61


def verify_trace(
    trace: Trace | Path | str,
    *,
    run: str | None = None,
    witness_max: int | None = WITNESS_MAX,
    complete: bool | None = None,
    causal: bool | None = None,
    memory_bytes: int | None = None,
    block: Block = WHOLE,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
) -> list[RunReport]:
    """Verify every run of a trace (or one), in this process.

    `complete` overrides the promise that every survivor delivers every message, `causal` that of order. A
    run that would take more than `memory_bytes` (by default half of the machine's memory) is judged in parts,
    with the same report; `notice` receives a line about it. `block` judges the order of some columns (see
    `merge_blocks`) of a run without lives that is not proved clean.
    """
    opened = trace if isinstance(trace, Trace) else open_trace(trace, dense=False)  # below, all is followed
    memory_bytes = default_memory_bytes() if memory_bytes is None else memory_bytes
    if opened.event_count >= COMPILED_EVENTS:
        compiled()  # many small runs are worth it together
    reports = []
    for each in opened.runs if run is None else [run]:
        manifest = opened.of_run(each)[0]
        require_verifiable(opened, each)
        promises = promised(manifest.promises, complete, causal)
        needed = needed_bytes(opened, each, promises)
        tried = promises.timely or block != WHOLE
        proof = None if tried else _certified(opened, each, memory_bytes, progress)
        if proof is not None:
            reports.append(clean_report(proof, each, manifest.protocol, promises))
            continue
        if needed <= memory_bytes or has_lives(names_in(opened, each), opened.nodes(each)):
            events = load_events(opened, each, promises, progress)
            names = events.names
            analysis = analyse(events, witness_max, promises.clock_slack_us, block)
            report = report_on(analysis, each, manifest.protocol, promises, witness_max)
        else:
            if notice is not None:
                notice(
                    f"run {each!r}: judged in parts: all at once it takes about {needed >> 20} MB, and "
                    f"{memory_bytes >> 20} MB are allowed (--memory)"
                )
            analysis = _in_parts(opened, each, promises, witness_max, block, memory_bytes, progress)
            names = analysis.access.names
            report = report_on(analysis, each, manifest.protocol, promises, witness_max)
        if has_lives(names, opened.nodes(each)):
            report = with_lives(report, opened.events(each), witness_max)
        reports.append(report)
    return reports


def _certified(trace: Trace, run: str, memory_bytes: int, progress: Progress | None) -> Proof | None:
    """Proof that a run is clean, read from its files; None if that cannot be proved, or does not pay."""
    events = sum(manifest.events for manifest in trace.of_run(run))
    if events * LOG_BYTES > memory_bytes:
        return None
    return _proved(trace.stored(run, timed=False), trace.nodes(run), events, memory_bytes, progress)


def _proved(
    batches: Iterable[pa.RecordBatch],
    members: Sequence[str],
    events: int,
    memory_bytes: int,
    progress: Progress | None = None,
) -> Proof | None:
    kernels = choose_kernels(events)
    if not kernels.are_compiled:
        return None
    certifier = Certifier(kernels, members, memory_bytes, events)
    for batch in batches:
        before = certifier.events
        if not certifier.add(batch):
            return None
        if progress is not None:
            progress("proving", certifier.events - before)
    return None if has_lives(certifier.names, members) else certifier.finish()


def has_lives(names: Iterable[str], nodes: Iterable[str]) -> bool:
    """Whether origins are streams: every opening of a node is one."""
    members = frozenset(nodes)
    return any(node_of_stream(name, members) is not None for name in set(names) - members)


def names_in(trace: Trace, run: str) -> set[str]:
    """Every name that the rows of a run use."""
    names: set[str] = set()
    for path in trace.part_files(run):
        with opened_part(path) as stored:
            for group in range(stored.groups):
                names.update(stored.names(group))
    return names


def with_lives(report: RunReport, events: Iterable[Event], witness_max: int | None) -> RunReport:
    """The report with what only runs with lives are judged for (`lives.py`)."""
    more = judge_lives(events, report.promises.clock_slack_us)
    found: list[Finding] = []
    for kind in KINDS:
        both = [each for each in (*report.findings, *more) if each.kind == kind]
        found += both if witness_max is None else both[:witness_max]
    counts = msgspec.structs.replace(
        report.counts,
        causal=report.counts.causal + sum(each.kind == "causal" for each in more),
        malformed=report.counts.malformed + sum(each.kind == "malformed" for each in more),
    )
    ok = not any(getattr(counts, kind) for kind in demanded_kinds(report.promises))
    return msgspec.structs.replace(report, ok=ok, counts=counts, findings=found)


def without_lost(report: RunReport, lost: Collection[str], witness_max: int | None) -> RunReport:
    """The report without what rows that were lost may explain: ends of messages of the nodes `lost`.

    `report` must spell out all its findings; of those that stay `witness_max` of each kind do.
    """

    def is_explained(finding: Finding) -> bool:
        is_unknown = finding.kind == "created" or finding.detail == NEVER_BROADCAST
        return is_unknown and finding.message.rpartition(":")[0] in lost

    stay = [finding for finding in report.findings if not is_explained(finding)]
    of_kind = {kind: [finding for finding in stay if finding.kind == kind] for kind in KINDS}
    counts = msgspec.structs.replace(
        report.counts, created=len(of_kind["created"]), malformed=len(of_kind["malformed"])
    )
    ok = not any(getattr(counts, kind) for kind in demanded_kinds(report.promises))
    findings = [finding for kind in KINDS for finding in of_kind[kind][:witness_max]]
    return msgspec.structs.replace(report, ok=ok, counts=counts, findings=findings)


def default_memory_bytes() -> int:
    """Half of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def needed_bytes(trace: Trace, run: str, promises: PromisesMade) -> int:
    """About how much memory judging a run in one piece takes, without the pasts of its messages."""
    events = sum(manifest.events for manifest in trace.of_run(run))
    return events * (TIMED_EVENT_BYTES if promises.timely else EVENT_BYTES)


def load_events(
    trace: Trace, run: str, promises: PromisesMade, progress: Progress | None = None
) -> RunEvents:
    """The events of a run that matter, from its files."""
    loader = Loader(trace.nodes(run), timed=promises.timely)
    for batch in trace.stored(run, timed=promises.timely):
        rows = loader.decode(batch, checked=True)
        loader.keep(rows)
        if progress is not None:
            progress("reading", sum(row.events for row in rows))
    return loader.finish()


def _in_parts(
    trace: Trace,
    run: str,
    promises: PromisesMade,
    witness_max: int | None,
    block: Block,
    memory_bytes: int,
    progress: Progress | None,
) -> Analysis:
    bounded = Bounded(
        TraceGroups(trace, run, promises.timely),
        trace.nodes(run),
        timed=promises.timely,
        witness_max=witness_max,
        budget=MemoryBudget.of(memory_bytes),
        clock_slack_us=promises.clock_slack_us,
        block=block,
        progress=progress,
    )
    return bounded.analyse()


def merge_blocks(reports: Sequence[RunReport], witness_max: int | None) -> RunReport:
    """One report from those on all blocks of a run's columns: they differ in what is judged by column."""
    first = reports[0]
    found_all: list[Finding] = []
    for kind in KINDS:
        found = [each for each in first.findings if each.kind == kind]
        if kind in ("causal", "fifo"):
            found = [each for report in reports for each in report.findings if each.kind == kind]
            found.sort(key=lambda each: (each.node, each.seq))
        found_all += found[:witness_max]
    counts = msgspec.structs.replace(
        first.counts,
        causal=sum(report.counts.causal for report in reports),
        fifo=sum(report.counts.fifo for report in reports),
    )
    ok = not any(getattr(counts, kind) for kind in demanded_kinds(first.promises))
    return msgspec.structs.replace(first, ok=ok, counts=counts, findings=found_all)


def verify_table(
    table: pa.Table,
    promises: PromisesMade,
    nodes: Iterable[str],
    witness_max: int | None = WITNESS_MAX,
    *,
    run: str | None = None,
    protocol: str = "",
) -> RunReport:
    """Verify the rows of one run, of either form, in any order and however they are cut.

    `run` names the run when the table may be empty; `witness_max` limits the findings that are spelled out
    per kind (None: no limit).
    """
    return verify_batches(table.to_batches(), promises, nodes, witness_max, run=run, protocol=protocol)


def verify_batches(
    batches: Sequence[pa.RecordBatch],
    promises: PromisesMade,
    nodes: Iterable[str],
    witness_max: int | None = WITNESS_MAX,
    *,
    run: str | None = None,
    protocol: str = "",
) -> RunReport:
    """Verify a table's batches, as `verify_table` does."""
    nodes = list(nodes)
    loader = Loader(nodes, timed=promises.timely)
    for batch in batches:
        loader.check(batch)
    if not promises.timely:
        events = sum(
            batch.num_rows if is_flat(batch.schema) else int(numbers_of(batch.column("events")).sum())
            for batch in batches
        )
        proof = _proved(batches, nodes, events, default_memory_bytes())
        if proof is not None:
            named = run if run is not None else str(batches[0].column("run")[0].as_py())
            return clean_report(proof, named, protocol, promises)
    for batch in batches:
        loader.add(batch, checked=True)
    found = loader.finish()
    analysis = analyse(found, witness_max, promises.clock_slack_us)
    named = run if run is not None else found.run or ""
    report = report_on(analysis, named, protocol, promises, witness_max)
    members = [name for name, is_node in zip(found.names, found.is_node.tolist(), strict=True) if is_node]
    if not has_lives(found.names, members):
        return report
    if any("time_us" not in batch.schema.names for batch in batches):
        raise TraceError(
            f"run {named!r}", "it has lives, and its rows have no times", "Leave `timed` as it is"
        )
    return with_lives(report, _events_of(batches, named), witness_max)


def _events_of(batches: Iterable[pa.RecordBatch], run: str) -> Iterator[Event]:
    for batch in batches:
        yield from events_in(packed_of(run, batch) if is_flat(batch.schema) else batch)


def verify_events(
    events: Iterable[Event],
    promises: PromisesMade,
    nodes: Iterable[str],
    witness_max: int | None = WITNESS_MAX,
    *,
    protocol: str = "",
) -> RunReport:
    """Verify events of the flat view; each node's events must come in order of `seq`."""
    memory = MemoryTrace()
    listed = list(events)
    memory.extend(listed)
    run = listed[0].run if listed else ""
    return verify_table(memory.table(run), promises, nodes, witness_max, run=run, protocol=protocol)


def promised(promises: PromisesMade, complete: bool | None, causal: bool | None) -> PromisesMade:
    """The promises to demand when the user may have overridden some of them."""
    given = {"complete": complete, "causal": causal}
    return msgspec.structs.replace(
        promises, **{name: value for name, value in given.items() if value is not None}
    )


def require_verifiable(trace: Trace, run: str) -> None:
    """Refuse a run that was recorded without the events that a verifier needs."""
    for manifest in trace.of_run(run):
        if manifest.level == Level.MEASURES.name.lower():
            raise TraceError(
                f"run {run!r} in {trace.path}",
                "it was recorded at level 'measures', which has no deliveries",
                "Record it again at level 'deliveries' or 'all'",
            )


def clean_report(proof: Proof, run: str, protocol: str, promises: PromisesMade) -> RunReport:
    """The report on a run that is proved to be clean."""
    return RunReport(
        run=run,
        protocol=protocol,
        ok=True,
        promises=promises,
        nodes=proof.nodes,
        events=proof.events,
        broadcasts=proof.broadcasts,
        deliveries=proof.deliveries,
        expiries=0,
        counts=Counts(),
        missing_by_node={},
        findings=[],
    )


def report_on(
    analysis: Analysis, run: str, protocol: str, promises: PromisesMade, witness_max: int | None
) -> RunReport:
    """Spell an analysis out."""
    counts = analysis.counts
    return RunReport(
        run=run,
        protocol=protocol,
        ok=not any(getattr(counts, kind) for kind in demanded_kinds(promises)),
        promises=promises,
        nodes=analysis.nodes,
        events=analysis.events,
        broadcasts=analysis.broadcasts,
        deliveries=analysis.deliveries,
        expiries=analysis.expiries,
        counts=counts,
        missing_by_node=missing_by_node(analysis),
        findings=findings(analysis, witness_max),
    )
