"""Keys of a node, and who a certificate names. The connections themselves are `tcp.py`'s.

A folder of keys has `ca.pem` (the group's authority; several may stand one after the other while they are
exchanged), `NODE.pem` and `NODE.key`. A certificate names its node as a URI, `whence://GROUP/NODE`, both
parts percent-encoded: a name that no authority for web sites gives to anybody.

TLS 1.3 only, both sides show certificates, and no session is resumed: every connection proves anew who is
there.
"""

from __future__ import annotations

import hashlib
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from whence.core.message import NodeId
from whence.errors import CertificateError, HandshakeError, KeysError, PeerError
from whence.session.handshake import Certified
from whence.session.journal import log

AUTHORITY = "ca"
_SCHEME = "whence"
_STEM_MAX = 150


class KeyFiles(NamedTuple):
    """Where the keys of one node are."""

    authority: Path
    certificate: Path
    key: Path


def key_files(folder: Path, node: NodeId) -> KeyFiles:
    """The files of `node`: its name percent-encoded, so that any name will do."""
    stem = quote(node, safe=" ")
    if stem.lower() == AUTHORITY:  # the authority's own files; not even by another case of letters
        stem = f"%{ord(stem[0]):02X}{stem[1:]}"
    if len(stem) > _STEM_MAX:  # no file system takes a name of any length
        stem = f"{stem[:_STEM_MAX]}-{hashlib.sha256(node.encode()).hexdigest()[:32]}"
    return KeyFiles(folder / f"{AUTHORITY}.pem", folder / f"{stem}.pem", folder / f"{stem}.key")


def uri_of(group: str, node: NodeId | None = None) -> str:
    """How a certificate names a node, or the group's authority."""
    path = "" if node is None else f"/{quote(node, safe='')}"
    return f"{_SCHEME}://{quote(group, safe='')}{path}"


def names_of(uri: str) -> tuple[str, NodeId] | None:
    """The group and the node that a URI names, or None if it names no node."""
    scheme, found, rest = uri.partition("://")
    group, slash, node = rest.partition("/")
    if scheme != _SCHEME or not found or not slash or not group or not node:
        return None
    names = unquote(group, errors="replace"), unquote(node, errors="replace")
    # One way to write a name only: two spellings of one node must not pass for two, nor the reverse.
    return names if uri_of(*names) == uri else None


def certified(certificate: Mapping[str, Any] | None) -> Certified:
    """Whom a certificate names, as the `ssl` module has decoded and verified it."""
    if not certificate:
        raise CertificateError("peer", "it shows no certificate", "Give it keys of this group")
    uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    names = [found for found in map(names_of, uris) if found is not None]
    if len(names) != 1:
        raise CertificateError(
            "peer", "its certificate does not name one node of a group", "Make it with `whence keys`"
        )
    [(group, node)] = names
    return Certified(group, node, ssl.cert_time_to_seconds(str(certificate["notAfter"])))


class Keys:
    """The keys of this node, read again when their files have changed."""

    def __init__(self, folder: Path, group: str, node: NodeId) -> None:
        self.folder = folder
        self.group = group
        self.node = node
        self._files = key_files(folder, node)
        self._stamp = self._look()
        self._server, self._client = self._load()

    def context(self, *, server_side: bool) -> ssl.SSLContext:
        """The settings for the next connection. New keys count from there on, without a restart."""
        try:
            stamp = self._look()
            if stamp != self._stamp:
                contexts = self._load()
                self._stamp = stamp
                self._server, self._client = contexts
                log.info("%s: new keys are in use from now on", self.node)
        except KeysError as error:  # half written, perhaps: the keys that we have are still good
            log.warning("%s: its new keys are not used: %s", self.node, error)
        return self._server if server_side else self._client

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        """What changes when a file is replaced."""
        found = []
        for path in self._files:
            try:
                status = path.stat()
            except OSError as error:
                raise _missing(self, path, error) from error
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)

    def _load(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        server, client = self._make(ssl.PROTOCOL_TLS_SERVER), self._make(ssl.PROTOCOL_TLS_CLIENT)
        shown = certified(_shown_to_itself(self, server, client))
        if (shown.group, shown.node) != (self.group, self.node):
            raise KeysError(
                str(self._files.certificate),
                f"it is for node {shown.node!r} of group {shown.group!r}, "
                f"and this is {self.node!r} of {self.group!r}",
                "Take the folder of this group, and the files of this node",
            )
        if self._files.key.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            log.warning("%s: others on this machine can read it; use chmod 600", self._files.key)
        return server, client

    def _make(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # a node is its name, wherever it listens: see `certified`
        context.verify_mode = ssl.CERT_REQUIRED
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0
        files = self._files
        try:
            context.load_verify_locations(files.authority)
        except (OSError, ValueError) as error:  # SSLError is an OSError
            raise _unreadable(files.authority, error) from error
        try:
            context.load_cert_chain(files.certificate, files.key, password=lambda: _no_password(files.key))
        except KeysError:
            raise
        except (OSError, ValueError) as error:
            raise _unreadable(files.certificate, error, files.key) from error
        return context


def _shown_to_itself(keys: Keys, server: ssl.SSLContext, client: ssl.SSLContext) -> Mapping[str, Any] | None:
    """Shake hands with ourselves: what is wrong with our keys must be found here, and not by every peer."""
    ways = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(ways[0], ways[1], server_side=False),
        server.wrap_bio(ways[1], ways[0], server_side=True),
    ]
    try:
        for _ in range(3):  # ClientHello; the server's flight; the client's certificate
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLCertVerificationError as error:
        fix = "Make new ones with `whence keys add`, or take the ca.pem of this group"
        raise KeysError(str(keys.folder), f"{keys.node!r}: {error.verify_message}", fix) from error
    except ssl.SSLError as error:
        raise KeysError(str(keys.folder), str(error), "Make new keys with `whence keys`") from error
    return ends[1].getpeercert()


def _missing(keys: Keys, path: Path, error: OSError) -> KeysError:
    fix = (
        f"Make it with: whence keys add {keys.folder} {keys.node}"
        if (keys.folder / f"{AUTHORITY}.key").exists()
        else "Copy ca.pem, and this node's .pem and .key, from where `whence keys init` was run"
    )
    return KeysError(str(path), error.strerror or str(error), fix)


def _unreadable(path: Path, error: Exception, key: Path | None = None) -> KeysError:
    if isinstance(error, PermissionError):
        reason = "it, or its key, may not be read by this user"
    elif isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        reason = f"{key} is the key of another certificate"
    else:
        reason = f"it is not a PEM file that can be used ({error})"
    return KeysError(str(path), reason, "Copy it again, or make a new one with `whence keys`")


def _no_password(path: Path) -> str:
    """Otherwise OpenSSL would ask for it on the terminal, with the event loop waiting."""
    raise KeysError(
        str(path), "it is encrypted", "Give the node a key without a password, readable by it alone"
    )


_PLAIN = {
    "WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "UNSUPPORTED_PROTOCOL", "BAD_PACKET",
    "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "BAD_RECORD_TYPE", "UNEXPECTED_MESSAGE",
    "BAD_PROTOCOL_VERSION_NUMBER",
}  # fmt: skip


def handshake_problem(error: BaseException | None) -> PeerError:
    """Why a TLS handshake came to nothing."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return CertificateError(
            "TLS handshake",
            f"its certificate is refused: {error.verify_message}",
            "Give it keys of this group",
        )
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return CertificateError("TLS handshake", "it shows no certificate", "Give it keys of this group")
        if "ALERT" in reason:
            return CertificateError(
                "TLS handshake",
                f"it refuses this node's certificate ({reason})",
                "Give both keys of one authority",
            )
        said = "it does not speak TLS 1.3" if reason in _PLAIN else "the TLS handshake failed"
        return HandshakeError(
            "TLS handshake", f"{said} ({reason})", "Give every member keys, or plaintext to all"
        )
    return PeerError(  # no more than that is known: it may just have stopped
        "TLS handshake",
        "the connection ended in the middle of the TLS handshake",
        "Give both keys of one authority, and see the other's log",
    )
