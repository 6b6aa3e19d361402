"""A connection under TLS: the certificate says who is there, and HELLO must say the same.

Both ends open a plain connection first and turn it into TLS themselves. A server of asyncio's own would shut
a bad certificate out without a word to us, and a refusal must be counted, logged and bounded like any other.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import TYPE_CHECKING

from whence.errors import CertificateError, FrameError, PeerError
from whence.live.connection import WRITE_BUFFER_BYTES, Connection
from whence.live.tls import Certified, Keys, certified, handshake_problem
from whence.session.links import Link
from whence.session.wire import Hello

if TYPE_CHECKING:
    from whence.live.node import Node

_LOOK_AGAIN_S = 3600.0  # the wall clock may be set; a timer does not see it


class SecureConnection(Connection):
    """As `Connection`, over TLS."""

    def __init__(self, node: Node, link: Link | None, keys: Keys) -> None:
        super().__init__(node, link)
        self._keys = keys
        self._peer: Certified | None = None  # set once the certificate has passed
        self._early = bytearray()  # what came with the last step of the TLS handshake
        self._securing: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None

    # From asyncio

    def data_received(self, data: bytes) -> None:
        if self._peer is not None:
            super().data_received(data)
        elif self._deadline is not None:  # bounded: `_secure` goes on in the next turn of the loop
            self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        if isinstance(exc, ssl.SSLError) and self._link is not None:
            # Not what the peer wrote, or not now: TLS numbers and seals every record.
            reason = f"a TLS record was damaged, forged or replayed on its way ({exc.reason})"
            self._fail(FrameError("connection", reason, "Look at what lies between the two nodes"))
        super().connection_lost(exc)

    # TLS

    def _begin(self) -> None:
        """The plain connection is there, and nothing has been said."""
        self._securing = self._loop.create_task(self._secure())

    async def _secure(self) -> None:
        assert self._transport is not None
        server_side = self._dialled is None
        timeout_s = self._node.limits.handshake_timeout_s
        problem: BaseException | None = None
        secured: asyncio.Transport | None = None
        try:
            secured = await self._loop.start_tls(
                self._transport,
                self,
                self._keys.context(server_side=server_side),
                server_side=server_side,
                ssl_handshake_timeout=timeout_s,
                ssl_shutdown_timeout=timeout_s,
            )
        except OSError as error:  # an SSLError is one
            problem = error
        if self._deadline is None:  # it was refused meanwhile, or we are leaving
            if secured is not None:
                secured.abort()
            return
        if secured is None or secured.get_extra_info("ssl_object") is None:
            self._fail(handshake_problem(problem))
            self.connection_lost(None)  # asyncio does not say so of a connection that was never made
            return
        self._transport = secured
        secured.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        try:
            self._peer = self._admitted(certified(secured.get_extra_info("peercert")))
        except PeerError as error:
            self._fail(error)
            return
        self._await_expiry()
        super()._begin()
        early, self._early = bytes(self._early), bytearray()
        self.data_received(early)

    def _admitted(self, peer: Certified) -> Certified:
        """Refuse a certificate of another group or node than we expect, before we say who we are."""
        identity = self._node.identity
        if peer.group != identity.group:
            raise CertificateError(
                "certificate",
                f"its certificate is for group {peer.group!r}, and this is {identity.group!r}",
                "Give it keys of this group",
            )
        # A link to ourselves stands for "whoever listens there": see swarm_peering.py.
        dialled = self._dialled
        if dialled is not None and dialled.peer not in (peer.node, identity.node):
            raise CertificateError(
                f"address {dialled.address}",
                f"{dialled.peer!r} was dialled, and its certificate is for {peer.node!r}",
                "Check the addresses of the peers",
            )
        return peer

    def _vouch(self, hello: Hello) -> None:
        assert self._peer is not None
        if (hello.group, hello.node) != self._peer[:2]:
            raise CertificateError(
                "certificate",
                f"it says that it is {hello.node!r} of group {hello.group!r}, and its certificate "
                f"is for {self._peer.node!r} of {self._peer.group!r}",
                "Give every node its own keys",
            )

    def _await_expiry(self) -> None:
        """A connection does not outlive the certificate that let it in."""
        assert self._peer is not None
        left_s = self._peer.until_s - time.time()
        if left_s > 0:
            self._expiry = self._loop.call_later(min(left_s + 0.1, _LOOK_AGAIN_S), self._await_expiry)
            return
        self._fail(
            CertificateError("certificate", "its certificate has expired", "Make new ones with `whence keys`")
        )

    # Ends

    def close(self, last_words: bytes = b"") -> None:
        """As `Connection.close`; before TLS is there nothing can be said."""
        if self._peer is None and not self._is_tls():
            self.abort()
        else:
            super().close(last_words)

    def _is_tls(self) -> bool:
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    def _cut_short(self) -> PeerError:
        if self._peer is None:
            return handshake_problem(None)
        # In TLS 1.3 a client learns only after its handshake that the server will not have it.
        return PeerError(
            "connection",
            "it closed the connection without a word after the TLS handshake; "
            "perhaps it does not accept this node's certificate",
            "Give both keys of one authority that have not expired, and see the other's log",
        )


def connection_to(node: Node, link: Link | None) -> Connection:
    """A new connection, dialled for `link` or accepted, secured if the node has keys."""
    keys = node.settings.keys
    return Connection(node, link) if keys is None else SecureConnection(node, link, keys)
