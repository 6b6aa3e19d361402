"""One member of a live VCube group in its own process, told over its standard input what to do.

Lines: "quiet" (broadcast no more), "report", "leave".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import whence
from support.processes import Handle, Talker, orders


@dataclass
class Settings:
    """What one member is told."""

    node: str
    peers: dict[str, str]
    trace: str | None = None
    is_victim: bool = False  # it will be killed: nothing that it has recorded may be lost
    joins: bool = False
    pause_s: float = 0.01
    test_interval_us: int = 100_000
    test_timeout_us: int = 2_000_000
    queue_messages: int = 4096


def report_of(group: whence.Group, talker: Talker) -> dict[str, Any]:
    core: Any = group._host.core
    return {
        "node": group.node,
        "delivered": dict(sorted(talker.seen.items())),
        "kept": len(core.store),
        "waiting": len(group.explain()),
        "present": list(core.roster.present),
        "phase": str(core.phase),
        "discards": group.stats().discards,
        "held": group.stats().held_messages,
        "error": talker.error,
    }


async def run(settings: Settings) -> None:
    joining = whence.join(
        "room",
        node=settings.node,
        peers=settings.peers,
        protocol="vcube",
        trace=settings.trace,
        joins=settings.joins,
        test_interval_us=settings.test_interval_us,
        test_timeout_us=settings.test_timeout_us,
        limits=whence.Limits(backoff_first_s=0.02, backoff_max_s=0.3, queue_messages=settings.queue_messages),
    )
    async with joining as group:
        talker = Talker(group, lambda: settings.pause_s, is_victim=settings.is_victim)
        async for line in orders():
            if line == "quiet":
                talker.is_quiet.set()
            else:
                print(json.dumps(report_of(group, talker)), flush=True)
        await talker.fall_silent()
    await talker.read_out()


class Member(Handle):
    """The parent's handle of a member process."""

    run = staticmethod(run)
