"""Who is let in where nobody knows the members, and how a link ends: with its connection, for good.

Two processes may dial each other at the same time: then the connection of the smaller name counts. A process
that dials again has lost the connection that it had, so the new one replaces it; one that we dialled is
never replaced by the other end, which waits until we know that ours is dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from whence.core.message import NodeId
from whence.errors import HandshakeError, PeerError
from whence.live.connection import Connection
from whence.live.peering import Peering
from whence.session.addresses import Address
from whence.session.handshake import GoneError, Identity, RefusedForNowError, error_code, refused
from whence.session.links import Channel, Link, LinkState
from whence.session.wire import BYE_FRAME, MAGIC, VERSION, Hello, Refusal, error_frame

STRANGERS_MAX = 256
UNKNOWN = Address("unknown", 0)
LINKS_MAX = 1024  # more neighbours than any view leads to


class SwarmIdentity(Identity):
    """What a process says of itself: no list of members, and perhaps no name of the one that it dials."""

    def hello(self, link: Link) -> Hello:
        """The HELLO for the peer of `link`; a link to ourselves stands for "whoever listens there"."""
        return Hello(
            magic=MAGIC,
            version=VERSION,
            group=self.group,
            protocol=self.protocol,
            parameters=dict(self.parameters),
            members=[],
            max_payload_bytes=self.max_payload_bytes,
            node=self.node,
            to=link.peer,
            session=self.session,
            peer_session=0,
            received=0,
        )

    def check(self, hello: Hello) -> None:
        """Refuse a process of another group, or of the same group configured otherwise."""
        differences = self._differences(hello)
        what = f"node {hello.node!r}"
        if differences:
            raise HandshakeError(
                what,
                f"it disagrees with node {self.node!r} about {'; '.join(differences)}",
                "Give every process the same configuration",
            )
        if hello.node == self.node:
            raise HandshakeError(
                what, "another process takes part under this name", "Give every process its own name"
            )
        if hello.to not in (self.node, hello.node):
            raise HandshakeError(
                what, f"it wants to speak to {hello.to!r}, and this is {self.node!r}", "Look for it elsewhere"
            )
        if "\0" in hello.node or not hello.session or hello.peer_session or hello.received:
            raise HandshakeError(what, "no correct process says such a HELLO", "Check the peer's release")

    def _differences(self, hello: Hello) -> list[str]:
        found = super()._differences(hello)
        # A list of members at either side would be another kind of group: ours has none.
        found = [each for each in found if not each.startswith("the members")]
        return [*found, "whether there is a list of members"] if hello.members else found


class SwarmPeering(Peering):
    """Decides about connections; a link lives exactly as long as its connection."""

    dialling: dict[NodeId, Link]  # calls that have not been answered, by the peer's name
    on_up: Callable[[Link], None]
    forget: Callable[[Link], None]  # finish closing a link that is dead already
    contact: Link | None = None  # the call to whoever takes us in

    def admit(self, connection: Connection) -> bool:
        """Whether one more unknown connection may be held."""
        self._strangers_max = STRANGERS_MAX
        return super().admit(connection)

    # Handshake

    def _judge(self, connection: Connection, dialled: Link | None, hello: Hello) -> Link | None:
        self.identity.check(hello)
        if self.parting:  # also where our own call is answered too late
            raise GoneError(f"node {self.identity.node!r}", "it is leaving the group", "Ask another process")
        if dialled is not None:
            return self._answered(connection, dialled, hello)
        if len(self._links) >= LINKS_MAX:
            raise RefusedForNowError(f"node {hello.node!r}", "there are too many links here", "Wait")
        self._make_way(hello.node, dials=False)
        link = Link(hello.node, UNKNOWN, dials=False)  # its first word says where it listens
        self._use(connection, link, hello, reply=True)
        return link

    def _answered(self, connection: Connection, dialled: Link, hello: Hello) -> Link:
        if dialled is self.contact:
            if hello.to != self.identity.node:
                raise HandshakeError(f"node {hello.node!r}", "it answers somebody else", "Check the contact")
            dialled.peer = hello.node
        elif hello.node != dialled.peer or self.dialling.get(dialled.peer) is not dialled:
            raise HandshakeError(
                f"node {hello.node!r}", "it is not, or not any more, the process that was dialled", "Wait"
            )
        self._make_way(hello.node, dials=True)
        self._use(connection, dialled, hello, reply=False)
        return dialled

    def _make_way(self, peer: NodeId, *, dials: bool) -> None:
        """Before a new link to `peer`: what becomes of the one that there is, or of our own call."""
        link = self._links.get(peer)
        if link is not None and not link.alive:
            self.forget(link)
        elif link is not None and (link.dials or dials):
            raise RefusedForNowError(f"node {peer!r}", "there is a link to it already", "Wait")
        elif link is not None:
            self.lost(link, "it has dialled again")
        call = self.dialling.get(peer)
        if call is not None and not dials:
            if self.identity.node < peer:
                raise RefusedForNowError(f"node {peer!r}", "it is being dialled from here", "Wait")
            del self.dialling[peer]  # its answer will find that nobody waits for it

    def _use(self, connection: Connection, link: Link, hello: Hello, *, reply: bool) -> None:
        self.dialling.pop(link.peer, None)
        link.attach(connection, hello.session, 0)
        if reply:
            connection.reply(link)
        link.heard_s = link.wrote_s = asyncio.get_running_loop().time()
        self._journal.recovered(link.peer)
        self._journal.note("connected", link.peer, f"connected to {link.peer}", logging.DEBUG)
        self.on_up(link)
        self.changed.set()

    # Ends

    def lost(self, link: Link, why: str, *, left: bool = False, level: int = logging.DEBUG) -> None:
        """The link is over, and with it what was in flight."""
        if not link.alive:
            return
        link.end(LinkState.LEFT if left else LinkState.GIVEN_UP)
        if link.channel is not None:
            link.channel.abort()
            link.channel = None
        self.lost_frames += link.out.clear()
        self._journal.note("left" if left else "disconnected", link.peer, f"{link.peer}: {why}", level)
        self._on_gone(link)
        self.changed.set()

    def refused_by_peer(self, link: Link | None, source: str, refusal: Refusal) -> None:
        """A peer sent an ERROR frame, and will close the connection."""
        error = refused(source, refusal)
        if isinstance(
            error, RefusedForNowError | GoneError
        ):  # part of the game: links are opened from both ends
            self._journal.note("refused", source, str(error), logging.DEBUG)
        else:
            self._journal.fault("refused", source, error)
        if link is not None:
            link.last_error = error
            if self._links.get(link.peer) is link:
                self.lost(link, str(error))

    def fault(self, connection: Connection, link: Link | None, established: bool, error: PeerError) -> None:
        """A peer broke the rules: count it, tell it, close; a link does not survive that."""
        if isinstance(error, RefusedForNowError | GoneError):
            self._journal.note("refused", connection.source, str(error), logging.DEBUG)
        else:
            self._journal.fault("fault", connection.source, error)
        connection.close(error_frame(error_code(error), error))
        if link is not None:
            link.last_error = error
            if established:
                link.channel = None  # it closes in order, so that the peer learns why
                self.lost(link, str(error), level=logging.INFO)

    def disconnected(self, link: Link) -> None:
        """The connection has ended by itself: so has the link."""
        self.lost(link, "the connection is gone")

    def silent(self, link: Link) -> None:
        """Nothing has been heard for too long."""
        self.lost(link, f"nothing was heard for {self._limits.silence_s:g} s", level=logging.INFO)

    def peer_leaves(self, link: Link, connection: Channel) -> None:
        """The peer has said good-bye, or answered ours."""
        connection.close(b"" if self.parting else BYE_FRAME)
        link.channel = None
        self.lost(link, "it left the group", left=True)

    def give_up(self, link: Link, error: PeerError) -> None:
        """The peer takes too little of what we send."""
        self._journal.fault("given up", link.peer, error)
        self.lost(link, str(error), level=logging.WARNING)
