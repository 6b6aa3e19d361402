"""Addresses as people write them: "host:port" or "[::1]:port"."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

from whence.errors import ParameterError


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can be meant. No name is looked up: whose answer would that be?"""
        name = self.host.rstrip(".").lower()
        if name == "localhost" or name.endswith(".localhost"):  # RFC 6761, section 6.3
            return True
        try:
            return ip_address(name.partition("%")[0]).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, what: str) -> Address:
    """The address that `text` names; `what` says in an error whose address it is."""
    fix = "Write it as host:port, as in 127.0.0.1:7001 or [::1]:7001"
    if not isinstance(text, str):
        raise ParameterError(what, f"{text!r} is not a string", fix)
    host, colon, port_text = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ParameterError(what, f"{text!r} has too many colons for a host name", fix)
    if not colon or not host or any(character.isspace() for character in host):
        raise ParameterError(what, f"{text!r} has no host and port", fix)
    if not (port_text.isascii() and port_text.isdigit() and 0 < int(port_text) < 65536):
        raise ParameterError(what, f"{port_text!r} in {text!r} is not a port between 1 and 65535", fix)
    return Address(host, int(port_text))
