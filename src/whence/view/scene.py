"""What a page shows, whatever it was read from: lanes of events, edges between them, findings.

A lane is a sequential context: its events are in order. A row of the page is a process, which has one lane or
more. Events are numbered lane by lane, so that lane i has the events `starts[i]` to `starts[i + 1]`; then
the causal past of an event is a prefix of every lane, and its future a suffix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from whence.errors import MisuseError

Array = npt.NDArray[Any]

# What a kind of event means for the picture; the page knows these and nothing else.
ROLES = ("other", "begin", "send", "receive", "deliver", "drop", "crash", "restart")

# Where an edge of a trace comes from. Messages are what is judged; packets are shown when they are asked for.
TRACE_SOURCES = ("message", "packet")
PACKET = TRACE_SOURCES.index("packet")


class SceneKind(NamedTuple):
    """One kind of event: its name, and what it means."""

    name: str
    role: str
    packet: bool = False  # below the level of messages: shown when packets are


class ShownStep(msgspec.Struct, frozen=True):
    """One event of a proof, with what it says; -1: the event is not in the log."""

    event: int
    text: str


class ShownFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding, with its proof in steps."""

    kind: str
    title: str
    detail: str
    broken: bool  # something that was demanded is broken
    steps: list[ShownStep]
    chain: int = 0  # this many of the first steps are a chain, each the cause of the next
    wrong: int = -1  # the event that is wrong
    message: str = ""  # for `why`: what is missing, and at which process
    at: str = ""


def broken_first(findings: Iterable[ShownFinding]) -> list[ShownFinding]:
    """Findings in the order of a page: what is broken, then what nothing forbids."""
    return sorted(findings, key=lambda finding: not finding.broken)


class Correction(NamedTuple):
    """What to add to a process's times: at each reading, and between them in a straight line."""

    reading: list[int]
    add: list[int]
    low: list[int | None]  # the interval that the addition lies in; None: open
    high: list[int | None]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """All that one page holds."""

    title: str
    verdict: str  # one line
    tone: str  # good, bad, warn, none
    about: dict[str, str]
    procs: list[str]
    lanes: list[str]
    lane_proc: list[int]
    starts: Array
    kinds: Sequence[SceneKind]
    kind: Array
    time: Array | None  # of any unit; missing ones repeat the one before
    unit_ns: int
    msgs: list[str]
    msg: Array  # -1: none
    begin: Array  # for each message the event that began it, -1: none, or none that is certain
    details: list[str]
    detail: Array  # -1: none
    edge_from: Array  # besides the order of lanes, and begin -> deliver
    edge_to: Array
    edge_source: Array
    sources: Sequence[str] = TRACE_SOURCES  # what `edge_source` says; "message" is one of them
    findings: list[ShownFinding] = field(default_factory=list)
    corrections: dict[int, Correction] = field(default_factory=dict)  # by process
    reference: int = 0  # the process whose clock corrected times are in
    notes: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)  # what could not be judged, and what would change that

    def __len__(self) -> int:
        return len(self.kind)

    def lane_of(self, event: int) -> int:
        """The lane of an event."""
        return int(np.searchsorted(self.starts, event, side="right")) - 1

    def roles(self) -> Array:
        """The role of every event, as a place in ROLES."""
        table = np.array([ROLES.index(kind.role) for kind in self.kinds], dtype=np.int8)
        made: Array = table[self.kind]
        return made

    def all_edges(self) -> tuple[Array, Array]:
        """Every edge between lanes: (from, to)."""
        delivers = np.flatnonzero((self.roles() == ROLES.index("deliver")) & (self.msg >= 0))
        cause = self.begin[self.msg[delivers]]
        there = (cause >= 0) & (cause != delivers)
        return (
            np.concatenate([cause[there], self.edge_from]).astype(np.int64),
            np.concatenate([delivers[there], self.edge_to]).astype(np.int64),
        )


def cone(scene: Scene, events: Sequence[int], *, past: bool) -> Array:
    """For each lane, how many of its first events are before (past) or not after (future) the events.

    The events themselves are in their past and in their future.
    """
    source, target = scene.all_edges()
    if not past:
        source, target = target, source
    order = np.argsort(target, kind="stable")
    source, target = source[order], target[order]
    low, high = scene.starts[:-1].astype(np.int64), scene.starts[1:].astype(np.int64)
    reached = low.copy() if past else high.copy()
    waiting: dict[int, int] = {}
    for event in events:
        _reach(waiting, scene.lane_of(event), event + 1 if past else event, past)
    while waiting:
        lane, to = waiting.popitem()
        done = int(reached[lane])
        if (to <= done) if past else (to >= done):
            continue
        reached[lane] = to
        first, last = (done, to) if past else (to, done)
        causes = source[np.searchsorted(target, first) : np.searchsorted(target, last)]
        lanes = np.searchsorted(scene.starts, causes, side="right") - 1
        for other in np.unique(lanes).tolist():
            here = causes[lanes == other]
            _reach(waiting, other, int(here.max()) + 1 if past else int(here.min()), past)
    return reached


def _reach(waiting: dict[int, int], lane: int, to: int, past: bool) -> None:
    known = waiting.get(lane)
    waiting[lane] = to if known is None else max(known, to) if past else min(known, to)


def around(scene: Scene, findings: Sequence[int], *, pad: int, limit: int) -> Scene:
    """What happened around some findings, with `pad` events on both sides of it in every lane.

    That is what leads to the last step of one and did not precede its first, and what comes until each lane
    hears of the first. Of a finding that takes more than `limit` events, lanes keep what is nearest.
    """
    begin, end = scene.starts[:-1].astype(np.int64), scene.starts[1:].astype(np.int64)
    low, high = end.copy(), begin.copy()
    for each in findings:
        steps = [step.event for step in scene.findings[each].steps if step.event >= 0]
        if steps:
            one, two = _between(scene, steps, max(2 * pad, limit // len(scene.lanes)))
            low, high = np.minimum(low, one), np.maximum(high, two)
    if not (low < high).any():
        return scene
    high = np.maximum(low, high)
    return cut(scene, np.maximum(begin, low - pad), np.minimum(end, high + pad))


def _between(scene: Scene, steps: list[int], room: int) -> tuple[Array, Array]:
    """From where to where in each lane a finding with these steps goes on."""
    low = cone(scene, steps[:1], past=True)
    hears = cone(scene, steps[:1], past=False)
    high = np.maximum(cone(scene, steps, past=True), np.where(hears < scene.starts[1:], hears + 1, low))
    high = np.minimum(high, low + room)
    for step in steps:
        lane = scene.lane_of(step)
        low[lane], high[lane] = min(low[lane], step), max(high[lane], step + 1)
    return low, np.maximum(low, high)


def between(scene: Scene, since_s: float | None, until_s: float | None) -> Scene:
    """What was stamped from one time to another, in seconds from the first event, each by its own clock."""
    if scene.time is None:
        raise MisuseError(scene.title, "it has no times", "Cut it with --around instead")
    since = (scene.time - scene.time.min()) * (scene.unit_ns / 1e9)
    there = (since >= (since_s or 0)) & (since < (np.inf if until_s is None else until_s))
    low, high = scene.starts[:-1].astype(np.int64), scene.starts[1:].astype(np.int64)
    for lane, (first, last) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        kept = first + np.flatnonzero(there[first:last])
        low[lane], high[lane] = (kept[0], kept[-1] + 1) if len(kept) else (first, first)
    return cut(scene, low, high)


def cut(scene: Scene, low: Array, high: Array) -> Scene:
    """The events `low[lane]` to `high[lane]` of each lane, and what connects them."""
    keep = np.zeros(len(scene), dtype=bool)
    for first, last in zip(low.tolist(), high.tolist(), strict=True):
        keep[first:last] = True
    place = np.where(keep, np.cumsum(keep) - 1, -1)
    kept_edges = keep[scene.edge_from] & keep[scene.edge_to] if len(scene.edge_from) else scene.edge_from
    used, msg = np.unique(scene.msg[keep], return_inverse=True)
    none = int(len(used) > 0 and used[0] < 0)
    begin = scene.begin[used[none:]]
    findings = [
        msgspec.structs.replace(
            each,
            wrong=int(place[each.wrong]) if each.wrong >= 0 else -1,
            steps=[_moved(step, place) for step in each.steps],
        )
        for each in scene.findings
    ]
    note = f"a part: {int(keep.sum()):,} of {len(scene):,} events"
    return replace(
        scene,
        starts=np.concatenate([[0], np.cumsum(high - low)]),
        kind=scene.kind[keep],
        time=None if scene.time is None else scene.time[keep],
        msgs=[scene.msgs[each] for each in used[none:].tolist()],
        msg=msg - none,
        begin=np.where(begin >= 0, place[begin], -1),
        detail=scene.detail[keep],
        edge_from=place[scene.edge_from[kept_edges]],
        edge_to=place[scene.edge_to[kept_edges]],
        edge_source=scene.edge_source[kept_edges],
        findings=findings,
        notes=[*scene.notes, note],
    )


def _moved(step: ShownStep, place: Array) -> ShownStep:
    return step if step.event < 0 else msgspec.structs.replace(step, event=int(place[step.event]))
