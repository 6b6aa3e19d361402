"""A scene from a foreign log and the judge's verdict on it.

A context is a lane and a process a row. A message whose send was not logged has an event of its own: in a row
of its channel, in the order of ranks, or alone where nothing orders it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whence.foreign.clocks import read_clocks
from whence.foreign.graph import MESSAGE, ORDER, SOURCES, Graph, Sends, build, find_sends
from whence.foreign.model import NO_RANK, NO_TIME, EventKind, Log
from whence.foreign.report import BROKEN, Audit, AuditFinding
from whence.foreign.timing import skew_of
from whence.view.clocks import with_corrections
from whence.view.scene import Array, Scene, SceneKind, ShownFinding, ShownStep, broken_first

NOT_LOGGED = "not logged"
_ROLES = ("other", "begin", "receive", "deliver", "crash", "restart", "other")
LOG_KINDS = (
    *(SceneKind(kind.name.lower(), _ROLES[kind]) for kind in EventKind),
    SceneKind(f"send, {NOT_LOGGED}", "begin"),
)
_VIRTUAL = len(LOG_KINDS) - 1
_TONES = {"ok": "good", "broken": "bad", "unknown": "warn"}


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
