"""The verifier's front door: a trace folder, a table of packed rows, or events in memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whence.errors import TraceError
from whence.trace.memory import MemoryTrace
from whence.trace.reader import Event, Trace, open_trace
from whence.trace.schema import Level, PromisesMade
from whence.verify.report import WITNESS_MAX, RunReport, demanded_kinds

if TYPE_CHECKING:
    import pyarrow as pa

    from whence.verify.analysis import Analysis
    from whence.verify.load import Events


def verify_trace(
    trace: Trace | Path | str,
    *,
    run: str | None = None,
    witness_max: int | None = WITNESS_MAX,
    complete: bool | None = None,
    causal: bool | None = None,
) -> list[RunReport]:
    """Verify every run of a trace (or one), in this process.

    `complete` overrides the promise that every survivor delivers every message, `causal` that of order.
    """
    from whence.verify.analysis import COMPILED_EVENTS
    from whence.verify.kernel import compiled
    from whence.verify.load import Loader, columns_needed

    opened = trace if isinstance(trace, Trace) else open_trace(trace)
    if opened.event_count >= COMPILED_EVENTS:
        compiled()  # many small runs are worth it together
    reports = []
    for each in opened.runs if run is None else [run]:
        manifest = opened.of_run(each)[0]
        require_verifiable(opened, each)
        promises = promised(manifest.promises, complete, causal)
        loader = Loader(opened.nodes(each), timed=promises.timely)
        for batch in opened.batches(columns_needed(promises.timely), run=each):
            loader.add(batch, checked=True)
        reports.append(_report(loader.finish(), each, manifest.protocol, promises, witness_max))
    return reports


def verify_table(
    table: pa.Table,
    promises: PromisesMade,
    nodes: Iterable[str],
    witness_max: int | None = WITNESS_MAX,
    *,
    run: str | None = None,
    protocol: str = "",
) -> RunReport:
    """Verify the packed rows of one run, in any order and however they are cut.

    `run` names the run when the table may be empty; `witness_max` limits the findings that are spelled out
    per kind (None: no limit).
    """
    from whence.verify.load import Loader

    loader = Loader(nodes, timed=promises.timely)
    for batch in table.to_batches():
        loader.add(batch)
    return _report(loader.finish(), run, protocol, promises, witness_max)


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


def _report(
    events: Events, run: str | None, protocol: str, promises: PromisesMade, witness_max: int | None
) -> RunReport:
    from whence.verify.analysis import analyse

    analysis = analyse(events, witness_max, promises.clock_slack_us)
    return report_on(analysis, run if run is not None else events.run or "", protocol, promises, witness_max)


def report_on(
    analysis: Analysis, run: str, protocol: str, promises: PromisesMade, witness_max: int | None
) -> RunReport:
    """Spell an analysis out."""
    from whence.verify import findings

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
        missing_by_node=findings.missing_by_node(analysis),
        findings=findings.findings(analysis, witness_max),
    )
