"""How far the clocks of peers are from this node's: measured by the traffic, told where it is too much.

Protocols with deadlines rest on clocks that agree within a slack. Twice per heartbeat each side says what
time it is, and when it was when the other's last word came. From one such exchange follows the offset of the
peer's clock, wrong by at most half of the round trip (as in NTP); of the last `SAMPLES` the one with the
shortest round trip counts. Nothing is corrected: an operator sets clocks, and this says which, and by how
much.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from whence.core.message import NodeId
from whence.session.journal import Journal
from whence.session.links import Link
from whence.session.wire import ClockNews, clock_frame

SAMPLES = 16


class Offset(NamedTuple):
    """How far a peer's clock is ahead of this node's, and how wrong that may be, in microseconds."""

    error_us: int
    offset_us: int


class PeerClock:
    """What is known of one peer's clock."""

    def __init__(self) -> None:
        self.heard: ClockNews | None = None  # its newest word, and
        self.heard_at_us = 0  # when that came, by this node's clock
        self.is_off = False  # it was said that the clocks differ too much
        self._samples: deque[Offset] = deque(maxlen=SAMPLES)

    def hear(self, news: ClockNews, now_us: int) -> None:
        """The peer tells its time."""
        self.heard, self.heard_at_us = news, now_us
        round_trip_us = (now_us - news.echo_us) - (news.sent_us - news.received_us)
        if news.echo_us and round_trip_us >= 0:
            offset_us = ((news.received_us - news.echo_us) + (news.sent_us - now_us)) // 2
            self._samples.append(Offset((round_trip_us + 1) // 2, offset_us))

    @property
    def offset(self) -> Offset | None:
        """The best that is known; None before the first exchange."""
        return min(self._samples, default=None)


class ClockWatch:
    """The clocks of all peers of one node."""

    def __init__(self, now_us: Callable[[], int], slack_us: int, journal: Journal) -> None:
        self._now_us = now_us
        self._slack_us = slack_us
        self._journal = journal
        self._clocks: dict[NodeId, PeerClock] = {}

    def offset(self, peer: NodeId) -> Offset | None:
        """The offset of a peer's clock, as far as it is known."""
        clock = self._clocks.get(peer)
        return None if clock is None else clock.offset

    def tell(self, link: Link) -> None:
        """Tell a peer what time it is here."""
        if link.channel is None or not link.channel.writable:
            return
        clock = self._clocks.setdefault(link.peer, PeerClock())
        echo_us = 0 if clock.heard is None else clock.heard.sent_us
        link.channel.write(clock_frame(ClockNews(self._now_us(), echo_us, clock.heard_at_us)))

    def hear(self, link: Link, news: ClockNews) -> None:
        """A peer tells what time it is there: say so if that is too far from here, and when that is over."""
        clock = self._clocks.setdefault(link.peer, PeerClock())
        clock.hear(news, self._now_us())
        if clock.offset is None:
            return
        error_us, offset_us = clock.offset
        is_off = abs(offset_us) - error_us > self._slack_us
        if is_off == clock.is_off:
            return
        clock.is_off = is_off
        where = f"{abs(offset_us) / 1e6:.3f} s {'ahead of' if offset_us > 0 else 'behind'} this node's"
        slack = f"the slack of {self._slack_us / 1e6:g} s"
        if is_off:
            detail = (
                f"the clock of {link.peer} is {where} (known to {error_us / 1e6:.4f} s), beyond {slack}: "
                "messages expire too early or too late. Set the clocks of both machines (NTP), "
                "or raise clock_error_us and clock_slack_s at every member"
            )
            self._journal.note("clock", link.peer, detail, logging.WARNING)
        else:
            self._journal.note("clock", link.peer, f"the clock of {link.peer} is within {slack} again")
