"""Room at destinations: who must not be sent to now, as far as a node of a routing protocol knows.

A budget is per destination and end to end. A server that has too much unread is full, and so is, for a
router, every destination behind a link whose queue is full. Each server tells its neighbours which
destinations are full here or beyond, they tell theirs, and a sender waits for that one destination alone:
routing never stops. The word of it leaves before the acknowledgements of what made the queue full, so a
router takes no more than each neighbour may have unacknowledged.

A destination that was retired, or has left, is `gone`: no node waits for it, it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.core.message import NodeId
from whence.core.protocol import Protocol
from whence.errors import MisuseError
from whence.session.limits import Limits
from whence.session.links import Link, LinkState
from whence.session.wire import RoomNews, room_frame

_ENDS = {LinkState.RETIRED: "was retired", LinkState.LEFT: "has left", LinkState.GIVEN_UP: "was given up"}


def refusal(to: NodeId, hop: Link | None) -> MisuseError:
    """Why nothing is sent to `to`, which is out of the group, or only reached over a peer that is."""
    ended = None if hop is None or hop.alive else _ENDS.get(hop.state, "is out of the group")
    if hop is None or ended is None:
        reason = "it was retired, or has left"
    else:
        reason = f"it {ended}" if hop.peer == to else f"{hop.peer!r}, the only way to it, {ended}"
    return MisuseError(f"destination {to!r}", reason, "Start it again: it comes back as another life")


class Rooms:
    """What one node knows and tells of destinations."""

    def __init__(self, core: Protocol, links: Mapping[NodeId, Link], limits: Limits) -> None:
        self.full: frozenset[NodeId] = frozenset()  # here or beyond: wait
        self.gone: frozenset[NodeId] = frozenset()  # retired, or they have left: refused
        self.held: frozenset[NodeId] = frozenset()  # the system is being changed: wait
        self._core = core
        self._links = links
        self._limits = limits
        self._crowded: set[NodeId] = set()  # peers whose queue here is full, and has not emptied by half
        self._said: dict[NodeId, RoomNews] = {}  # what each peer says of what is beyond it
        self._passed: dict[NodeId, int] = {}  # messages to a full destination that were let pass

    def may_go(self, to: NodeId, *, must_read: bool) -> bool:
        """Whether a message may leave for `to`.

        With `must_read` its sender has too much unread itself, and perhaps others wait for that in a circle:
        up to a queue's length may pass.
        """
        if to in self.held:
            return False
        if to not in self.full:
            return True
        return must_read and self._passed.get(to, 0) < self._limits.queue_messages

    def sent(self, to: NodeId) -> None:
        """A message leaves for `to`; `MisuseError` if that is gone."""
        if to in self.gone:
            raise refusal(to, self._links.get(self._core.next_hop(to)))
        if to in self.full:
            self._passed[to] = self._passed.get(to, 0) + 1

    def why(self, to: NodeId) -> tuple[str, str]:
        """Why no message may leave for `to`, and what helps."""
        if to in self.held:
            return f"the way to {to} is being changed", "Wait until `whence mom apply` has ended"
        if to == self._core.me:
            return f"{to} has too much unread itself", "Let its agent, or `whence mom tail`, read"
        hop = self._core.next_hop(to)
        who = f"{to} takes no more" if to == hop else f"{to} takes no more, says {hop}"
        return who, f"Start {to} and let it read, or retire it"

    def refresh(self, *, reads_too_little: bool) -> None:
        """Look at the queues; tell the peers what has changed."""
        limits, crowded = self._limits, self._crowded
        for peer, link in self._links.items():
            out = link.out
            share = max(out.messages / limits.queue_messages, out.unacknowledged_bytes() / limits.queue_bytes)
            if not link.alive or (peer in crowded and 2 * share <= 1):
                crowded.discard(peer)
            elif share >= 1:
                crowded.add(peer)
        full: set[NodeId] = {self._core.me} if reads_too_little else set()
        gone: set[NodeId] = set()
        for peer in crowded:
            full.update(self._core.destinations_over(peer))
        for peer, news in self._said.items():
            beyond = self._core.destinations_over(peer)
            full.update(set(news.full).intersection(beyond))
            gone.update(set(news.gone).intersection(beyond))
        for peer, link in self._links.items():
            if not link.alive:  # and with it whom only it leads to
                gone |= self._core.destinations_over(peer) | {peer}
        full -= gone
        if full != self.full or gone != self.gone:
            self.full, self.gone = frozenset(full), frozenset(gone)
            self._passed = {to: count for to, count in self._passed.items() if to in full}
            for link in self._links.values():
                self.greet(link, always=True)

    def greet(self, link: Link, *, always: bool = False) -> None:
        """Tell a peer, if there is something to tell."""
        if link.channel is not None and (always or self.full or self.gone):
            link.channel.write(room_frame(RoomNews(sorted(self.full), sorted(self.gone))))

    def met(self, link: Link) -> None:
        """A new connection: what the peer said on the one before does not count."""
        self._said.pop(link.peer, None)
        self.greet(link)

    def hear(self, link: Link, news: RoomNews) -> None:
        """A peer says which destinations are full or gone, there or beyond it."""
        self._said[link.peer] = news
