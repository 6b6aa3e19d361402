"""Which connections are let in: judgements of a HELLO, which change nothing.

    Listed      the members are listed: a peer is known by its name, and its link outlives its connections;
                with `keeps` no peer is ever abandoned: it comes back with its store
    Open        there is no list: a node that is configured alike is let in, and a link lives exactly as
                long as its connection

In an open group two nodes may dial each other at the same time: then the connection of the smaller name
counts. A node that dials again has lost the connection that it had, so the new one replaces it; one that we
dialled is never replaced by the other end, which waits until we know that ours is dead.

What follows from a verdict is `peering.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeAlias

from whence.core.message import NodeId
from whence.errors import HandshakeError, PeerError
from whence.session.addresses import Address
from whence.session.handshake import (
    GoneError,
    Identity,
    RefusedForNowError,
    RestartedError,
    RetiredError,
    check_session,
)
from whence.session.links import FORGOTTEN, Link, LinkState
from whence.session.wire import Hello

LINKS_MAX = 1024  # more neighbours than any view leads to
UNKNOWN = Address("unknown", 0)
_STRANGERS = 256  # more than a listening socket hands over in one turn of the loop (100): see `Peering.admit`


class Accept(NamedTuple):
    """The connection serves `link` from now on."""

    link: Link
    renewed: bool = False  # one of the two is another life: what the link knew of its numbering is void
    welcomes: bool = False  # the peer is: it begins where this node is, and is told so
    redraws: bool = False  # and the sessions do not show it: ours towards it must be a new one
    ends: Link | None = None  # the link that this one takes the place of


class Goodbye(NamedTuple):
    """The peer has left, and our answer to its good-bye was lost: say it again."""

    link: Link


class Refuse(NamedTuple):
    """The connection is closed, with the reason; nothing else follows from it."""

    error: PeerError


Verdict: TypeAlias = Accept | Goodbye | Refuse


class Admission(Protocol):
    """Who belongs to the group, and how long a link lasts."""

    identity: Identity
    lasting: bool  # links outlive their connections
    keeps: bool  # no peer is ever abandoned
    introduces: bool  # peers tell each other where others can be dialled
    returns: bool  # a member that is gone may come back as another life
    calls: dict[NodeId, Link]  # connections being made to peers without a link yet, by their names
    retired: dict[NodeId, int]  # the newest life of each member that was retired
    is_apart: bool  # this node is out of its group, and can take no node in

    @property
    def strangers_max(self) -> int:
        """How many connections may be held that have not passed their handshake."""

    def judge(self, hello: Hello, dialled: Link | None, now_s: float, *, parting: bool) -> Verdict:
        """Judge a HELLO on a connection that we `dialled`, or accepted (None)."""


class Listed:
    """Every member is listed, and has a link from the start."""

    lasting = True
    introduces = False

    def __init__(
        self,
        identity: Identity,
        links: Mapping[NodeId, Link],
        *,
        keeps: bool = False,
        returns: bool = True,
    ) -> None:
        self.identity = identity
        self.keeps = keeps
        self.is_apart = False
        self.returns = returns  # the protocol can take a member back that lost its state
        self.retired: dict[NodeId, int] = {}  # the newest life of each member that was retired
        self.calls: dict[NodeId, Link] = {}
        self.strangers_max = 2 * len(links) + _STRANGERS
        self._links = links

    def judge(self, hello: Hello, dialled: Link | None, now_s: float, *, parting: bool) -> Verdict:
        """As `Admission.judge`; a connection is let in while we part, so that good-bye can be said."""
        try:
            self.identity.check(hello)
            link = self._link_of(hello, dialled)
            if link.state is LinkState.LEFT and hello.session == link.peer_session:
                return Goodbye(link)
            if now_s < link.refuse_until_s:
                raise RefusedForNowError(
                    f"node {link.peer!r}", "it has sent what cannot be decoded, again and again", "Wait"
                )
            return self._judge_session(link, hello)
        except PeerError as error:
            return Refuse(error)

    def _link_of(self, hello: Hello, dialled: Link | None) -> Link:
        if hello.node not in self._links:
            raise HandshakeError(
                f"node {hello.node!r}",
                f"it has no link to node {self.identity.node!r}: they share no domain",
                "Give every member the same domains",
            )
        link = self._links[hello.node]
        if dialled is not link and (dialled is not None or link.dials):
            raise HandshakeError(
                f"node {hello.node!r}",
                "it is not the node that was dialled" if dialled else "it must wait to be dialled",
                "Check the addresses of the peers",
            )
        return link

    def _judge_session(self, link: Link, hello: Hello) -> Verdict:
        """Whether the two are the lives that the link knows; a later one is told where it begins."""
        if self.retired.get(link.peer) == hello.life:
            raise RetiredError(f"node {link.peer!r}", "it was retired", "It comes back as another life")
        if link.channel is not None and link.peer_life not in (0, hello.life):
            # A copy of its store, or its earlier connection is not known to be dead yet.
            raise RefusedForNowError(
                f"node {link.peer!r}", "another process takes part under this name", "Stop one of the two"
            )
        is_other = link.peer_life not in (
            0,
            hello.life,
            *hello.earlier,
        )  # it has nothing of what that one had
        is_new = link.peer_session not in (0, hello.session)
        are_we_new = hello.peer_session not in (0, self.identity.session_to(link))
        is_known = is_new or not is_other
        resumes = is_new or are_we_new or link.out.can_resume(hello.received)
        if is_known and resumes and not is_new and not are_we_new:
            if link.state is LinkState.GIVEN_UP:
                raise GoneError(f"node {link.peer!r}", "this node has given it up", "Wait")
            return Accept(link)
        if not (self.returns or link.renews):
            check_session(link, hello.session)
            raise RestartedError(
                f"node {link.peer!r}",
                "one of the two has lost its state, and this protocol takes nobody back",
                "Restore the newest store, restart the group, or use protocol 'log'",
            )
        behind = not is_known or (not resumes and hello.received < link.out.acknowledged)
        forgotten = link.peer_session == FORGOTTEN
        # Both may be new to each other: then each tells the other where it is.
        welcomes = is_other or behind or forgotten or (is_new and not hello.returns)
        return Accept(link, renewed=True, welcomes=welcomes, redraws=not is_known or not resumes)


class Open:
    """No list of members: a link begins and ends with its connection."""

    lasting = False
    keeps = False
    returns = False
    strangers_max = _STRANGERS

    def __init__(self, identity: Identity, links: Mapping[NodeId, Link], *, introduces: bool = False) -> None:
        self.identity = identity
        self.introduces = introduces
        self.calls: dict[NodeId, Link] = {}
        self.retired: dict[NodeId, int] = {}
        self.is_apart = False
        self._links = links

    def judge(self, hello: Hello, dialled: Link | None, now_s: float, *, parting: bool) -> Verdict:
        """As `Admission.judge`."""
        try:
            self.identity.check(hello)
            if parting:  # also where our own call is answered too late
                raise GoneError(
                    f"node {self.identity.node!r}", "it is leaving the group", "Ask another process"
                )
            if dialled is not None:
                return self._judge_answer(hello, dialled)
            if self.is_apart:
                raise RefusedForNowError(
                    f"node {hello.node!r}", "this process is out of the group itself", "Wait"
                )
            if len(self._links) >= LINKS_MAX:
                raise RefusedForNowError(f"node {hello.node!r}", "there are too many links here", "Wait")
            ends = self._in_the_way(hello.node, dials=False)
            # Its first word says where it listens.
            return Accept(Link(hello.node, UNKNOWN, dials=False), ends=ends)
        except PeerError as error:
            return Refuse(error)

    def _judge_answer(self, hello: Hello, dialled: Link) -> Accept:
        if dialled.peer == self.identity.node:  # whichever node listens there: it takes us in
            if hello.to != self.identity.node:
                raise HandshakeError(f"node {hello.node!r}", "it answers somebody else", "Check the contact")
        elif hello.node != dialled.peer:
            raise HandshakeError(f"node {hello.node!r}", "it is not the process that was dialled", "Wait")
        elif self.calls.get(dialled.peer) is not dialled:  # it has called us meanwhile
            raise RefusedForNowError(f"node {hello.node!r}", "it is not waited for any more", "Wait")
        return Accept(dialled, ends=self._in_the_way(hello.node, dials=True))

    def _in_the_way(self, peer: NodeId, *, dials: bool) -> Link | None:
        """The link to `peer` that a new one replaces; raises if that one, or our own call, counts."""
        link = self._links.get(peer)
        if link is not None and link.alive and (link.dials or dials):
            raise RefusedForNowError(f"node {peer!r}", "there is a link to it already", "Wait")
        if peer in self.calls and not dials and self.identity.node < peer:
            raise RefusedForNowError(f"node {peer!r}", "it is being dialled from here", "Wait")
        return link
