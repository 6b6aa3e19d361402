"""One connection, without I/O: bytes in; packets, and through its channel bytes, out.

A connection that was dialled says HELLO and repeats what it is asked; one that was accepted hears HELLO, asks
for a sign of life, and says HELLO when that has come:

    dialler     HELLO (nonce n) ->              <- CHALLENGE c          ANSWER c ->     <- HELLO (nonce n)

Both nonces are drawn for the connection, so that neither side can be met by a recording. Whether the peer is
let in is `admission.py`'s judgement, and what becomes of the link is `peering.py`'s.
"""

from __future__ import annotations

import msgspec

from whence.errors import CertificateError, FrameError, HandshakeError, PeerError
from whence.session.handshake import Certified, check_certificate, check_claim, replayed
from whence.session.links import Channel, Link
from whence.session.peering import Peering
from whence.session.wire import (
    Ack,
    Answer,
    Bye,
    Challenge,
    ClockNews,
    FrameReader,
    Greetings,
    Hello,
    Known,
    MembersNews,
    Packets,
    Refusal,
    RoomNews,
    answer_frame,
    challenge_frame,
    hello_frame,
)


class Session:
    """A connection before and after its handshake. With `dialled` it was made here, otherwise accepted.

    The rim calls `begin` when the connection is there, `opened` when it can be spoken on (under TLS that is
    later), `feed` and then `obey` with what arrives, `timer` at `deadline_s`, `closed` when it has ended by
    itself, and `ended` when its channel is closed from this side.
    """

    def __init__(
        self, peering: Peering, channel: Channel, reader: FrameReader, dialled: Link | None, nonce: int
    ) -> None:
        self.channel = channel
        self.reader = reader
        self.link: Link | None = None  # set once the handshake has passed
        self.source = dialled.peer if dialled else "a stranger"
        self.has_spoken = False  # its peer, before the end of the handshake
        self.deadline_s: float | None = None  # of the handshake, while it lasts
        self.peer: Certified | None = None  # what TLS has proved; in plain text no one can tell
        self._peering = peering
        self._dialled = dialled
        self._nonce = nonce
        self._claim: Hello | None = None  # of an accepted connection, until our challenge is answered
        self._is_over = False

    # The connection

    def begin(self, host: str | None) -> None:
        """The connection is there, from `host` if it was accepted."""
        peering = self._peering
        if self._dialled is None:
            if host is not None:
                self.source = f"stranger at {host}"
            peering.admit(self)
        self.deadline_s = peering.now_s() + peering.limits.handshake_timeout_s

    def opened(self, peer: Certified | None = None) -> None:
        """The connection can be spoken on, with the `peer` that TLS has proved."""
        if peer is not None:
            try:
                check_certificate(self._peering.identity, peer, self._dialled)
            except PeerError as error:
                self.fail(error)
                return
            self.peer = peer
        if self._dialled is not None:
            self._say_hello(self._dialled, self._nonce)

    def timer(self) -> None:
        """The handshake has taken too long."""
        if self.deadline_s is not None:
            limit_s = self._peering.limits.handshake_timeout_s
            self.fail(
                HandshakeError(
                    "connection",
                    f"no complete HELLO within {limit_s} s",
                    "Check that the peer is a Whence node, and not overloaded",
                )
            )

    def closed(self, cut_short: PeerError) -> None:
        """The connection has ended by itself; in the middle of a handshake that we began, `cut_short`."""
        if self.deadline_s is not None and self._dialled is not None:
            self._dialled.last_error = cut_short
        link = self.link
        self.ended()
        if link is not None:
            self._peering.disconnected(link)

    def ended(self) -> None:
        """The connection is closed: it serves no link, and nothing that arrives counts."""
        self._is_over = True
        self.link = None
        self._end_handshake()

    def fail(self, error: PeerError) -> None:
        """The peer broke the rules: say so, count it, close."""
        link = self.link
        self._peering.fault(
            self.channel,
            self.source,
            link or self._dialled,
            error,
            established=link is not None,
            certified=self.peer is not None and not isinstance(error, CertificateError),
        )

    # Bytes

    def feed(self, data: bytes) -> Packets:
        """The packets that `data` completes; `obey` follows, once they are taken."""
        link = self.link
        if link is None:
            return [] if self._is_over else self._greet(data)
        peering = self._peering
        link.heard_s = peering.now_s()
        peering.bytes_received += len(data)
        return self.reader.feed(data)

    def obey(self) -> None:
        """Do what the frames beside DATA say, and end the connection of a peer that broke the format."""
        reader, peering = self.reader, self._peering
        control, reader.control = reader.control, []
        for item in control:
            link = self.link
            if link is None:
                return
            if isinstance(item, Ack):
                try:
                    link.out.acknowledge(item.received)
                except FrameError as error:
                    self.fail(error)
                    return
                peering.owner.acknowledged()
            elif isinstance(item, Bye):
                peering.peer_leaves(link, self.channel)
            elif isinstance(item, Known):
                if not peering.admission.introduces:
                    self.fail(FrameError("KNOWN frame", "no one asked for it", "Check the peer's release"))
                    return
                peering.owner.introduced(link, item)
            elif isinstance(item, MembersNews):
                peering.owner.members_told(link, item)
            elif isinstance(item, ClockNews):
                peering.owner.clock_told(link, item)
            elif isinstance(item, RoomNews):
                peering.owner.room_told(link, item)
            elif isinstance(item, Refusal):
                peering.refused_by_peer(link, self.source, item)
                self.channel.close()
        if reader.error is not None and self.link is not None:
            self.fail(reader.error)

    # Handshake

    def _greet(self, data: bytes) -> Packets:
        self.has_spoken = True
        try:
            link = None
            while link is None:
                greeting = self.reader.greeting(data)
                if greeting is None:
                    return []
                link, data = self._greeted(greeting), b""
                if link is None and self._is_over:  # all has been said that there was to say
                    return []
        except PeerError as error:
            self.fail(error)
            return []
        self._end_handshake()
        self.link = link
        self.source = link.peer
        self._peering.owner.wake()  # what the peer has not received is pending again
        return self.feed(b"")  # frames may have come in the same segment as the HELLO

    def _greeted(self, greeting: Greetings) -> Link | None:
        """One step of the handshake; returns the link once it has passed."""
        peering, dialled, claim = self._peering, self._dialled, self._claim
        if isinstance(greeting, Refusal):
            peering.refused_by_peer(dialled, self.source, greeting)
            self.channel.close()
        elif isinstance(greeting, Hello):
            if self.peer is not None:
                check_claim(self.peer, greeting)
            if dialled is not None:
                if greeting.nonce != self._nonce:
                    raise replayed(greeting.node)
                return peering.greeted(self.channel, dialled, greeting, self._reply)
            if claim is not None:
                raise FrameError("HELLO frame", "it is the second one", "Check the peer's release")
            self.source = f"{greeting.node!r} at {self.source.removeprefix('stranger at ')}"
            peering.check(greeting)  # a node that has no business here is not asked for anything
            self._claim = greeting
            self.channel.write(challenge_frame(self._nonce))
        elif isinstance(greeting, Challenge) and dialled is not None:
            self.channel.write(answer_frame(greeting.nonce))
        elif isinstance(greeting, Answer) and claim is not None:
            if greeting.nonce != self._nonce:
                raise replayed(claim.node)
            return peering.greeted(self.channel, None, claim, self._reply)
        else:
            raise FrameError("first frame", "it is not HELLO", "Check that the peer is a Whence node")
        return None

    def _reply(self, link: Link, returns: bool) -> None:
        """Answer an accepted HELLO with ours."""
        self._say_hello(link, 0 if self._claim is None else self._claim.nonce, returns=returns)

    def _say_hello(self, link: Link, nonce: int, *, returns: bool = False) -> None:
        link.begin()
        hello = self._peering.identity.hello(link, returns=returns)
        self.channel.write(hello_frame(msgspec.structs.replace(hello, nonce=nonce)))

    def _end_handshake(self) -> None:
        if self.deadline_s is not None:
            self.deadline_s = None
            self._peering.settled(self)
