"""Turns flags into findings, ordered by kind, node and `seq`, and spells out the first few of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from whence.verify.analysis import Analysis
from whence.verify.report import KINDS, Finding

UNTIMELY_DETAIL = "delivered before it was broadcast: its broadcast depends on this very delivery"


def missing_by_node(analysis: Analysis) -> dict[str, int]:
    """Who misses how many messages."""
    names = analysis.access.names
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


def causal(analysis: Analysis, event: int) -> Finding:
    """One delivery out of order, with its witness."""
    found = analysis.overtakings[event]
    return _finding(
        analysis,
        "causal",
        event,
        other_event=found.other_event,
        chain=found.chain,
        detail="delivered after a message that depends on it",
    )


def _causal(analysis: Analysis) -> Iterator[Finding]:
    for event in sorted(analysis.overtakings):
        yield causal(analysis, event)


def _fifo(analysis: Analysis) -> Iterator[Finding]:
    for event in analysis.listed.fifo:
        found = analysis.search.fifo(event)
        yield _finding(
            analysis,
            "fifo",
            event,
            other_event=found.other_event,
            chain=found.chain,
            detail="delivered after a later message of the same origin",
        )


def _duplicate(analysis: Analysis) -> Iterator[Finding]:
    for event in analysis.listed.duplicate:
        _, part, _ = analysis.search.look_up(event)
        seq = _seq_before(analysis, event, part.delivers)
        yield _finding(analysis, "duplicate", event, detail=f"delivered before, at seq {seq}")


def _late(analysis: Analysis) -> Iterator[Finding]:
    for event, delivered_us, broadcast_us, lifetime_us in analysis.listed.late:
        _, part, at = analysis.search.look_up(event)
        begun = int(analysis.access.messages.event[part.message[at]])
        age_us = delivered_us - broadcast_us
        yield _finding(
            analysis,
            "late",
            event,
            chain=[analysis.search.step(begun), analysis.search.step(event)],
            broadcast_us=broadcast_us,
            delivered_us=delivered_us,
            detail=f"delivered {age_us} us after its broadcast, with a lifetime of {lifetime_us} us",
        )


def _created(analysis: Analysis) -> Iterator[Finding]:
    for event in analysis.listed.created:
        yield _finding(analysis, "created", event, detail="delivered, but never broadcast by its origin")


def _missing(analysis: Analysis) -> Iterator[Finding]:
    names, messages = analysis.access.names, analysis.access.messages
    for node in np.flatnonzero(analysis.missing).tolist():
        is_for = (messages.to < 0) | (messages.to == node)
        for which in np.flatnonzero(analysis.wanted & is_for & ~analysis.ended_at(node)).tolist():
            _, part, at = analysis.search.look_up(int(messages.event[which]))
            yield Finding(
                kind="missing",
                node=names[node],
                message=f"{names[messages.node[which]]}:{messages.number[which]}",
                detail=f"neither delivered nor expired; broadcast at seq {part.seq_at(at)}",
            )


def _malformed(analysis: Analysis) -> Iterator[Finding]:
    odd = [(event, UNTIMELY_DETAIL) for event in analysis.listed.untimely]
    for event in analysis.listed.again:
        _, part, at = analysis.search.look_up(event)
        seq = _seq_before(analysis, event, part.ends)
        what = "delivered" if part.delivers[at] else "expired"
        odd.append((event, f"{what}, although it had ended here before, at seq {seq}"))
    for event, detail in sorted(analysis.listed.malformed + odd):
        yield _finding(analysis, "malformed", event, detail=detail)


def _seq_before(analysis: Analysis, event: int, which: Any) -> int:
    """The `seq` of the node's first event among `which` that speaks of the same message."""
    _, part, at = analysis.search.look_up(event)
    before = which[:at] & (part.message[:at] == part.message[at])
    return part.seq_at(int(np.argmax(before)))


def _finding(
    analysis: Analysis, kind: str, event: int, *, detail: str, other_event: int | None = None, **more: Any
) -> Finding:
    search = analysis.search
    node, part, at = search.look_up(event)
    other_seq = None
    if other_event is not None:
        other_seq = part.seq_at(other_event - part.first)
    return Finding(
        kind=kind,
        node=analysis.access.names[node],
        message=search.name_of(event),
        seq=part.seq_at(at),
        other=None if other_event is None else search.name_of(other_event),
        other_seq=other_seq,
        detail=detail,
        **more,
    )
