"""Keys for tests: right ones, and every kind of wrong one."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from whence.live import authority
from whence.live.tls import Keys, key_files


def keys_for(folder: Path, *nodes: str, group: str = "room") -> Path:
    """A new authority with keys for `nodes`."""
    authority.make_group(folder, group, nodes)
    return folder


def issue(
    folder: Path, file: str, group: str, node: str, lifetime: timedelta = timedelta(days=1)
) -> tuple[Path, Path]:
    """A certificate by the authority of `folder` that names whatever it is told, and its key."""
    _, ca, ca_key = authority._authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    files = key_files(folder, file)
    for path in files[1:]:
        path.unlink(missing_ok=True)
    certificate = authority.certify(group, node, key.public_key(), ca_key, ca, lifetime)
    authority._write_pair(files.certificate, files.key, certificate, key)
    return files.certificate, files.key


def client_context(folder: Path, node: str, trusts: Path | None = None) -> ssl.SSLContext:
    """What a node of `folder` dials with, made without our own checks: it may be wrong in any way."""
    files = key_files(folder, node)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations((trusts or folder) / "ca.pem")
    context.load_cert_chain(files.certificate, files.key)
    return context


def make_keys(folder: Path, node: str, group: str = "room") -> Keys:
    """As `join` loads them."""
    return Keys(folder, group, node)
