"""Who counts: members that were retired, for all, and those that no member reaches.

A member that is retired is waited for no more. Anyone may retire another; all are told, over every
connection and at each new one, and remembered by stores. What is retired is a life: a process under that name
that shows another one is taken back, and told where it begins. A process that hears that its own life was
retired goes on as another one.

With `retire_after_s` a member is retired by itself: once for the group, not pair by pair. Every member tells
the others whom it has not reached for that long; the one with the smallest name decides when all that it is
connected to say so, and they are more than half of those that count (of two halves, the one with the smallest
name). So a cut between two members retires none, and of a group that is split at most one part retires the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from whence.core.message import NodeId
from whence.errors import MisuseError
from whence.session.links import Link
from whence.session.peering import Peering
from whence.session.wire import MembersNews, members_frame


class Roll:
    """What one node knows of those who count. `keep` writes a retirement down, where there is a store."""

    def __init__(
        self, peering: Peering, links: Mapping[NodeId, Link], keep: Callable[[NodeId, int], None]
    ) -> None:
        self._peering = peering
        self._links = links
        self._keep = keep
        self._retired = peering.admission.retired
        self._absent: tuple[NodeId, ...] = ()  # whom this node has not reached for a long time
        self._absent_for: dict[NodeId, frozenset[NodeId]] = {}  # peer -> whom it has not reached

    def retire(self, name: NodeId) -> None:
        """Take a member out of the group, for all."""
        me = self._peering.identity.node
        if name == me:
            raise MisuseError(f"node {name!r}", "a node does not retire itself", "Leave the group")
        if name not in self._links:
            raise MisuseError(f"node {name!r}", "it is no member that this node knows", "Name a member")
        self._take_out(name, self._links[name].peer_life)

    def _take_out(self, name: NodeId, life: int) -> None:
        if self._peering.retire(name, life):
            self._keep(name, life)
            self.tell_all()

    # Telling

    def greet(self, link: Link) -> None:
        """A link has a connection: tell its peer what it may not know."""
        self._absent_for.pop(link.peer, None)
        if self._retired or self._absent:
            self._tell(link)

    def tell_all(self) -> None:
        """Tell every member that can be reached."""
        for link in self._links.values():
            self._tell(link)

    def _tell(self, link: Link) -> None:
        if link.channel is not None and link.channel.writable:
            link.channel.write(members_frame(MembersNews(dict(self._retired), list(self._absent))))

    def hear(self, link: Link, news: MembersNews) -> None:
        """A member tells whom it knows to be retired, and whom it does not reach."""
        self._absent_for[link.peer] = frozenset(news.absent)
        for name, life in news.retired.items():
            known = self._links.get(name)
            if known is not None and known.peer_life in (0, 1, life):
                self._take_out(name, life)
        self._decide()

    # By itself

    def look_around(self) -> None:
        """Now and then: who has been out of reach for too long?"""
        limit_s = self._peering.limits.retire_after_s
        if limit_s is None:
            return
        now_s = self._peering.now_s()
        absent = tuple(
            link.peer
            for link in self._links.values()
            if link.alive and link.channel is None and now_s - link.lost_s > limit_s
        )
        if absent != self._absent:
            self._absent = absent
            self.tell_all()
        self._decide()

    def _decide(self) -> None:
        me = self._peering.identity.node
        there = {me, *(link.peer for link in self._links.values() if link.channel is not None)}
        members = {me, *(link.peer for link in self._links.values() if link.alive)}
        is_half = 2 * len(there) == len(members) and min(members) in there
        if not self._absent or me != min(there) or (2 * len(there) <= len(members) and not is_half):
            return
        for name in self._absent:
            if all(name in self._absent_for.get(peer, ()) for peer in there - {me}):
                self._take_out(name, self._links[name].peer_life)
        self._absent = tuple(name for name in self._absent if self._links[name].alive)
