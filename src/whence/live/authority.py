"""The group's authority: makes its own certificate, and one for each node. Needs the extra `tls`.

ECDSA over P-256, which every OpenSSL with TLS 1.3 can do. Files are written once and never over another: a
key that is gone is gone, and a group whose authority was replaced by mistake falls apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from whence.core.message import NodeId
from whence.errors import KeysError, ParameterError, missing_extra, writing
from whence.live.arguments import check_name
from whence.live.tls import AUTHORITY, key_files, names_of, uri_of

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
except ModuleNotFoundError as error:
    raise missing_extra("whence keys", error.name or "cryptography", "tls") from error

NODE_DAYS = 365
AUTHORITY_DAYS = 3650
DAYS_MAX = 36_500
_EARLIER = timedelta(hours=1)  # the nodes' clocks may be behind ours
_NAME_SHOWN = 64  # bytes: X.509 allows no longer common name; what counts is the URI


@dataclass(frozen=True)
class Shown:
    """What `whence keys show` says of one certificate."""

    file: str
    node: NodeId | None  # None: the authority
    group: str
    since: datetime
    until: datetime
    fingerprint: str  # SHA-256
    has_key: bool
    problem: str | None

    @property
    def days_left(self) -> int:
        """Whole days until it expires; negative afterwards."""
        return (self.until - datetime.now(UTC)).days

    def document(self) -> dict[str, object]:
        """The same for programs."""
        return {
            "file": self.file,
            "node": self.node,
            "group": self.group,
            "since": self.since.isoformat(),
            "until": self.until.isoformat(),
            "days_left": self.days_left,
            "sha256": self.fingerprint,
            "key_here": self.has_key,
            "problem": self.problem,
        }


def make_group(folder: Path, group: str, nodes: Sequence[NodeId], days: int = NODE_DAYS) -> list[Path]:
    """A new authority, and keys for `nodes`; returns the files."""
    check_name("group", group)
    _check(nodes, days)
    ca_pem, ca_key = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}.key"
    _refuse_existing([ca_pem, ca_key, *_files(folder, nodes)])
    key = ec.generate_private_key(ec.SECP256R1())
    lifetime = timedelta(days=max(days, AUTHORITY_DAYS))
    certificate = certify(group, None, key.public_key(), key, None, lifetime)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    _write_pair(ca_pem, ca_key, certificate, key)
    return [ca_pem, ca_key, *add_nodes(folder, nodes, days)]


def add_nodes(folder: Path, nodes: Sequence[NodeId], days: int = NODE_DAYS) -> list[Path]:
    """Keys for further nodes, by the authority of `folder`; returns the files."""
    _check(nodes, days)
    _refuse_existing(_files(folder, nodes))
    group, authority, authority_key = _authority(folder)
    lifetime = min(timedelta(days=days), authority.not_valid_after_utc - datetime.now(UTC))
    if lifetime <= timedelta():
        raise KeysError(
            f"{folder / AUTHORITY}.pem", "the authority has expired", "Make a new one in another folder"
        )
    for node in nodes:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = certify(group, node, key.public_key(), authority_key, authority, lifetime)
        files = key_files(folder, node)
        _write_pair(files.certificate, files.key, certificate, key)
    return _files(folder, nodes)


def certify(
    group: str,
    node: NodeId | None,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    lifetime: timedelta,
) -> x509.Certificate:
    """A certificate for `node`, or for the authority itself if that is None."""
    shown = f"whence authority of {group}" if node is None else node
    shown = shown.encode()[:_NAME_SHOWN].decode(errors="ignore")
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, shown)])
    now = datetime.now(UTC)
    is_authority = node is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + lifetime)
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(_usage(is_authority), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri_of(group, node))]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if not is_authority:
        both = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def show(folder: Path) -> list[Shown]:
    """Every certificate of a folder, the authority first."""
    authorities = _read_certificates(folder / f"{AUTHORITY}.pem")
    shown = [_shown(folder / f"{AUTHORITY}.pem", each, authorities) for each in authorities]
    for path in sorted(folder.glob("*.pem")):
        if path.stem != AUTHORITY:
            shown += [_shown(path, each, authorities) for each in _read_certificates(path)[:1]]
    return shown


def _shown(path: Path, certificate: x509.Certificate, authorities: list[x509.Certificate]) -> Shown:
    group, node = _named(path, certificate)
    now = datetime.now(UTC)
    problem = None
    if not any(_is_signed(certificate, authority) for authority in authorities):
        problem = "made by another authority"
    elif certificate.not_valid_after_utc <= now:
        problem = "expired"
    elif certificate.not_valid_before_utc > now:
        problem = "not valid yet"
    return Shown(
        file=path.name,
        node=node,
        group=group,
        since=certificate.not_valid_before_utc,
        until=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(":"),
        has_key=path.with_suffix(".key").exists(),
        problem=problem,
    )


def _is_signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _named(path: Path, certificate: x509.Certificate) -> tuple[str, NodeId | None]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = found.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, ValueError):
        uris = []
    for uri in uris:
        names = names_of(uri)
        if names is not None:
            return names
        # The authority's has no node: give it one, so that its group is read in the same way.
        named = names_of(f"{uri}/{AUTHORITY}")
        if named is not None:
            return named[0], None
    raise KeysError(str(path), "it names no group", "Take files made by `whence keys`")


def _authority(folder: Path) -> tuple[str, x509.Certificate, ec.EllipticCurvePrivateKey]:
    path = folder / f"{AUTHORITY}.key"
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise KeysError(
            str(path), error.strerror or str(error), "Use the folder that `whence keys init` made"
        ) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeysError(str(path), f"it is no key that can be used ({error})", "Restore it") from error
    for certificate in _read_certificates(folder / f"{AUTHORITY}.pem"):
        if isinstance(key, ec.EllipticCurvePrivateKey) and certificate.public_key() == key.public_key():
            return _named(path, certificate)[0], certificate, key
    raise KeysError(str(path), f"it is not the key of {AUTHORITY}.pem", "Restore the two together")


def _read_certificates(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise KeysError(
            str(path), error.strerror or str(error), "Make keys with `whence keys init`"
        ) from error
    except ValueError as error:
        raise KeysError(str(path), f"it is no certificate ({error})", "Restore it") from error


def _check(nodes: Sequence[NodeId], days: int) -> None:
    for node in nodes:
        check_name("node", node)
    twice = sorted({node for node in nodes if nodes.count(node) > 1})
    if twice:
        raise ParameterError(f"nodes {', '.join(twice)}", "they are named twice", "Name each once")
    if not 0 < days <= DAYS_MAX:
        raise ParameterError("days", f"{days} is not from 1 to {DAYS_MAX}", f"Use {NODE_DAYS}")


def _files(folder: Path, nodes: Iterable[NodeId]) -> list[Path]:
    return [path for node in nodes for path in key_files(folder, node)[1:]]


def _refuse_existing(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.exists():
            raise KeysError(
                str(path),
                "it is there already, and keys are never overwritten",
                "Move it away first, or use another folder",
            )


def _write_pair(pem: Path, key_path: Path, certificate: x509.Certificate, key: Any) -> None:
    """The key first: a certificate without its key would look complete."""
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(key_path, secret, 0o600)
    _write(pem, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _write(path: Path, data: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        raise KeysError(str(path), error.strerror or str(error), "Check the folder and its rights") from error
