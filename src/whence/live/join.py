"""`whence.join`: what the caller asks for, checked, becomes a node and its group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from whence.errors import KeysRequiredError, MisuseError, ParameterError, missing_extra
from whence.live.addresses import Address, parse_address
from whence.live.durable import DurableNode
from whence.live.dynamic import DynamicNode
from whence.live.group import Group
from whence.live.linkfaults import LinkFaults
from whence.live.node import Node
from whence.live.settings import Settings, SwarmSettings, swarm_settings
from whence.live.tls import Keys
from whence.protocols import registry
from whence.session.datagrams import payload_room_bytes
from whence.session.limits import Limits

if TYPE_CHECKING:
    from whence.trace.writer import TraceWriter


# What `whence.join` is given, checked: every mistake is refused here, before anything is opened.


_NAME_MAX = 255
_DEADLINE_MAX_S = 10**9


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


def store_of(store: object, protocol: str, transport: str, limits: Limits, renews: bool) -> Path | None:
    """The file of a durable node, if the protocol and the rest can be durable."""
    if store is None:
        return None
    if not isinstance(store, str | Path) or not str(store):
        raise ParameterError("store", f"{store!r} is not a path", "Give the file for this node's store")
    if transport != "tcp" or renews:
        why = "members that are found dead are replaced" if renews else "its datagrams are not kept"
        raise ParameterError("store", f"under protocol {protocol!r} {why}", "Leave it out, or choose another")
    if limits.give_up_s is not None:
        raise ParameterError(
            "limit 'give_up_s'", "a durable group gives nobody up", "Remove it, or leave `store` out"
        )
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
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_MAX:
        raise ParameterError(
            f"{what} name", f"{name!r} is not a string of 1 to {_NAME_MAX} characters", "Choose a short name"
        )


def lifetime_us(what: str, seconds: object) -> int:
    """A lifetime that was given in seconds."""
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 < seconds <= _DEADLINE_MAX_S
    ):
        raise ParameterError(
            what,
            f"{seconds!r} is not a number of seconds above 0 and up to {_DEADLINE_MAX_S:,}",
            "Say in how many seconds from its broadcast a message is worthless",
        )
    return max(1, round(seconds * 1_000_000))


def join(
    name: str,
    *,
    node: str,
    peers: Mapping[str, str] | None = None,
    contact: str | None = None,
    listen: str | None = None,
    protocol: str = "vector",
    trace: str | Path | None = None,
    limits: Limits | None = None,
    transport: str | None = None,
    faults: LinkFaults | None = None,
    lifetime: float | None = None,
    shuffle_s: float | None = None,
    store: str | Path | None = None,
    keys: str | Path | None = None,
    plaintext: bool = False,
    **params: Any,
) -> Joining:
    """Join the group `name` as `node`: `async with join(...) as group`.

    `peers` names every member, this one included, with the address ("host:port") at which it
    listens; all members must be given the same names, protocol and parameters. `listen` binds
    another address than the one that the peers use. `trace` is a folder for the node's trace.
    `transport` is "tcp" or "udp"; by default that for which the protocol is made. `faults` makes a
    node lose, double and reorder the datagrams that it sends: a testing aid. `lifetime` is in seconds, for
    protocols with lifetimes: of messages that are broadcast without a `deadline`. Further keywords are
    the protocol's parameters.

    Under a protocol without a list of members (`prc`) there are no `peers`: the node listens at `listen`, and
    is taken in by the process at `contact`, or is the first if that is None. Entering waits until it is
    in. `shuffle_s` is how often links are exchanged (60 s).

    `store` is a file that makes the node durable, as all members must be: what `broadcast` or `send` has
    answered for and what was received survives any crash, and leaving only suspends (docs/durability.md).

    `keys` is a folder made by `whence keys`: every connection is then TLS, and every member must have keys
    of the group's authority. Without keys, addresses beyond this machine are refused, unless `plaintext`
    asks for them.
    """
    check_name("group", name)
    asked = _Asked(
        name, node, protocol, params, limits or Limits(), listen, transport, faults, lifetime, keys, plaintext
    )
    settings: Settings
    if registry.lookup(protocol).swarm:
        settings = _without_list(asked, contact, shuffle_s, {"peers": peers, "store": store})
    else:
        settings = _with_list(asked, peers, store, {"contact": contact, "shuffle_s": shuffle_s})
    return Joining(settings, None if trace is None else Path(trace))


class _Asked(NamedTuple):
    """What can be asked of a node of any group."""

    group: str
    node: str
    protocol: str
    params: dict[str, Any]
    limits: Limits
    listen: str | None
    transport: str | None
    faults: LinkFaults | None
    lifetime: float | None
    keys: str | Path | None
    plaintext: bool

    def choose_keys(self, transport: str, addresses: Mapping[str, Address]) -> Keys | None:
        return choose_keys(self.keys, self.plaintext, transport, self.group, self.node, addresses)

    def refuse(self, others: Mapping[str, object], reason: str, fix: str) -> None:
        """Refuse what only the other kind of group has."""
        for name, value in others.items():
            if value is not None:
                raise ParameterError(name, f"protocol {self.protocol!r} {reason}", fix)


def _without_list(
    asked: _Asked, contact: str | None, shuffle_s: float | None, others: Mapping[str, object]
) -> SwarmSettings:
    """The settings of a process in a group without a list of members."""
    group, node, protocol, params, limits, listen, *_ = asked
    check_name("node", node)
    transport = choose_transport(asked.transport, protocol, asked.faults, 1)
    lifetime_of(protocol, asked.lifetime, params)
    asked.refuse(
        others, "has no list of members", "Give `listen`, and `contact` unless this is the first process"
    )
    swarm = swarm_settings(group, node, contact, listen, protocol, params, limits, shuffle_s)
    addresses = {"listen": swarm.listen} | ({} if swarm.contact is None else {"contact": swarm.contact})
    return replace(swarm, keys=asked.choose_keys(transport, addresses), plaintext=asked.plaintext)


def _with_list(
    asked: _Asked, peers: object, store: str | Path | None, others: Mapping[str, object]
) -> Settings:
    """The settings of a member of a group whose members are listed."""
    asked.refuse(others, "has a list of members", "Name them in `peers`, or use protocol 'prc'")
    group, node, protocol, params, limits, listen, *_ = asked
    addresses = _addresses(node, peers)
    limits.check()
    registry.require_live(protocol)
    lifetime = lifetime_of(protocol, asked.lifetime, params)
    params = {**registry.lookup(protocol).live_parameters(params), **lifetime}
    core = registry.make(protocol, node, addresses, params)  # refuse a bad parameter here and now
    transport = choose_transport(asked.transport, protocol, asked.faults, len(addresses))
    listens = addresses[node] if listen is None else parse_address(listen, "listen")
    named = {f"address of {member!r}:": address for member, address in addresses.items()}
    return Settings(
        group=group,
        node=node,
        addresses=addresses,
        listen=listens,
        protocol=protocol,
        params=params,
        limits=limits,
        transport=transport,
        faults=asked.faults,
        store=store_of(store, protocol, transport, limits, core.renews),
        keys=asked.choose_keys(transport, {"listen": listens} | named),
        plaintext=asked.plaintext,
    )


def _addresses(node: str, peers: object) -> dict[str, Address]:
    """Where every member listens."""
    if not isinstance(peers, Mapping) or node not in peers:
        raise ParameterError(f"node {node!r}", "it is not among the peers", "List every member in `peers`")
    addresses = {}
    for member, text in peers.items():
        check_name("node", member)
        addresses[member] = parse_address(text, f"address of {member!r}")
    used = Counter(addresses.values())
    shared = [member for member in addresses if used[addresses[member]] > 1]
    if shared:
        raise ParameterError(
            f"peers {', '.join(sorted(shared))}", "they share one address", "Give each its own port"
        )
    return addresses


class Joining:
    """What `join` answers: enter it to take part, leave it to say good-bye."""

    def __init__(self, settings: Settings, trace: Path | None) -> None:
        self._settings = settings
        self._trace = trace
        self._group: Group | None = None

    async def __aenter__(self) -> Group:
        if self._group is not None:
            raise MisuseError("join", "it was entered before", "Call whence.join again for each use")
        node = _make_node(self._settings)
        try:
            await node.listen()
            # After the address is ours: a failed start must not leave a trace that blocks the next.
            trace = None if self._trace is None else _open_trace(node, self._trace)
            await node.start(trace)
        except BaseException:
            await node.leave()
            raise
        self._group = Group(node, trace)
        return self._group

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._group is not None:
            await self._group.leave()


def _make_node(settings: Settings) -> Node:
    if isinstance(settings, SwarmSettings):
        return DynamicNode(settings)
    return Node(settings) if settings.store is None else DurableNode(settings)


def _open_trace(node: Node, folder: Path) -> TraceWriter:
    from whence.trace.schema import Level, PromisesMade
    from whence.trace.writer import TraceWriter

    settings = node.settings
    info = registry.lookup(settings.protocol)
    promises = PromisesMade(
        causal=info.promises.causal,
        fifo=info.promises.fifo,
        no_duplicates=info.promises.no_duplicates,
        # A live node may leave or be stopped at any time, and then it misses what follows.
        complete=False,
        timely=info.promises.timely,
        clock_slack_us=round(settings.limits.clock_slack_s * 1e6) if info.promises.timely else 0,
    )
    try:
        return TraceWriter(
            folder,
            run=settings.group,
            writer=settings.node,
            protocol=settings.protocol,
            parameters={
                "protocol": settings.protocol,
                "params": dict(settings.params),
                "host": "live",
                "transport": settings.transport,
            },
            promises=promises,
            seed=None,
            nodes=settings.addresses,
            level=Level.ALL,
            keep_parts=node.trace_parts() if isinstance(node, DurableNode) else None,
        )
    except ModuleNotFoundError as error:
        raise missing_extra("trace", error.name or "pyarrow", "trace") from error
