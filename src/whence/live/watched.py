"""A running node writes its trace out while it is watched, and only then.

A watcher (`whence view --live`) touches the file `.watched` in the trace's folder, again and again. A
node that finds it fresh flushes its trace. Each flush makes a part, so one that is not watched makes none.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Protocol

WATCHED = ".watched"
FRESH_S = 4.0
LOOK_S = 0.5


class Flushes(Protocol):
    """A group with a trace."""

    def flush_trace(self) -> None: ...


def touch(folder: Path) -> None:
    """Say that the trace is watched in this folder."""
    (folder / WATCHED).touch()


def is_watched(folder: Path) -> bool:
    """Whether a watcher said so a moment ago."""
    try:
        return time.time() - (folder / WATCHED).stat().st_mtime < FRESH_S
    except OSError:
        return False


async def flush_while_watched(group: Flushes, folder: Path) -> None:
    """Flush the group's trace now and then while it is watched; runs until it is cancelled."""
    while True:
        await asyncio.sleep(LOOK_S)
        if is_watched(folder):
            group.flush_trace()
