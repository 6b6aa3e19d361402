"""Traces with other events than were recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from whence.trace.reader import Event, open_trace
from whence.trace.schema import Level, Manifest
from whence.trace.writer import TraceWriter

Alter = Callable[[list[Event]], Iterable[Event]]


def rewritten(folder: Path, into: Path, alter: Alter, **changes: Any) -> Path:
    """A sound trace (its hashes fit) with other events: what a reader cannot notice."""
    trace = open_trace(folder)
    manifest: Manifest = msgspec.structs.replace(trace.manifests[0], **changes)
    with TraceWriter(
        into,
        run=manifest.run,
        writer=manifest.writer,
        protocol=manifest.protocol,
        parameters=manifest.parameters,
        promises=manifest.promises,
        seed=manifest.seed,
        nodes=manifest.nodes,
        level=Level.ALL,
    ) as writer:
        for event in alter(list(trace.events())):
            writer.event(event.node, *event[3:])
    return into
