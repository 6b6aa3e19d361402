"""The life of the links: who is let in, what becomes of a fault, who left and who is given up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from whence.core.message import NodeId
from whence.errors import HandshakeError, PeerError, WhenceError
from whence.live.connection import Connection
from whence.session.handshake import (
    GoneError,
    Identity,
    RefusedForNowError,
    RestartedError,
    check_known_session,
    check_session,
    error_code,
    refused,
)
from whence.session.journal import Journal
from whence.session.limits import Limits
from whence.session.links import Channel, Link, LinkState
from whence.session.wire import BYE_FRAME, Hello, Refusal, error_frame


class Peering:
    """Decides about connections and links; the callbacks tell the node what follows."""

    def __init__(
        self,
        identity: Identity,
        links: Mapping[NodeId, Link],
        limits: Limits,
        journal: Journal,
        on_gone: Callable[[Link], None],
        on_renewed: Callable[[Link], None],
        on_fail: Callable[[WhenceError], None],
    ) -> None:
        self.identity = identity
        self.parting = False  # all is flushed, and every peer is told good-bye
        self.changed = asyncio.Event()  # a link was made, lost or acknowledged: whoever waits looks again
        self.lost_frames = 0
        self._links = links
        self._limits = limits
        self._journal = journal
        self._on_gone = on_gone
        self._on_renewed = on_renewed
        self._on_fail = on_fail
        self._strangers: set[Connection] = set()  # accepted, but they have not passed their handshake
        self._strangers_max = 2 * len(links) + 32

    # Strangers

    def admit(self, connection: Connection) -> bool:
        """Whether one more unknown connection may be held."""
        if len(self._strangers) >= self._strangers_max:
            self._journal.fault(
                "refused",
                connection.source,
                HandshakeError("connection", "too many connections have not said HELLO", "Wait"),
            )
            return False
        self._strangers.add(connection)
        return True

    def settled(self, connection: Connection) -> None:
        """A connection has passed its handshake, or ended."""
        self._strangers.discard(connection)

    def abort_strangers(self) -> None:
        """Close what never became a link."""
        for connection in list(self._strangers):
            connection.abort()

    # Handshake

    def claimed(self, connection: Connection, hello: Hello) -> None:
        """Judge what a stranger says of itself, before it is asked for a sign of life."""
        connection.source = f"{hello.node!r} at {connection.source.removeprefix('stranger at ')}"
        try:
            self.identity.check(hello)
        except PeerError as error:
            self._remember(hello, error)
            raise

    def greeted(self, connection: Connection, dialled: Link | None, hello: Hello) -> Link | None:
        """Judge a HELLO. Answers the link that the connection now serves, or None if it was closed."""
        try:
            return self._judge(connection, dialled, hello)
        except PeerError as error:
            self._remember(hello, error)
            raise

    def _remember(self, hello: Hello, error: PeerError) -> None:
        if hello.node in self._links:
            self._links[hello.node].last_error = error

    def _judge(self, connection: Connection, dialled: Link | None, hello: Hello) -> Link | None:
        self.identity.check(hello)
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
        if link.state is LinkState.LEFT and hello.session == link.peer_session:
            connection.reply(link)
            connection.close(BYE_FRAME)  # our answer to its good-bye was lost
            return None
        if asyncio.get_running_loop().time() < link.refuse_until_s:
            raise RefusedForNowError(
                f"node {link.peer!r}", "it has sent what cannot be decoded, again and again", "Wait"
            )
        if link.renews and link.channel is None and link.peer_session not in (0, hello.session):
            self._journal.note("renewed", link.peer, f"{link.peer} has come back", logging.INFO)
            self._on_renewed(link)
        try:
            check_session(link, hello.session)
            check_known_session(link, hello.peer_session, self.identity.session)
        except RestartedError as error:
            if hello.peer_session not in (0, self.identity.session):
                connection.reply(link)  # the peer must learn our session to know what happened
                connection.close()
                if not link.renews:
                    self._on_fail(error)
                return None
            if link.renews:  # the connection of its earlier process is not known to be dead yet
                raise RefusedForNowError(error.what, error.reason, "Wait") from None
            if link.alive and link.channel is None:  # the process that we knew is gone for good
                self.give_up(link, error)
            raise
        self._attach(connection, link, hello, reply=dialled is None)
        return link

    def _attach(self, connection: Connection, link: Link, hello: Hello, *, reply: bool) -> None:
        if link.channel is not None:  # the peer has noticed before us that the old one is dead
            self.drop(link, "it was replaced by a newer connection")
        link.attach(connection, hello.session, hello.received)
        if reply:
            connection.reply(link)
        link.heard_s = link.wrote_s = asyncio.get_running_loop().time()
        link.last_error = None
        self._journal.recovered(link.peer)
        self._journal.note("connected", link.peer, f"connected to {link.peer}", logging.DEBUG)
        if self.parting:
            self.say_goodbye(link)
        self.changed.set()

    def refused_by_peer(self, link: Link | None, source: str, refusal: Refusal) -> None:
        """A peer sent an ERROR frame, and will close the connection."""
        error = refused(source, refusal)
        self._journal.fault("refused", source, error)
        if link is None:
            return
        link.last_error = error
        self._lose_connection(link)
        if isinstance(error, RestartedError) or (isinstance(error, GoneError) and link.renews):
            self._on_fail(error)
        elif isinstance(error, GoneError) and link.alive:
            self.give_up(link, error)

    # Faults and ends

    def fault(self, connection: Connection, link: Link | None, established: bool, error: PeerError) -> None:
        """A peer broke the rules: count it, tell it, close. Nothing accepted is lost: the link resumes."""
        self._journal.fault("fault", connection.source, error)
        connection.close(error_frame(error_code(error), error))
        if link is None:
            return
        link.last_error = error
        if established:
            now_s = asyncio.get_running_loop().time()
            link.fault(now_s, self._limits.backoff_first_s, self._limits.backoff_max_s)
            self._lose_connection(link)

    def disconnected(self, link: Link) -> None:
        """The connection of a link has ended by itself."""
        self._journal.note("disconnected", link.peer, f"lost the connection to {link.peer}", logging.DEBUG)
        self._lose_connection(link)

    def silent(self, link: Link) -> None:
        """Nothing has been heard for too long: the connection is dead, whatever the kernel thinks."""
        self.drop(link, f"nothing was heard for {self._limits.silence_s:g} s")

    def drop(self, link: Link, why: str) -> None:
        """End the connection of a link here and now; the link resumes on the next one."""
        self._journal.note("disconnected", link.peer, f"closed the connection to {link.peer}: {why}")
        if link.channel is not None:
            link.channel.abort()
        self._lose_connection(link)

    def _lose_connection(self, link: Link) -> None:
        if link.channel is not None:
            link.channel = None
            link.lost_s = asyncio.get_running_loop().time()
        self.changed.set()

    def say_goodbye(self, link: Link) -> None:
        """Tell the peer that nothing follows any more; it answers in kind."""
        if link.channel is not None:
            link.flush(1 << 30, may_ack=True, ack_now=True)
            link.channel.write(BYE_FRAME)

    def peer_leaves(self, link: Link, connection: Channel) -> None:
        """The peer has said good-bye, or answered ours."""
        connection.close(b"" if self.parting else BYE_FRAME)
        self._lose_connection(link)
        self._end(link, LinkState.LEFT, "it left the group", logging.INFO)

    def give_up(self, link: Link, error: PeerError) -> None:
        """The peer is out of the group as far as this node is concerned; never silently."""
        self._journal.fault("given up", link.peer, error)
        if link.channel is not None:
            gone = GoneError(error.what, error.reason, error.fix)
            link.channel.close(error_frame(error_code(gone), gone))
        self._lose_connection(link)
        link.last_error = error
        self._end(link, LinkState.GIVEN_UP, f"given up: {error}", logging.WARNING)

    def count_on(self, link: Link, counts: bool) -> None:
        """The protocol goes on with the peer, or without it."""
        lost = link.count_on(counts)
        self.lost_frames += lost
        what = "in" if counts else "out of"
        self._journal.note("member", link.peer, f"{link.peer} is {what} the group; {lost} messages are void")
        self.changed.set()

    def _end(self, link: Link, state: LinkState, why: str, level: int) -> None:
        link.end(state)
        lost = link.out.clear() if not self.parting else 0
        self.lost_frames += lost
        rest = f"; {lost} messages for it were not acknowledged" if lost else ""
        self._journal.note(state.value, link.peer, why + rest, level)
        if not self.parting:
            self._on_gone(link)
        self.changed.set()
