"""What `whence view` is given, as a scene: a trace of ours, a foreign log, or a report of the verifier."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from whence.errors import DataError, MisuseError
from whence.foreign.clocks import read_clocks
from whence.foreign.graph import MESSAGE, ORDER, SOURCES, Graph, Sends, build, find_sends
from whence.foreign.model import NO_RANK, NO_TIME, EventKind, Log
from whence.foreign.report import BROKEN, Audit, AuditFinding
from whence.foreign.timing import skew_of
from whence.trace.reader import open_trace
from whence.trace.schema import MANIFEST_SUFFIX, Kind
from whence.verify.report import RunReport
from whence.verify.run import verify_trace
from whence.view.clocks import with_corrections
from whence.view.scene import Array, Scene, SceneKind, ShownFinding, ShownStep, broken_first
from whence.view.traces import TRACE_KINDS, Proofs, only_run, scene_of_trace, verdict_on

NOT_LOGGED = "not logged"
_ROLES = ("other", "begin", "receive", "deliver", "crash", "restart", "other")
LOG_KINDS = (
    *(SceneKind(kind.name.lower(), _ROLES[kind]) for kind in EventKind),
    SceneKind(f"send, {NOT_LOGGED}", "begin"),
)
_VIRTUAL = len(LOG_KINDS) - 1
_TONES = {"ok": "good", "broken": "bad", "unknown": "warn"}


def open_scene(
    path: Path,
    run: str | None = None,
    *,
    map_: str | None = None,
    events_max: int | None = None,
    finding: int | None = None,
) -> Scene:
    """A scene from whatever `path` is. `finding` must be among its findings, from 1."""
    if path.is_dir() or path.name.endswith(MANIFEST_SUFFIX):
        scene = _trace(path, run, events_max)
    elif _is_report(path):
        scene = _reports(path, run)
    else:
        scene = _log(path, map_, events_max)
    if finding is not None and finding > len(scene.findings):
        raise MisuseError(
            f"finding {finding} of {path}",
            f"there are {len(scene.findings)}",
            "Choose one of them, or leave out --around",
        )
    return scene


def _is_report(path: Path) -> bool:
    """Whether a file is what `whence verify --json` prints of a trace: a JSON array."""
    if path.suffix != ".json" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(100).lstrip()[:1] == b"["


def _log(path: Path, map_: str | None, events_max: int | None) -> Scene:
    from whence.foreign.judge import judge
    from whence.foreign.mapping import load_mapping
    from whence.foreign.read import read_log

    log = read_log(path, None if map_ is None else load_mapping(map_))
    _require_room(str(path), len(log), events_max)
    return scene_of_log(log, judge(log, path.name))


def _require_room(what: str, events: int, events_max: int | None) -> None:
    if events_max is not None and events > events_max:
        raise MisuseError(
            what,
            f"it has {events:,} events, and a page holds {events_max:,} with ease",
            "Show a part of it: whence view ... --around 1",
        )


def _trace(path: Path, run: str | None, events_max: int | None) -> Scene:
    opened = open_trace(path)
    chosen = only_run(opened, run)
    events = sum(manifest.events for manifest in opened.of_run(chosen))
    _require_room(f"run {chosen!r} of {path}", events, events_max)
    report = verify_trace(opened, run=chosen, causal=True)[0]
    return with_corrections(scene_of_trace(opened, chosen, report))


def _reports(path: Path, run: str | None) -> Scene:
    """The events that the findings of a report name, without the rest of the run."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[RunReport])
    except msgspec.MsgspecError as error:
        raise DataError(
            str(path),
            f"it is neither a trace nor what `whence verify --json` prints ({error})",
            "Give a trace folder, or a file with such a report",
        ) from error
    chosen = [report for report in found if run is None or report.run == run]
    if len(chosen) != 1:
        runs = ", ".join(report.run for report in found[:5])
        raise MisuseError(str(path), f"it holds {len(found)} runs", f"Name one with --run: {runs}")
    return _findings_alone(chosen[0], path)


def _findings_alone(report: RunReport, path: Path) -> Scene:
    events: dict[tuple[str, int], tuple[Kind, str]] = {}
    for each in report.findings:
        for step in each.chain:
            verb = Kind.DELIVER if step.event == "deliver" else Kind.BROADCAST
            events[step.node, step.seq] = (verb, step.message)
        for seq, message in ((each.other_seq, each.other), (each.seq, each.message)):
            if seq is not None and message is not None:
                events.setdefault((each.node, seq), (Kind.DELIVER, message))
    places = {key: at for at, key in enumerate(sorted(events))}
    nodes = sorted({*(node for node, _ in places), *(each.node for each in report.findings)})
    msgs = sorted({message for _, message in events.values()})
    which = {message: at for at, message in enumerate(msgs)}
    kind = np.array([events[key][0] for key in places], dtype=np.int64)
    msg = np.array([which[events[key][1]] for key in places], dtype=np.int64)
    begin = np.full(len(msgs), -1, dtype=np.int64)
    begun = np.flatnonzero(kind == Kind.BROADCAST)
    begin[msg[begun]] = begun
    counts = [sum(node == of for of, _ in places) for node in nodes]
    verdict, tone = verdict_on(report)
    proofs = Proofs(lambda node, seq: places[node, seq], kind, msgs, msg, begin)
    none = np.zeros(0, dtype=np.int64)
    return Scene(
        title=report.run,
        verdict=verdict,
        tone=tone,
        about={"protocol": report.protocol, "report": str(path)},
        procs=nodes,
        lanes=nodes,
        lane_proc=list(range(len(nodes))),
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        kinds=TRACE_KINDS,
        kind=kind,
        time=None,
        unit_ns=1000,
        msgs=msgs,
        msg=msg,
        begin=begin,
        details=[],
        detail=np.full(len(kind), -1, dtype=np.int64),
        edge_from=none,
        edge_to=none,
        edge_source=none,
        findings=broken_first(proofs.show(report, each) for each in report.findings),
        notes=["only the events that the findings name; the trace has the others"],
    )


# A foreign log as the judge saw it. A context is a lane and a process a row. A message whose send was not
# logged has an event of its own: in a row of its channel, in the order of ranks, or alone where nothing
# orders it.


def scene_of_log(log: Log, audit: Audit) -> Scene:
    """A log as the judge saw it."""
    sends = find_sends(log)
    graph = build(log, sends, read_clocks(log))
    plan = _Plan(log, sends, graph)
    causes = np.repeat(np.arange(graph.nodes), np.diff(graph.first))
    source, target = plan.event[causes], plan.event[graph.to]
    kept = (source >= 0) & (target >= 0) & (graph.source != ORDER)
    kept &= ~((graph.source == MESSAGE) & (plan.kind[np.maximum(target, 0)] == EventKind.DELIVER))
    details, detail = _texts(log, plan)
    notes = [note.text for note in audit.notes]
    if plan.tied:
        notes.append(f"{plan.tied:,} events share a place with another one: shown one after the other")
    scene = Scene(
        title=audit.source,
        verdict=audit.headline().partition(" (judged")[0],
        tone=_TONES[audit.verdict],
        about={
            "contexts": f"{len(log.ctxs):,}, in order by {log.order}",
            "judged": ", ".join(audit.judged) or "nothing",
            "not judged": ", ".join(audit.not_judged) or "nothing",
        },
        procs=plan.procs,
        lanes=plan.lanes,
        lane_proc=plan.lane_proc,
        starts=plan.starts,
        kinds=LOG_KINDS,
        kind=plan.kind,
        time=plan.time,
        unit_ns=1,
        msgs=log.msgs,
        msg=plan.msg,
        begin=np.where(sends.ambiguous, -1, plan.event[graph.message_node]),
        details=details,
        detail=detail,
        edge_from=source[kept],
        edge_to=target[kept],
        edge_source=graph.source[kept].astype(np.int64),
        sources=SOURCES,
        findings=broken_first(
            _shown(log, plan, name, found, each.status == BROKEN)
            for name, each in audit.properties.items()
            for found in each.findings
        ),
        notes=notes,
        unjudged=[
            f"{name}: {each.why}; {each.remedy}" for name, each in audit.properties.items() if each.why
        ],
    )
    return with_corrections(scene, skew_of(log, graph)[0])


class _Lane(NamedTuple):
    """Nodes of the graph in one order, of one process."""

    name: str
    proc: str
    nodes: list[int]


class _Plan:
    """Where each node of the graph is shown."""

    def __init__(self, log: Log, sends: Sends, graph: Graph) -> None:
        lanes = [*_contexts(log), *_unlogged(log, sends, graph)]
        self.procs = list(dict.fromkeys([*log.procs, *(lane.proc for lane in lanes)]))
        place = {name: at for at, name in enumerate(self.procs)}
        self.lanes = [lane.name for lane in lanes]
        self.lane_proc = [place[lane.proc] for lane in lanes]
        self.nodes = np.array([node for lane in lanes for node in lane.nodes], dtype=np.int64)
        self.starts = np.cumsum([0, *(len(lane.nodes) for lane in lanes)]).astype(np.int64)
        self.event = np.full(graph.nodes, -1, dtype=np.int64)  # of each node
        self.event[self.nodes] = np.arange(len(self.nodes))
        self.real = self.nodes < len(log)
        mine = np.where(self.real, self.nodes, 0)
        self.kind = np.where(self.real, log.kind[mine] if len(log) else 0, _VIRTUAL).astype(np.int64)
        self.msg = np.where(self.real, log.msg[mine] if len(log) else -1, self.nodes - len(log))
        self.time = self._times(log)
        ordered = np.flatnonzero(log.pos >= 0)
        self.tied = len(ordered) - len(
            set(zip(log.ctx[ordered].tolist(), log.pos[ordered].tolist(), strict=True))
        )

    def _times(self, log: Log) -> Array | None:
        """Times of all events; a missing one is that of the event before, or of what follows from it."""
        if not len(log) or not np.any(log.t0 != NO_TIME):
            return None
        earliest = np.full(len(log.msgs), np.iinfo(np.int64).max)
        stamped = np.flatnonzero((log.t0 != NO_TIME) & (log.msg >= 0))
        np.minimum.at(earliest, log.msg[stamped], log.t0[stamped])
        lowest = int(log.t0[log.t0 != NO_TIME].min())
        made = []
        for start, end in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True):
            last = lowest
            for node in self.nodes[start:end].tolist():
                time = int(log.t0[node]) if node < len(log) else int(earliest[node - len(log)])
                last = last if time in (NO_TIME, np.iinfo(np.int64).max) else time
                made.append(last)
        return np.array(made, dtype=np.int64)


def _contexts(log: Log) -> list[_Lane]:
    """The events of each context in their order; an interval is alone."""
    order = np.lexsort((np.arange(len(log)), log.pos, log.ctx))
    lanes: list[_Lane] = []
    last = -1
    for event in order.tolist():
        ctx = int(log.ctx[event])
        if log.pos[event] < 0 or ctx != last:
            lanes.append(_Lane(log.ctxs[ctx], log.procs[log.proc[event]], []))
        lanes[-1].nodes.append(event)
        last = ctx if log.pos[event] >= 0 else -1
    return lanes


def _unlogged(log: Log, sends: Sends, graph: Graph) -> list[_Lane]:
    """Messages that something follows from and whose send is not there, by channel and rank."""
    used = np.zeros(graph.nodes, dtype=bool)
    used[: len(graph.first) - 1] = np.diff(graph.first) > 0
    virtual = np.flatnonzero((graph.message_node >= len(log)) & used[graph.message_node] & ~sends.ambiguous)
    ranked = virtual[(sends.channel[virtual] >= 0) & (sends.rank[virtual] != NO_RANK)]
    ranked = ranked[np.lexsort((sends.rank[ranked], sends.channel[ranked]))]
    lanes: list[_Lane] = []
    for message in ranked.tolist():
        name = f"{log.channels[sends.channel[message]]} ({NOT_LOGGED})"
        if not lanes or lanes[-1].name != name:
            lanes.append(_Lane(name, name, []))
        lanes[-1].nodes.append(int(graph.message_node[message]))
    alone = sorted(set(virtual.tolist()) - set(ranked.tolist()))
    row = f"({NOT_LOGGED})"
    lanes += [_Lane(log.msgs[each], row, [int(graph.message_node[each])]) for each in alone]
    return lanes


def _texts(log: Log, plan: _Plan) -> tuple[list[str], Array]:
    """The text of each event, and how long it took."""
    known: dict[str, int] = {}
    detail = np.full(len(plan.nodes), -1, dtype=np.int64)
    for at, node in enumerate(plan.nodes.tolist()):
        if node >= len(log):
            continue
        words = [log.text[node] or ""]
        if log.t1[node] != NO_TIME and log.t0[node] != NO_TIME and log.t1[node] > log.t0[node]:
            words.append(f"({(log.t1[node] - log.t0[node]) / 1e6:.3f} ms)")
        text = " ".join(filter(None, words))
        if text:
            detail[at] = known.setdefault(text, len(known))
    return list(known), detail


def _shown(log: Log, plan: _Plan, name: str, finding: AuditFinding, broken: bool) -> ShownFinding:
    """A finding with its chain, then the events that break it."""
    place = {message: at for at, message in enumerate(log.msgs)}
    named = {log.name(event): event for event in finding.events}
    steps = []
    for step in finding.chain:
        node = named.get(step.event, -1)
        if node < 0 and (message := step.event.partition(" is sent (")[0]) in place:
            node = len(log) + place[message]
        by = f" [{step.by}]" if step.by else ""
        steps.append(ShownStep(int(plan.event[node]) if node >= 0 else -1, step.event + by))
    chain = len(steps)
    # What is told of an overtaken message begins with the two deliveries, the early one first.
    last = finding.events[:2] if finding.other is not None else [] if chain else finding.events
    steps += [ShownStep(int(plan.event[event]), log.name(event)) for event in last]
    wrong = int(plan.event[last[-1]]) if last else steps[0].event if steps else -1
    member, never, _ = finding.text.partition(" never delivers ")
    return ShownFinding(
        kind=name,
        title=finding.message or "",
        detail=finding.text.removesuffix("; yet"),  # the steps say the rest
        broken=broken,
        steps=steps,
        chain=chain,
        wrong=wrong,
        message=finding.message or "",
        at=member if never and member in plan.procs else "",
    )
