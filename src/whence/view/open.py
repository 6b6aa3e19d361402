"""What `whence view` is given, as a scene: a trace of ours, a foreign log, or a report of the verifier."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from whence.errors import DataError, MisuseError
from whence.trace.reader import open_trace
from whence.trace.schema import MANIFEST_SUFFIX, Kind
from whence.verify.report import RunReport
from whence.verify.run import verify_trace
from whence.view.clocks import with_corrections
from whence.view.scene import Scene, broken_first
from whence.view.traces import TRACE_KINDS, Proofs, only_run, scene_of_trace, verdict_on


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
    from whence.view.logs import scene_of_log

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
