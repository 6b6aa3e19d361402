"""A connection under TLS: the certificate says who is there, and HELLO must say the same.

Both ends open a plain connection first and turn it into TLS themselves. A server of asyncio's own would shut
a bad certificate out without a word to us, and a refusal must be counted, logged and bounded like any other.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable

from whence.errors import CertificateError, FrameError, PeerError
from whence.live.tcp import WRITE_BUFFER_BYTES, Connection, OpenSession, Receive
from whence.live.tls import Keys, certified, handshake_problem
from whence.session.limits import Limits
from whence.session.links import Link

_LOOK_AGAIN_S = 3600.0  # the wall clock may be set; a timer does not see it


class SecureConnection(Connection):
    """As `Connection`, over TLS."""

    def __init__(
        self,
        open_session: OpenSession,
        receive: Receive,
        wake: Callable[[], None],
        limits: Limits,
        link: Link | None,
        keys: Keys,
    ) -> None:
        super().__init__(open_session, receive, wake, limits, link)
        self._keys = keys
        self._early = bytearray()  # what came with the last step of the TLS handshake
        self._securing: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None

    # From asyncio

    def data_received(self, data: bytes) -> None:
        session = self._session
        if session.peer is not None:
            super().data_received(data)
        elif session.deadline_s is not None:  # bounded: `_secure` goes on in the next turn of the loop
            self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        if isinstance(exc, ssl.SSLError) and self._session.link is not None:
            # Not what the peer wrote, or not now: TLS numbers and seals every record.
            reason = f"a TLS record was damaged, forged or replayed on its way ({exc.reason})"
            self._session.fail(FrameError("connection", reason, "Look at what lies between the two nodes"))
        super().connection_lost(exc)

    # TLS

    def _begin(self) -> None:
        self._securing = self._loop.create_task(self._secure())

    async def _secure(self) -> None:
        assert self._transport is not None
        session, server_side = self._session, not self._is_dialled
        timeout_s = self._limits.handshake_timeout_s
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
        if session.deadline_s is None:  # it was refused meanwhile, or we are leaving
            if secured is not None:
                secured.abort()
            return
        if secured is None or secured.get_extra_info("ssl_object") is None:
            session.fail(handshake_problem(problem))
            self.connection_lost(None)  # asyncio does not say so of a connection that was never made
            return
        self._transport = secured
        secured.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        try:
            peer = certified(secured.get_extra_info("peercert"))
        except PeerError as error:
            session.fail(error)
            return
        session.opened(peer)
        if session.peer is None:  # it was refused
            return
        self._await_expiry()
        early, self._early = bytes(self._early), bytearray()
        self.data_received(early)

    def _await_expiry(self) -> None:
        """A connection does not outlive the certificate that let it in."""
        peer = self._session.peer
        assert peer is not None
        left_s = peer.until_s - time.time()
        if left_s > 0:
            self._expiry = self._loop.call_later(min(left_s + 0.1, _LOOK_AGAIN_S), self._await_expiry)
            return
        self._session.fail(
            CertificateError("certificate", "its certificate has expired", "Make new ones with `whence keys`")
        )

    # Ends

    def close(self, last_words: bytes = b"") -> None:
        """As `Connection.close`; before TLS is there nothing can be said."""
        if self._session.peer is None and not self._is_tls():
            self.abort()
        else:
            super().close(last_words)

    def _is_tls(self) -> bool:
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    def _cut_short(self) -> PeerError:
        if self._session.peer is None:
            return handshake_problem(None)
        # In TLS 1.3 a client learns only after its handshake that the server will not have it.
        return PeerError(
            "connection",
            "it closed the connection without a word after the TLS handshake; "
            "perhaps it does not accept this node's certificate",
            "Give both keys of one authority that have not expired, and see the other's log",
        )
