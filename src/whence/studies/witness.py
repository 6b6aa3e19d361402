"""One causal violation told as a story: the events that a space-time diagram shows, with their times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whence.studies.results import Label, Row


@dataclass(frozen=True)
class Mark:
    """One event on a node's line."""

    node: str
    time_us: int
    message: str  # "origin:number"
    kind: str  # "broadcast" or "deliver"


@dataclass(frozen=True)
class Witness:
    """`first` happened before `second`, yet `node` delivered `second` before `first`."""

    run: str
    labels: Mapping[str, Label]
    node: str
    first: str
    second: str
    marks: tuple[Mark, ...]  # the chain from broadcast to broadcast, then the node's two deliveries
    sentences: tuple[str, ...]


def pick(rows: Iterable[Row]) -> tuple[Row, Mapping[str, Any]] | None:
    """The violation that is easiest to follow: the shortest chain, the first of these in the grid."""
    found = [
        (row, finding)
        for row in rows
        for finding in row.verdict.get("findings", ())
        if finding["kind"] == "causal" and finding["chain"] and finding["seq"] is not None
    ]
    return min(found, key=lambda pair: len(pair[1]["chain"]), default=None)


def tell(row: Row, finding: Mapping[str, Any], folder: Path) -> Witness:
    """Fetch the times of the finding's events from the run's trace."""
    node, first, second = finding["node"], finding["message"], finding["other"]
    steps = [
        (step["node"], step["seq"], step["message"], "deliver" if step["event"] == "deliver" else "broadcast")
        for step in finding["chain"]
    ]
    steps.append((node, finding["other_seq"], second, "deliver"))
    steps.append((node, finding["seq"], first, "deliver"))
    times = _times(folder, row.run, {(at, seq) for at, seq, _, _ in steps})
    marks = tuple(Mark(at, times[at, seq], message, kind) for at, seq, message, kind in steps)
    past = [f"{mark.node} delivered {mark.message}" for mark in marks[:-2] if mark.kind == "deliver"]
    chain = ", ".join(past) or f"{first} was broadcast"
    return Witness(
        run=row.run,
        labels=row.labels,
        node=node,
        first=first,
        second=second,
        marks=marks,
        sentences=(
            f"{chain} before {second} was broadcast, so {first} precedes {second}.",
            f"Yet {node} delivered {second} {(marks[-1].time_us - marks[-2].time_us) / 1000:.1f} ms "
            f"before {first}.",
        ),
    )


def _times(folder: Path, run: str, wanted: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
    from whence.trace.reader import open_trace

    times: dict[tuple[str, int], int] = {}
    for event in open_trace(folder).events(run):
        if (event.node, event.seq) in wanted:
            times[event.node, event.seq] = event.time_us
            if len(times) == len(wanted):
                break
    return times
