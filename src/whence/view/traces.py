"""A scene from a trace of ours and the verifier's report on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from whence.errors import MisuseError
from whence.trace.columns import numbers_of
from whence.trace.reader import Trace
from whence.trace.schema import VERIFIED_KINDS, Kind
from whence.verify.report import KINDS, Finding, RunReport
from whence.view.scene import PACKET, Array, Scene, SceneKind, ShownFinding, ShownStep, broken_first

_ROLES = {
    Kind.BROADCAST: "begin",
    Kind.SEND: "send",
    Kind.RECEIVE: "receive",
    Kind.DELIVER: "deliver",
    Kind.EXPIRE: "drop",
    Kind.DISCARD: "drop",
    Kind.CRASH: "crash",
    Kind.RESTART: "restart",
}
_NOTHING = SceneKind("nothing", "other")  # kinds are numbered from 1
TRACE_KINDS = (
    _NOTHING,
    *(SceneKind(kind.name.lower(), _ROLES.get(kind, "other"), kind not in VERIFIED_KINDS) for kind in Kind),
)


def only_run(trace: Trace, run: str | None) -> str:
    """The run to show: the one that is named, or the only one."""
    if run is None and len(trace.runs) > 1:
        raise MisuseError(
            str(trace.path),
            f"it holds {len(trace.runs)} runs",
            f"Name one with --run: {', '.join(trace.runs[:5])}",
        )
    return trace.runs[0] if run is None else run


def scene_of_trace(trace: Trace, run: str, report: RunReport | None) -> Scene:
    """One run of a trace, with what the verifier found; without a report nothing is said of its order."""
    manifest = trace.of_run(run)[0]
    columns = _read(trace, run)
    msgs, msg = _messages(columns)
    begin = np.full(len(msgs), -1, dtype=np.int64)
    broadcasts = np.flatnonzero(
        (columns.kind == Kind.BROADCAST) & (columns.origin == columns.node) & (msg >= 0)
    )
    begin[msg[broadcasts[::-1]]] = broadcasts[::-1]  # the first one stays
    source, target = _packets(columns, msg)
    details, detail = _details(columns)
    start = dict(zip(columns.nodes, columns.starts.tolist(), strict=False))
    proof = Proofs(lambda node, seq: start[node] + seq, columns.kind, msgs, msg, begin)
    verdict, tone = "not judged", "none"
    findings: list[ShownFinding] = []
    if report is not None:
        verdict, tone = verdict_on(report)
        findings = broken_first(proof.show(report, each) for each in report.findings)
    return Scene(
        title=run,
        verdict=verdict,
        tone=tone,
        about={
            "protocol": manifest.protocol,
            "recorded": manifest.level,
            "software": manifest.software,
            "trace": str(trace.path),
        },
        procs=columns.nodes,
        lanes=columns.nodes,
        lane_proc=list(range(len(columns.nodes))),
        starts=columns.starts,
        kinds=TRACE_KINDS,
        kind=columns.kind,
        time=columns.time_us,
        unit_ns=1000,
        msgs=msgs,
        msg=msg,
        begin=begin,
        details=details,
        detail=detail,
        edge_from=source,
        edge_to=target,
        edge_source=np.full(len(source), PACKET, dtype=np.int64),
        findings=findings,
        notes=[f"{left.name} was not finished by its writer and is not shown" for left in trace.leftovers],
    )  # fmt: skip


class _Columns(NamedTuple):
    """All events of a run, node by node."""

    nodes: list[str]
    names: list[str]
    starts: Array
    node: Array  # as a place in names
    time_us: Array
    kind: Array
    origin: Array
    number: Array
    peer: Array
    texts: list[str]
    text: Array


class _Interned(dict[Any, int]):
    """Numbers for things in order of appearance."""

    def __missing__(self, key: Any) -> int:
        self[key] = len(self)
        return self[key]


def _read(trace: Trace, run: str) -> _Columns:
    names, texts = _Interned(), _Interned()
    for node in trace.nodes(run):
        names[node]  # looking it up numbers it
    rows: list[tuple[str, int, dict[str, Array]]] = []
    for batch in trace.batches(run=run):
        lists: dict[str, Any] = {
            name: numbers_of(batch.column(name).flatten())  # type: ignore[attr-defined]
            for name in ("time_us", "kind", "origin", "number", "peer")
        }
        details: Any = batch.column("detail").flatten().dictionary_encode()  # type: ignore[attr-defined]
        table = np.array([texts[each] for each in details.dictionary.to_pylist()] + [-1], dtype=np.int64)
        lists["text"] = table[numbers_of(details.indices.fill_null(len(table) - 1))]
        ends = np.cumsum(numbers_of(batch.column("events")))
        keys: Any = zip(
            *(batch.column(name).to_pylist() for name in ("node", "first_seq", "names")), strict=True
        )
        begin = 0
        for (node, first_seq, own), end in zip(keys, ends.tolist(), strict=True):
            part = {name: values[begin:end] for name, values in lists.items()}
            ids = np.array([*(names[each] for each in own), -1], dtype=np.int64)
            part["origin"], part["peer"] = ids[part["origin"]], ids[part["peer"]]
            rows.append((node, first_seq, part))
            begin = end
    nodes = sorted({*trace.nodes(run), *(node for node, _, _ in rows)})
    rows.sort(key=lambda row: row[:2])
    count = dict.fromkeys(nodes, 0)
    for node, _, part in rows:
        count[node] += len(part["kind"])
    joined = {
        name: np.concatenate([part[name] for _, _, part in rows] or [np.zeros(0, dtype=np.int64)]).astype(
            np.int64
        )
        for name in ("time_us", "kind", "origin", "number", "peer", "text")
    }
    sizes = list(count.values())
    return _Columns(
        nodes=nodes,
        starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        node=np.repeat(np.array([names[node] for node in nodes], dtype=np.int64), sizes),
        names=list(names),
        texts=list(texts),
        **joined,
    )


def _messages(columns: _Columns) -> tuple[list[str], Array]:
    """The messages that any event names, and for each event which."""
    has = np.flatnonzero(columns.origin >= 0)
    msg = np.full(len(columns.kind), -1, dtype=np.int64)
    if not len(has):
        return [], msg
    numbers, number = np.unique(columns.number[has], return_inverse=True)
    keys, which = np.unique(columns.origin[has] * len(numbers) + number, return_inverse=True)
    msg[has] = which
    pairs = zip((keys // len(numbers)).tolist(), numbers[keys % len(numbers)].tolist(), strict=True)
    return [f"{columns.names[origin]}:{each}" for origin, each in pairs], msg


def _packets(columns: _Columns, msg: Array) -> tuple[Array, Array]:
    """Edges from sends to receipts: the n-th receipt of a packet comes from its n-th sending, or the last."""
    sends = np.flatnonzero(columns.kind == Kind.SEND)
    receipts = np.flatnonzero(columns.kind == Kind.RECEIVE)
    if not len(sends) or not len(receipts):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    names = len(columns.names) + 1

    def keys(at: Array, source: Array, target: Array) -> Array:
        width = len(columns.texts) + 2
        return (
            (source[at] * names + target[at] + 1) * (int(msg.max()) + 2) + msg[at] + 1
        ) * width + columns.text[at]

    sent = keys(sends, columns.node, columns.peer)
    came = keys(receipts, columns.peer, columns.node)
    order, arrival = np.argsort(sent, kind="stable"), np.argsort(came, kind="stable")
    sent, came = sent[order], came[arrival]
    first, last = np.searchsorted(sent, came), np.searchsorted(sent, came, side="right")
    turn = np.arange(len(came)) - np.searchsorted(came, came)
    known = first < last
    at = np.minimum(first + turn, last - 1)[known]
    return sends[order[at]], receipts[arrival[known]]


def _details(columns: _Columns) -> tuple[list[str], Array]:
    """What else there is to say of an event: its peer, and the detail of its row."""
    width = len(columns.texts) + 1
    keys = (columns.peer + 1) * width + columns.text + 1
    used, which = np.unique(keys, return_inverse=True)
    made = []
    for peer, text in zip((used // width).tolist(), (used % width).tolist(), strict=True):
        words = [columns.names[peer - 1]] if peer else []
        words += [columns.texts[text - 1]] if text and columns.texts[text - 1] is not None else []
        made.append(" ".join(words))
    detail = (
        np.where(np.array([bool(each) for each in made], dtype=bool)[which], which, -1) if made else which
    )
    return made, detail


def verdict_on(report: RunReport) -> tuple[str, str]:
    """A report in one line, and its tone."""
    counts = {kind: getattr(report.counts, kind) for kind in KINDS}
    found = ", ".join(f"{kind} {count:,}" for kind, count in counts.items() if count)
    if not report.ok:
        return f"broken: {found}", "bad"
    return (f"ok; not demanded: {found}", "warn") if found else ("ok: causal and as promised", "good")


class Proofs:
    """Findings in terms of events; `place` gives the event of a node and a `seq`."""

    def __init__(
        self, place: Callable[[str, int], int], kind: Array, msgs: list[str], msg: Array, begin: Array
    ) -> None:
        self._place = place
        self._kind = kind
        self._which = {name: at for at, name in enumerate(msgs)}
        self._msg = msg
        self._begin = begin

    def show(self, report: RunReport, finding: Finding) -> ShownFinding:
        """One finding with its steps: the chain first, then what happened at the node."""
        node, message = finding.node, finding.message
        steps = [ShownStep(self._place(step.node, step.seq), str(step)) for step in finding.chain]
        chain = len(steps)
        wrong = -1 if finding.seq is None else self._place(node, finding.seq)
        begin = int(self._begin[self._which[message]]) if message in self._which else -1
        if not chain and begin >= 0 and begin != wrong:
            steps.append(ShownStep(begin, f"{message} begins"))
        if finding.other is not None and finding.other_seq is not None:
            text = f"{node} delivers {finding.other} (seq {finding.other_seq}), and only then"
            steps.append(ShownStep(self._place(node, finding.other_seq), text))
        elif finding.kind == "duplicate" and (first := self._first_delivery(finding, wrong)) >= 0:
            steps.append(ShownStep(first, f"{node} delivers {message} for the first time"))
        if wrong >= 0 and all(step.event != wrong for step in steps):
            verb = TRACE_KINDS[int(self._kind[wrong])].name
            steps.append(ShownStep(wrong, f"{node}: {verb} {message} (seq {finding.seq})"))
        return ShownFinding(
            kind=finding.kind,
            title=f"{node}: {message}",
            detail=finding.detail,
            broken=finding.kind in report.broken,
            steps=steps,
            chain=chain,
            wrong=wrong,
            message=message,
            at=node,
        )

    def _first_delivery(self, finding: Finding, wrong: int) -> int:
        same = np.flatnonzero(
            (self._msg == self._which.get(finding.message, -2)) & (self._kind == Kind.DELIVER)
        )
        here = same[(same >= wrong - (finding.seq or 0)) & (same < wrong)]
        return int(here[0]) if len(here) else -1
