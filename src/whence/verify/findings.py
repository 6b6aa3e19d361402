"""Turns flags into findings, ordered by kind, node and `seq`, and spells out the first few of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from whence.verify.analysis import Analysis
from whence.verify.report import KINDS, Counts, Finding


def counts(analysis: Analysis) -> Counts:
    """Exact numbers of findings."""
    return Counts(
        causal=int(analysis.disordered.sum()),
        fifo=int(analysis.overtaken.sum()),
        duplicate=int(analysis.repeat.sum()),
        late=int(analysis.overdue.sum()),
        created=int(analysis.created.sum()),
        missing=int(analysis.missing.sum()),
        malformed=len(analysis.placed.malformed) + int(analysis.untimely.sum()) + int(analysis.again.sum()),
    )


def missing_by_node(analysis: Analysis) -> dict[str, int]:
    """Who misses how many messages."""
    names = analysis.events.names
    return {names[node]: int(analysis.missing[node]) for node in np.flatnonzero(analysis.missing)}


def findings(analysis: Analysis, witness_max: int | None) -> list[Finding]:
    """At most `witness_max` findings (None: all) of each kind."""
    spell_out = {
        "causal": _causal,
        "fifo": _fifo,
        "duplicate": _duplicate,
        "late": _late,
        "created": _created,
        "missing": _missing,
        "malformed": _malformed,
    }
    return [finding for kind in KINDS for finding in islice(spell_out[kind](analysis), witness_max)]


def _causal(analysis: Analysis) -> Iterator[Finding]:
    for event in sorted(analysis.overtakings):
        found = analysis.overtakings[event]
        yield _finding(
            analysis,
            "causal",
            event,
            other_event=found.other_event,
            chain=found.chain,
            detail="delivered after a message that depends on it",
        )


def _fifo(analysis: Analysis) -> Iterator[Finding]:
    for event in np.flatnonzero(analysis.overtaken).tolist():
        found = analysis.search.fifo(event, _node_of(analysis, event))
        yield _finding(
            analysis,
            "fifo",
            event,
            other_event=found.other_event,
            chain=found.chain,
            detail="delivered after a later message of the same origin",
        )


def _duplicate(analysis: Analysis) -> Iterator[Finding]:
    for event in np.flatnonzero(analysis.repeat).tolist():
        seq = _seq_before(analysis, event, analysis.placed.delivers)
        yield _finding(analysis, "duplicate", event, detail=f"delivered before, at seq {seq}")


def _late(analysis: Analysis) -> Iterator[Finding]:
    events, placed = analysis.events, analysis.placed
    if events.timing is None:
        return
    time_us, lifetime_us = events.timing
    for event in np.flatnonzero(analysis.overdue).tolist():
        begun = int(placed.messages.event[placed.message[event]])
        age_us, good_us = int(time_us[event] - time_us[begun]), int(lifetime_us[begun])
        yield _finding(
            analysis,
            "late",
            event,
            chain=[analysis.search.step(begun), analysis.search.step(event)],
            broadcast_us=int(time_us[begun]),
            delivered_us=int(time_us[event]),
            detail=f"delivered {age_us} us after its broadcast, with a lifetime of {good_us} us",
        )


def _created(analysis: Analysis) -> Iterator[Finding]:
    for event in np.flatnonzero(analysis.created).tolist():
        yield _finding(analysis, "created", event, detail="delivered, but never broadcast by its origin")


def _missing(analysis: Analysis) -> Iterator[Finding]:
    events, placed, messages = analysis.events, analysis.placed, analysis.placed.messages
    for node in np.flatnonzero(analysis.missing).tolist():
        ended = np.zeros(placed.message_limit, dtype=bool)
        here = slice(int(events.offsets[node]), int(events.offsets[node + 1]))
        ended[placed.message[here][placed.ends[here]]] = True
        is_for = (messages.to < 0) | (messages.to == node)
        for which in np.flatnonzero(analysis.wanted & is_for & ~ended[: messages.total]).tolist():
            origin = events.names[messages.node[which]]
            yield Finding(
                kind="missing",
                node=events.names[node],
                message=f"{origin}:{messages.number[which]}",
                detail=f"neither delivered nor expired; broadcast at seq {events.seq[messages.event[which]]}",
            )


def _malformed(analysis: Analysis) -> Iterator[Finding]:
    untimely = "delivered before it was broadcast: its broadcast depends on this very delivery"
    odd = [(event, untimely) for event in np.flatnonzero(analysis.untimely).tolist()]
    for event in np.flatnonzero(analysis.again).tolist():
        seq = _seq_before(analysis, event, analysis.placed.ends)
        what = "delivered" if analysis.placed.delivers[event] else "expired"
        odd.append((event, f"{what}, although it had ended here before, at seq {seq}"))
    for event, detail in sorted(analysis.placed.malformed + odd):
        yield _finding(analysis, "malformed", event, detail=detail)


def _seq_before(analysis: Analysis, event: int, which: Any) -> int:
    """The `seq` of the node's first event among `which` that speaks of the same message."""
    message, start = analysis.placed.message, int(analysis.events.offsets[_node_of(analysis, event)])
    before = which[start:event] & (message[start:event] == message[event])
    return int(analysis.events.seq[start + int(np.argmax(before))])


def _node_of(analysis: Analysis, event: int) -> int:
    return int(analysis.events.node_of(event))


def _finding(
    analysis: Analysis, kind: str, event: int, *, detail: str, other_event: int | None = None, **more: Any
) -> Finding:
    events, name_of = analysis.events, analysis.search.name_of
    return Finding(
        kind=kind,
        node=events.names[_node_of(analysis, event)],
        message=name_of(event),
        seq=int(events.seq[event]),
        other=None if other_event is None else name_of(other_event),
        other_seq=None if other_event is None else int(events.seq[other_event]),
        detail=detail,
        **more,
    )
