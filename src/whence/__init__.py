"""Whence: causal messaging. A library, a laboratory and an auditor for causal order.

    async with whence.join("room", node="alice", peers=peers) as group:
        await group.broadcast(b"hello")
        async for message in group:
            print(message.origin, message.payload)

Everything here is loaded when it is first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for True; typing's own would cost more than all of this module
if TYPE_CHECKING:
    from typing import Any

    from whence.core.effects import Missed
    from whence.core.lives import Forked, Joined, Left, OtherLife, Retired, RolledBack, Suspected
    from whence.core.message import Expired, Message, MessageId, Waiting
    from whence.errors import WhenceError
    from whence.live.group import Group
    from whence.live.join import join
    from whence.live.linkfaults import LinkFaults
    from whence.live.ordered import Ordered
    from whence.live.stats import LinkStats, LogStats, Stats, StoreStats
    from whence.live.sync import sync_join
    from whence.live.typed import Codec, Received, TypedGroup
    from whence.session.journal import GroupEvent
    from whence.session.limits import Limits
    from whence.session.log_host import LogMessage
    from whence.session.records import Output

    __version__: str

__all__ = [
    "Codec",
    "Expired",
    "Forked",
    "Group",
    "GroupEvent",
    "Joined",
    "Left",
    "Limits",
    "LinkFaults",
    "LinkStats",
    "LogMessage",
    "LogStats",
    "Message",
    "MessageId",
    "Missed",
    "Ordered",
    "OtherLife",
    "Output",
    "Received",
    "Retired",
    "RolledBack",
    "Stats",
    "StoreStats",
    "Suspected",
    "TypedGroup",
    "Waiting",
    "WhenceError",
    "__version__",
    "join",
    "sync_join",
]

_HOME = {
    "Codec": "whence.live.typed",
    "Expired": "whence.core.message",
    "Group": "whence.live.group",
    "GroupEvent": "whence.session.journal",
    "Joined": "whence.core.lives",
    "Left": "whence.core.lives",
    "Limits": "whence.session.limits",
    "LinkFaults": "whence.live.linkfaults",
    "LinkStats": "whence.live.stats",
    "LogMessage": "whence.session.log_host",
    "LogStats": "whence.live.stats",
    "Message": "whence.core.message",
    "MessageId": "whence.core.message",
    "Missed": "whence.core.effects",
    "Ordered": "whence.live.ordered",
    "OtherLife": "whence.core.lives",
    "Output": "whence.session.records",
    "Received": "whence.live.typed",
    "Forked": "whence.core.lives",
    "Retired": "whence.core.lives",
    "RolledBack": "whence.core.lives",
    "Stats": "whence.live.stats",
    "StoreStats": "whence.live.stats",
    "Suspected": "whence.core.lives",
    "TypedGroup": "whence.live.typed",
    "Waiting": "whence.core.message",
    "WhenceError": "whence.errors",
    "join": "whence.live.join",
    "sync_join": "whence.live.sync",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("whence")
    elif name in _HOME:
        from importlib import import_module

        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'whence' has no attribute {name!r}")
    globals()[name] = value  # the next time Python finds it without asking
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
