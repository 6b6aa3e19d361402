"""Going on with a trace: what a writer must know of the parts that are kept."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from whence.errors import TraceError
from whence.trace.check import segments_of
from whence.trace.reader import Source, Trace, load_manifest
from whence.trace.schema import Manifest

if TYPE_CHECKING:
    from hashlib import _Hash


class Past(NamedTuple):
    """A writer's state after the parts that are kept."""

    manifest: Manifest
    digest: _Hash
    next: dict[str, tuple[int, int]]  # node -> next segment number, next seq


def resume(path: Path, new: Manifest, parts: int) -> Past:
    """The state after the first `parts` parts of the manifest at `path`, which must be of the same writer."""
    old = load_manifest(path)
    for field in ("run", "writer", "protocol", "parameters", "nodes", "level"):
        if getattr(old, field) != getattr(new, field):
            raise TraceError(
                str(path),
                f"its {field} is {getattr(old, field)!r}, not {getattr(new, field)!r}",
                "Go on with the trace of this very node, or begin anew in another folder",
            )
    if len(old.parts) < parts:
        raise TraceError(
            str(path),
            f"it has {len(old.parts)} parts, and {parts} were written",
            "Restore the trace from a copy, or start the node without a trace",
        )
    kept = old.parts[:parts]
    digest = hashlib.sha256()
    following: dict[str, tuple[int, int]] = {}
    manifest = msgspec.structs.replace(old, parts=kept)
    for number, segment in segments_of(Trace(path.parent, [Source(path.parent, manifest)], []), digest):
        following[segment.node] = (number + 1, segment.first_seq + segment.events)
    return Past(
        msgspec.structs.replace(
            manifest, events=sum(part.events for part in kept), trace_hash=digest.hexdigest()
        ),
        digest,
        following,
    )
