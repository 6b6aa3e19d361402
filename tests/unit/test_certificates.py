"""Whom a certificate names: one node of one group, in one way of writing, whatever the name is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whence
from support.living import loopback
from whence.errors import CertificateError
from whence.live import authority
from whence.live.tls import certified, names_of, uri_of


def with_uris(*uris: str) -> dict[str, Any]:
    return {
        "subjectAltName": tuple(("URI", uri) for uri in uris),
        "notAfter": "Nov 16 03:48:38 2036 GMT",
    }


@pytest.mark.parametrize(
    "uris",
    [
        (),
        ("whence://room",),
        ("whence://room/",),
        ("whence:///bob",),
        ("https://room/bob",),
        ("whence://room/alice", "whence://room/bob"),
        ("whence://room/b%6fb",),  # two ways to write one name
        ("whence://room/a/b",),
        ("whence://room/bob?x",),
        ("whence://room/%FF",),
    ],
)
def test_a_certificate_that_does_not_name_one_node_is_refused(uris: tuple[str, ...]) -> None:
    with pytest.raises(CertificateError, match="does not name one node"):
        certified(with_uris(*uris))


@pytest.mark.parametrize("name", ["bob", "ö/x", "a b", "%2F", "..", "ca", "日本", "a:b@c#d?e", "x" * 255])
def test_any_name_can_be_certified(tmp_path: Path, name: str) -> None:
    assert names_of(uri_of(name, name)) == (name, name)
    assert certified(with_uris("https://example.org/", uri_of("g", name)))[:2] == ("g", name)
    authority.make_group(tmp_path / "keys", name, [name])
    whence.join(name, node=name, peers=loopback([name]), protocol="vector", keys=tmp_path / "keys")


def test_nothing_is_certified_by_nothing() -> None:
    for nothing in (None, {}):
        with pytest.raises(CertificateError, match="no certificate"):
            certified(nothing)
