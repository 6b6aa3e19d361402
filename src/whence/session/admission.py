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
    check_known_session,
    check_session,
)
from whence.session.links import Link, LinkState
from whence.session.wire import Hello

LINKS_MAX = 1024  # more neighbours than any view leads to
UNKNOWN = Address("unknown", 0)
_STRANGERS = 32
_STRANGERS_OPEN = 256


class Accept(NamedTuple):
    """The connection serves `link` from now on."""

    link: Link
    renewed: bool = False  # the peer is a new process: what its link knew of the earlier one is void
    ends: Link | None = None  # the link that this one takes the place of


class Goodbye(NamedTuple):
    """The peer has left, and our answer to its good-bye was lost: say it again."""

    link: Link


class Explain(NamedTuple):
    """The peer takes us for an earlier process of this name: tell it who we are, and close."""

    link: Link
    error: RestartedError
    renewed: bool


class Refuse(NamedTuple):
    """The connection is closed, with the reason."""

    error: PeerError
    abandons: Link | None = None  # the process at its other end is gone permanently


Verdict: TypeAlias = Accept | Goodbye | Explain | Refuse


class Admission(Protocol):
    """Who belongs to the group, and how long a link lasts."""

    identity: Identity
    lasting: bool  # links outlive their connections
    keeps: bool  # no peer is ever abandoned
    introduces: bool  # peers tell each other where others can be dialled
    calls: dict[NodeId, Link]  # connections being made to peers without a link yet, by their names

    @property
    def strangers_max(self) -> int:
        """How many connections may be held that have not passed their handshake."""

    def judge(self, hello: Hello, dialled: Link | None, now_s: float, *, parting: bool) -> Verdict:
        """Judge a HELLO on a connection that we `dialled`, or accepted (None)."""


class Listed:
    """Every member is listed, and has a link from the start."""

    lasting = True
    introduces = False

    def __init__(self, identity: Identity, links: Mapping[NodeId, Link], *, keeps: bool = False) -> None:
        self.identity = identity
        self.keeps = keeps
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
        """Whether the two processes are those that the link knows."""
        renewed = link.renews and link.channel is None and link.peer_session not in (0, hello.session)
        try:
            if not renewed:
                check_session(link, hello.session)
            check_known_session(link, hello.peer_session, self.identity.session)
        except RestartedError as error:
            if hello.peer_session not in (0, self.identity.session):
                return Explain(link, error, renewed)  # it must learn our session to know what happened
            if link.renews:  # the connection of its earlier process is not known to be dead yet
                raise RefusedForNowError(error.what, error.reason, "Wait") from None
            return Refuse(error, link if link.alive and link.channel is None else None)
        return Accept(link, renewed)


class Open:
    """No list of members: a link begins and ends with its connection."""

    lasting = False
    keeps = False
    strangers_max = _STRANGERS_OPEN

    def __init__(self, identity: Identity, links: Mapping[NodeId, Link], *, introduces: bool = False) -> None:
        self.identity = identity
        self.introduces = introduces
        self.calls: dict[NodeId, Link] = {}
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
        elif hello.node != dialled.peer or self.calls.get(dialled.peer) is not dialled:
            raise HandshakeError(
                f"node {hello.node!r}", "it is not, or not any more, the process that was dialled", "Wait"
            )
        return Accept(dialled, ends=self._in_the_way(hello.node, dials=True))

    def _in_the_way(self, peer: NodeId, *, dials: bool) -> Link | None:
        """The link to `peer` that a new one replaces; raises if that one, or our own call, counts."""
        link = self._links.get(peer)
        if link is not None and link.alive and (link.dials or dials):
            raise RefusedForNowError(f"node {peer!r}", "there is a link to it already", "Wait")
        if peer in self.calls and not dials and self.identity.node < peer:
            raise RefusedForNowError(f"node {peer!r}", "it is being dialled from here", "Wait")
        return link
