"""TDCA and ODCA as the registry makes them: `mode` chooses the corrected algorithm or the printed one.

`published` takes `lifetime_us`, `tick_us` and `strict`, and leaves all other parameters aside: the figure
knows none of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from whence.core.message import NodeId
from whence.core.protocol import Protocol
from whence.errors import ParameterError
from whence.protocols.deadline.odca import Odca
from whence.protocols.deadline.published import PublishedOdca, PublishedTdca
from whence.protocols.deadline.tdca import BUFFER_BYTES, Tdca


def make_tdca(
    me: NodeId,
    members: Iterable[NodeId],
    *,
    mode: str = "safe",
    lifetime_us: int = 1_000_000,
    deadlines: bool = True,
    copies: int = 1,
    margin_us: int = 5_000,
    clock_error_us: int = 0,
    buffer_bytes: int = BUFFER_BYTES,
    tick_us: int = 1_000,
) -> Protocol:
    """A core without repair."""
    if _is_published(mode):
        return PublishedTdca(me, members, lifetime_us=lifetime_us, tick_us=tick_us)
    return Tdca(
        me,
        members,
        lifetime_us=lifetime_us,
        deadlines=deadlines,
        copies=copies,
        margin_us=margin_us,
        clock_error_us=clock_error_us,
        buffer_bytes=buffer_bytes,
    )


def make_odca(
    me: NodeId,
    members: Iterable[NodeId],
    *,
    mode: str = "safe",
    pull: str = "exact",
    retry_us: int = 50_000,
    pulls: int = 3,
    reply_bytes: int = 16_384,
    lifetime_us: int = 1_000_000,
    deadlines: bool = True,
    copies: int = 2,
    margin_us: int = 5_000,
    clock_error_us: int = 0,
    buffer_bytes: int = BUFFER_BYTES,
    tick_us: int = 1_000,
    strict: bool = True,
) -> Protocol:
    """A core that solicits what is missing."""
    if _is_published(mode):
        return PublishedOdca(me, members, lifetime_us=lifetime_us, tick_us=tick_us, strict=strict)
    return Odca(
        me,
        members,
        pull=pull,
        retry_us=retry_us,
        pulls=pulls,
        reply_bytes=reply_bytes,
        lifetime_us=lifetime_us,
        deadlines=deadlines,
        copies=copies,
        margin_us=margin_us,
        clock_error_us=clock_error_us,
        buffer_bytes=buffer_bytes,
    )


def _is_published(mode: str) -> bool:
    if mode not in ("safe", "published"):
        raise ParameterError("mode", f"there is no {mode!r}", "Use 'safe' or 'published'")
    return mode == "published"
