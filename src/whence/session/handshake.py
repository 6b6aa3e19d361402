"""What two nodes must agree on before they are linked, and what a peer may say about its past.

`Certified` is what TLS has proved of a peer: the rim finds it out, and HELLO must say the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from whence.core.message import NodeId
from whence.errors import (
    CertificateError,
    FrameError,
    FrameTooLargeError,
    HandshakeError,
    PeerError,
    ReplayError,
    VersionError,
)
from whence.session.links import FORGOTTEN, Link, LinkState
from whence.session.wire import EARLIER_MAX, MAGIC, VERSION, Hello, Refusal

_VALUE_MAX_BYTES = 1000  # what a HELLO may say of one parameter
_VALUE_START_BYTES = 200


class RestartedError(HandshakeError):
    """A node has come back without the state that its name stands for."""


class GoneError(HandshakeError):
    """The peer has left this node behind, and will not take it back."""


class RetiredError(HandshakeError):
    """A member has retired this life of the node: it may come back as another one."""


class RefusedForNowError(HandshakeError):
    """The peer refuses this node for a while, after repeated faults."""


# The codes of an ERROR frame, the most special type first.
_CODES: tuple[tuple[str, type[PeerError]], ...] = (
    ("restarted", RestartedError),
    ("gone", GoneError),
    ("later", RefusedForNowError),
    ("retired", RetiredError),
    ("handshake", HandshakeError),
    ("version", VersionError),
    ("too-large", FrameTooLargeError),
    ("frame", FrameError),
)


def error_code(error: PeerError) -> str:
    """What an ERROR frame calls this error."""
    return next((code for code, kind in _CODES if isinstance(error, kind)), "frame")


def refused(peer: str, refusal: Refusal) -> PeerError:
    """The typed error for an ERROR frame that a peer sent us."""
    kind = dict(_CODES).get(refusal.code, PeerError)
    reason = "".join(letter if letter.isprintable() else "?" for letter in refusal.reason)
    fix = "".join(letter if letter.isprintable() else "?" for letter in refusal.fix)
    return kind(f"{peer} refuses this node", reason, fix)


@dataclass
class OwnLives:
    """The lives of this node: the present one, and those before that its store knows, the newest last."""

    now: int
    earlier: list[int] = field(default_factory=list)

    def begin(self, life: int) -> None:
        """The present life is over, another one begins."""
        self.earlier = [*self.earlier, self.now][-EARLIER_MAX:]
        self.now = life


@dataclass(frozen=True)
class Identity:
    """What this node says of itself, and demands of others."""

    group: str
    protocol: str
    parameters: Mapping[str, str]  # each value as JSON text, so that any two can be compared
    members: tuple[NodeId, ...]
    max_payload_bytes: int
    node: NodeId
    session: int
    listed: bool = True  # False: there is no list, `members` is this node alone
    lives: OwnLives = field(default_factory=lambda: OwnLives(0))
    # What this node and one peer must agree on besides, each value as JSON text; it may change. None: the
    # members, all of them.
    agreement: Callable[[NodeId], Mapping[str, str]] | None = None

    def _parameters(self, peer: NodeId) -> dict[str, str]:
        return {**self.parameters, **({} if self.agreement is None else self.agreement(peer))}

    def session_to(self, link: Link) -> int:
        """This node's session towards the peer of `link`."""
        return link.session or self.session

    def hello(self, link: Link, *, returns: bool = False) -> Hello:
        """Return the HELLO for the peer of `link`.

        Without a list a link to ourselves stands for "whichever node listens there", and none is resumed.
        """
        return Hello(
            magic=MAGIC,
            version=VERSION,
            group=self.group,
            protocol=self.protocol,
            parameters=self._parameters(link.peer),
            members=list(self.members) if self.listed else [],
            max_payload_bytes=self.max_payload_bytes,
            node=self.node,
            to=link.peer,
            session=self.session_to(link),
            peer_session=link.peer_session if self.listed else 0,
            received=link.received if self.listed else 0,
            life=self.lives.now,
            earlier=list(self.lives.earlier),
            returns=returns,
        )

    def check(self, hello: Hello) -> None:
        """Refuse a node of another group, or of the same group configured otherwise."""
        what = f"node {hello.node!r}"
        is_unlisted = self.listed and hello.node not in self.members
        unlisted = HandshakeError(
            what,
            "it is not in the list of members, which is fixed",
            "Use protocol 'log' or 'prc', which know no list, or restart the group with a longer one",
        )
        is_our_group = (hello.group, hello.protocol) == (self.group, self.protocol)
        if is_unlisted and is_our_group and self.agreement is None:
            raise unlisted  # its list differs as well, since it names itself: no fix is to give it ours
        if differences := self._differences(hello):
            raise HandshakeError(
                what,
                f"it disagrees with node {self.node!r} about {'; '.join(differences)}",
                f"Give every {'member' if self.listed else 'process'} the same configuration",
            )
        if not self.listed and hello.node == self.node:
            raise HandshakeError(
                what, "another process takes part under this name", "Give every process its own name"
            )
        if hello.to != self.node and (self.listed or hello.to != hello.node):
            fix = "Check the addresses of the peers" if self.listed else "Look for it elsewhere"
            raise HandshakeError(what, f"it wants to speak to {hello.to!r}, and this is {self.node!r}", fix)
        if self.listed:
            if is_unlisted:
                raise unlisted
            if hello.node == self.node or hello.session <= FORGOTTEN or hello.life == 0:
                raise HandshakeError(what, "it cannot be a peer of this node", "Check the names of the nodes")
        elif "\0" in hello.node or not hello.session or hello.peer_session or hello.received:
            raise HandshakeError(what, "no correct process says such a HELLO", "Check the peer's release")

    def _differences(self, hello: Hello) -> list[str]:
        # The text travels: "here" would be wrong there.
        there, here = f"at {hello.node!r}", f"at {self.node!r}"
        found = [
            f"{what} ({theirs!r} {there}, {ours!r} {here})"
            for what, theirs, ours in (
                ("the group", hello.group, self.group),
                ("the protocol", hello.protocol, self.protocol),
                ("max_payload_bytes", hello.max_payload_bytes, self.max_payload_bytes),
            )
            if theirs != ours
        ]
        if hello.protocol == self.protocol:
            parameters = self._parameters(hello.node)
            for name in sorted({*hello.parameters, *parameters}):
                theirs, ours = hello.parameters.get(name, "unset"), parameters.get(name, "unset")
                if theirs != ours:
                    found.append(f"parameter {name!r} ({theirs} {there}, {ours} {here})")
        if not self.listed:
            return [*found, "whether there is a list of members"] if hello.members else found
        if self.agreement is not None:
            return found
        only_there = sorted(set(hello.members) - set(self.members))
        only_here = sorted(set(self.members) - set(hello.members))
        if only_there:
            found.append(f"the members ({_some(only_there)} only {there})")
        if only_here:
            found.append(f"the members ({_some(only_here)} only {here})")
        return found


class Certified(NamedTuple):
    """The node that a certificate names, and until when it is valid."""

    group: str
    node: NodeId
    until_s: float  # wall clock


def check_certificate(identity: Identity, peer: Certified, dialled: Link | None) -> None:
    """Refuse a certificate of another group or node than we expect, before we say who we are."""
    if peer.group != identity.group:
        raise CertificateError(
            "certificate",
            f"its certificate is for group {peer.group!r}, and this is {identity.group!r}",
            "Give it keys of this group",
        )
    # A link to ourselves stands for "whichever node listens there": see `hello`.
    if dialled is not None and dialled.peer not in (peer.node, identity.node):
        raise CertificateError(
            f"address {dialled.address}",
            f"{dialled.peer!r} was dialled, and its certificate is for {peer.node!r}",
            "Check the addresses of the peers",
        )


def check_claim(peer: Certified, hello: Hello) -> None:
    """Refuse a node that is not the one that its certificate names."""
    if (hello.group, hello.node) != peer[:2]:
        raise CertificateError(
            "certificate",
            f"it says that it is {hello.node!r} of group {hello.group!r}, and its certificate "
            f"is for {peer.node!r} of {peer.group!r}",
            "Give every node its own keys",
        )


def replayed(node: NodeId) -> ReplayError:
    """The error for a peer that repeats what was said on another connection."""
    return ReplayError(
        f"node {node!r}",
        "it does not answer what it was asked on this connection: it repeats another one",
        "Look for who records and replays the group's traffic, and use keys",
    )


def _some(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:5]))
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def check_session(link: Link, peer_session: int) -> None:
    """Refuse a peer that is not the one we know, or that is abandoned: numbers belong to one session."""
    if link.peer_session not in (0, peer_session):
        if link.channel is not None:
            happened = "another process takes part under this name"
        elif link.state is LinkState.LEFT:
            happened = "it left the group, and its numbering would begin again"
        else:
            happened = "it restarted without its state, and its numbering would begin again"
        raise RestartedError(
            f"node {link.peer!r}", happened, "Restart the group, or add the node under a new name"
        )
    if link.state is LinkState.GIVEN_UP:
        raise GoneError(f"node {link.peer!r}", "this node has given it up", "Restart the group")


def for_stranger(error: PeerError) -> PeerError:
    """What is told to somebody who has not proved to be a member: nothing of this node or its group."""
    if isinstance(error, HandshakeError):
        return type(error)(
            error.what, "this connection is refused", "See the log of the node that was called"
        )
    return error


def canonical_parameters(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Each value as JSON text with sorted keys; of a long one (domains of many servers) start and hash."""
    return {name: _text(value) for name, value in parameters.items()}


def _text(value: object) -> str:
    text = msgspec.json.encode(value, order="deterministic")
    if len(text) <= _VALUE_MAX_BYTES:
        return text.decode()
    start = text[:_VALUE_START_BYTES].decode(errors="replace")
    return f"{start}... (sha256 {hashlib.sha256(text).hexdigest()})"
