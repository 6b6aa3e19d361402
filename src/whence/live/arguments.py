"""What `whence.join` is given, checked: every mistake is refused here, before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from whence.errors import KeysRequiredError, ParameterError
from whence.live.linkfaults import LinkFaults
from whence.live.settings import LogSettings
from whence.live.tls import Keys
from whence.protocols import registry
from whence.session.addresses import Address
from whence.session.datagrams import payload_room_bytes
from whence.session.limits import Limits

KEEPS = ("forever", "stable", "lifetime")
VOLATILE_BYTES = 64 << 20  # of a log in memory, unless `keep` says otherwise
_NAME_MAX = 255
_SECONDS_MAX = 10**9


def lifetime_of(protocol: str, lifetime: object, params: Mapping[str, Any]) -> dict[str, int]:
    """The group's lifetime as the cores call it."""
    if lifetime is None:
        return {}
    if not registry.lookup(protocol).lifetimes:
        others = [name for name in registry.names() if registry.lookup(name).lifetimes]
        raise ParameterError(
            f"lifetime {lifetime!r}",
            f"messages of protocol {protocol!r} have no lifetimes",
            f"Leave it out, or use a protocol with lifetimes: {', '.join(others)}",
        )
    if "lifetime_us" in params:
        raise ParameterError("lifetime", "lifetime_us says the same", "Give one of the two")
    return {"lifetime_us": lifetime_us("lifetime", lifetime)}


def choose_transport(wanted: object, protocol: str, faults: LinkFaults | None, members: int) -> str:
    """The transport to use: the one that was asked for, if the protocol can live with it."""
    made_for_datagrams = registry.lookup(protocol).datagrams
    if wanted is None:
        wanted = "udp" if made_for_datagrams else "tcp"
    if wanted == "udp" and not made_for_datagrams:
        others = [name for name in registry.names() if registry.lookup(name).datagrams]
        raise ParameterError(
            "transport 'udp'",
            f"protocol {protocol!r} needs links that lose nothing",
            f"Use 'tcp', or a protocol made for datagrams: {', '.join(others)}",
        )
    if wanted not in ("tcp", "udp"):
        raise ParameterError(f"transport {wanted!r}", "there is none of that name", "Use 'tcp' or 'udp'")
    if faults is not None:
        if wanted != "udp":
            raise ParameterError("faults", "only datagrams can be lost on purpose", "Use transport='udp'")
        faults.check()
    if wanted == "udp" and payload_room_bytes(members) <= 0:
        raise ParameterError(
            "transport 'udp'",
            f"what a message says of {members} members does not fit into one datagram",
            "Use 'tcp'",
        )
    return str(wanted)


def log_of(
    contacts: tuple[tuple[str | None, Address], ...],
    *,
    durable: bool,
    lifetime: object,
    discover: object,
    history: object,
    keep: object,
    stability: object,
) -> LogSettings:
    """What a node of a group that remembers was asked for besides."""
    for name, value in (("discover", discover), ("stability", stability)):
        if value is not None and not isinstance(value, bool):
            raise ParameterError(name, f"{value!r} is neither True nor False", "Leave it out")
    if history is None:
        history = "all"
    if not isinstance(history, bytes) and history not in ("all", "new"):
        raise ParameterError(
            "history", f"{history!r} is not 'all', 'new' or a cut", "Leave it out to get all that is retained"
        )
    if keep is None:
        keep = "lifetime" if lifetime is not None else "forever" if durable else VOLATILE_BYTES
    if keep not in KEEPS and (isinstance(keep, bool) or not isinstance(keep, int) or keep <= 0):
        raise ParameterError(
            "keep", f"{keep!r} is none of {', '.join(KEEPS)} or a number of bytes", "Leave it out"
        )
    if keep == "stable" and not stability:
        raise ParameterError("keep 'stable'", "nothing is ever stable here", "Say stability=True as well")
    if keep == "lifetime" and lifetime is None:
        raise ParameterError("keep 'lifetime'", "messages have none", "Give `lifetime` in seconds")
    assert isinstance(keep, str | int)
    return LogSettings(
        contacts,
        bool(discover),
        str(history) if not isinstance(history, bytes) else history,
        keep,
        bool(stability),
    )


def store_of(store: object, protocol: str, transport: str, limits: Limits, renews: bool) -> Path | None:
    """The file of a durable node, if the protocol and the rest can be durable."""
    if store is None:
        return None
    if not isinstance(store, str | Path) or not str(store):
        raise ParameterError("store", f"{store!r} is not a path", "Give the file for this node's store")
    if transport != "tcp" or renews:
        why = "members that are found dead are replaced" if renews else "its datagrams are not kept"
        raise ParameterError("store", f"under protocol {protocol!r} {why}", "Leave it out, or choose another")
    return Path(store)


def choose_keys(
    keys: str | Path | None,
    plaintext: object,
    transport: str,
    group: str,
    node: str,
    others: Mapping[str, Address],
) -> Keys | None:
    """The node's keys, or None for plain text: between machines only if that was asked for.

    `others` are all addresses that play a part, by what they are.
    """
    if not isinstance(plaintext, bool):
        raise ParameterError("plaintext", f"{plaintext!r} is neither True nor False", "Leave it out")
    if keys is not None and plaintext:
        raise ParameterError("plaintext", "keys were given as well", "Leave one of the two out")
    if keys is not None and transport == "udp":
        raise ParameterError(
            "keys",
            "datagrams cannot be secured (SECURITY.md says why)",
            "Use transport='tcp', or leave them out",
        )
    if keys is not None:
        return Keys(Path(keys), group, node)
    if not plaintext:
        demand_loopback(transport, group, others)
    return None


def demand_loopback(transport: str, group: str, addresses: Mapping[str, Address]) -> None:
    """Refuse to speak in the clear to where others may listen."""
    for what, address in addresses.items():
        if not address.is_loopback:
            fix = "Use transport='tcp' with keys, or say plaintext=True if you trust the network"
            if transport == "tcp":
                fix = (
                    f"Make keys with `whence keys init {group} --nodes ...` and give keys=DIR, "
                    "or say plaintext=True if you trust the network"
                )
            raise KeysRequiredError(
                f"{what} {address}", "it is not on this machine, and there are no keys", fix
            )


def check_name(what: str, name: object) -> None:
    """Refuse what cannot be the name of a group or of a node."""
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_MAX or not _is_text(name):
        raise ParameterError(
            f"{what} name", f"{name!r} is not a string of 1 to {_NAME_MAX} characters", "Choose a short name"
        )


def _is_text(name: str) -> bool:
    """Whether it can be sent: half of a pair of surrogates is no character."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _is_duration(seconds: object) -> TypeGuard[float]:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return False
    return 0 < seconds <= _SECONDS_MAX


def lifetime_us(what: str, seconds: object) -> int:
    """A lifetime that was given in seconds."""
    if not _is_duration(seconds):
        raise ParameterError(
            what,
            f"{seconds!r} is not a number of seconds above 0 and up to {_SECONDS_MAX:,}",
            "Say in how many seconds from its broadcast a message is worthless",
        )
    return max(1, round(seconds * 1_000_000))


def shuffle_period_s(seconds: object) -> float:
    """How often links are exchanged."""
    if not _is_duration(seconds):
        raise ParameterError("shuffle_s", f"{seconds!r} is not a positive number of seconds", "Use 60")
    return float(seconds)
