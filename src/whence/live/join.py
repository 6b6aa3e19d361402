"""`whence.join`: what the caller asks for, checked, becomes a node and its group."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, overload

from whence.core import lives
from whence.core.protocol import Protocol as Core
from whence.errors import MisuseError, ParameterError, missing_extra
from whence.live.arguments import (
    check_name,
    choose_keys,
    choose_transport,
    lifetime_of,
    log_of,
    shuffle_period_s,
    store_of,
)
from whence.live.durable import DurableMembership, opened, shape_given
from whence.live.group import Group
from whence.live.linkfaults import LinkFaults
from whence.live.log import LogMembership, book_of
from whence.live.node import GroupKind, ListedMembership, Node, draw_session
from whence.live.overlay import OpenMembership
from whence.live.settings import SHUFFLE_S, NodeSettings, OverlaySettings
from whence.live.store import Store
from whence.live.tls import Keys
from whence.live.typed import CodecLike, TypedJoining, Unentered, Value, codec_of
from whence.protocols import registry
from whence.protocols.domains.domains import Domains
from whence.protocols.log.core import Log
from whence.session.addresses import Address, parse_address
from whence.session.admission import Listed, Open
from whence.session.durable import DurableServer
from whence.session.handshake import Identity, OwnLives, canonical_parameters
from whence.session.host import Host
from whence.session.limits import Limits
from whence.session.log_host import LogHost
from whence.trace.schema import Level, PromisesMade
from whence.trace.writer import TraceWriter, manifest_of


@overload
def join(
    name: str,
    *,
    node: str,
    peers: Mapping[str, str] | None = None,
    contact: str | Sequence[str] | None = None,
    listen: str | None = None,
    protocol: str = "log",
    trace: str | Path | None = None,
    limits: Limits | None = None,
    transport: str | None = None,
    faults: LinkFaults | None = None,
    lifetime: float | None = None,
    shuffle_s: float | None = None,
    store: str | Path | None = None,
    keys: str | Path | None = None,
    plaintext: bool = False,
    discover: bool | None = None,
    history: str | bytes | None = None,
    keep: str | int | None = None,
    stability: bool | None = None,
    codec: None = None,
    **params: Any,
) -> Joining: ...


@overload
def join(name: str, *, node: str, codec: CodecLike[Value], **options: Any) -> TypedJoining[Value]: ...


def join(
    name: str,
    *,
    node: str,
    peers: Mapping[str, str] | None = None,
    contact: str | Sequence[str] | None = None,
    listen: str | None = None,
    protocol: str = "log",
    trace: str | Path | None = None,
    limits: Limits | None = None,
    transport: str | None = None,
    faults: LinkFaults | None = None,
    lifetime: float | None = None,
    shuffle_s: float | None = None,
    store: str | Path | None = None,
    keys: str | Path | None = None,
    plaintext: bool = False,
    discover: bool | None = None,
    history: str | bytes | None = None,
    keep: str | int | None = None,
    stability: bool | None = None,
    codec: CodecLike[Any] | None = None,
    **params: Any,
) -> Joining | TypedJoining[Any]:
    """Join the group `name` as `node`: `async with join(...) as group`.

    By default (protocol `log`) no one lists the members. The node listens at `listen` ("host:port"; without
    it, it only dials others), and finds the group through one or more addresses in `contact`, through `peers`
    (names with addresses), or with `discover` by multicast on the local network. Every node keeps a log:
    `store` is a file for it, otherwise it is in memory. `history` says where a newcomer begins: "all" that is
    retained, "new", or a cut (`Group.cut`); a node with a store goes on where it was. `keep` says what is
    retained: "forever", until "stable", or that many bytes. With `stability` the members agree on what is
    stable (docs/log.md).

    Other protocols have a fixed list: `peers` names every member, this one included, with the address
    at which it listens; all members must be given the same names, protocol and parameters. `listen` binds
    another address than the one that the peers use. `trace` is a folder for the node's trace.
    `transport` is "tcp" or "udp"; by default that for which the protocol is made. `faults` makes a
    node lose, double and reorder the datagrams that it sends: a testing aid. `lifetime` is in seconds, for
    protocols with lifetimes: of messages that are broadcast without a `deadline`. Further keywords are
    the protocol's parameters.

    Under `prc`, which has no list of members either, there are no `peers`: the node listens at `listen`, and
    is taken in by the process at `contact`, or is the first if that is None. Entering waits until it is
    in. `shuffle_s` is how often links are exchanged (60 s).

    `store` makes a node of a fixed group durable, as all its members must be: what `broadcast` or `send` has
    answered for and what was received survives any crash, and leaving only suspends (docs/durability.md).

    `keys` is a folder made by `whence keys`: every connection is then TLS, and every member must have keys
    of the group's authority. Without keys, addresses beyond this machine are refused, unless `plaintext`
    asks for them.

    With `codec` the messages are values in place of bytes, with headers, questions and replies: "json",
    "msgpack", a msgspec struct or a `Codec`, the same at every member (live/typed.py).
    """
    limits = Limits() if limits is None else limits
    asked = _Asked(name, node, protocol, params, limits, listen, transport, faults, lifetime, keys, plaintext)
    of_log = {"discover": discover, "history": history, "keep": keep, "stability": stability}
    asked.check()
    settings = _settings(asked, peers, contact, store, shuffle_s, of_log)
    joining = Joining(settings, _folder_of(trace))
    return joining if codec is None else TypedJoining(joining, codec_of(codec))


def _settings(
    asked: _Asked,
    peers: Mapping[str, str] | None,
    contact: str | Sequence[str] | None,
    store: str | Path | None,
    shuffle_s: float | None,
    of_log: Mapping[str, Any],
) -> NodeSettings:
    """What a node needs, of the kind of group that the protocol makes; what another kind has is refused."""
    if asked.protocol == Log.name:
        asked.refuse({"shuffle_s": shuffle_s}, "exchanges no links", "Leave it out")
        return _remembering(asked, peers, contact, store, of_log)
    if registry.lookup(asked.protocol).overlay:
        return _without_list(asked, contact, shuffle_s, {"peers": peers, "store": store, **of_log})
    return _with_list(asked, peers, store, {"contact": contact, "shuffle_s": shuffle_s, **of_log})


def _folder_of(trace: object) -> Path | None:
    if trace is not None and not isinstance(trace, str | Path):
        raise ParameterError("trace", f"{trace!r} is not a path", "Give the folder for this node's trace")
    return None if trace is None else Path(trace)


def _refuse_typos(protocol: str, params: Mapping[str, object]) -> None:
    """A keyword that is unknown is told apart from a bad value, and the nearest one is named."""
    declared = registry.lookup(protocol).parameters
    known = [*declared, *(each for each in inspect.signature(join).parameters if each != "params")]
    for name in params:
        if name not in declared:
            near = get_close_matches(name, known, 1)
            choose = f"protocol {protocol!r} has {', '.join(sorted(declared)) or 'no parameters'}"
            raise ParameterError(
                f"keyword {name!r} of join",
                f"neither join nor protocol {protocol!r} knows it",
                f"Did you mean {near[0]!r}?" if near else f"Leave it out: {choose}",
            )


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

    def check(self) -> None:
        """Refuse names, keywords and limits that no node has."""
        check_name("group", self.group)
        check_name("node", self.node)
        check_name("protocol", self.protocol)
        _refuse_typos(self.protocol, self.params)
        if not isinstance(self.limits, Limits):
            raise ParameterError("limits", f"{self.limits!r} is not whence.Limits", "Give whence.Limits(...)")

    def choose_keys(self, transport: str, addresses: Mapping[str, Address]) -> Keys | None:
        return choose_keys(self.keys, self.plaintext, transport, self.group, self.node, addresses)

    def refuse(self, others: Mapping[str, object], reason: str, fix: str) -> None:
        """Refuse what only the other kind of group has."""
        for name, value in others.items():
            if value is not None:
                raise ParameterError(name, f"protocol {self.protocol!r} {reason}", fix)


def _without_list(
    asked: _Asked, contact: object, shuffle_s: float | None, others: Mapping[str, object]
) -> NodeSettings:
    """The settings of a node over links that change, without a list of members."""
    if contact is not None and not isinstance(contact, str):
        raise ParameterError("contact", f"{contact!r} is not one address", "Give host:port")
    group, node, protocol, params, limits, listen, *_ = asked
    transport = choose_transport(asked.transport, protocol, asked.faults, 1)
    lifetime_of(protocol, asked.lifetime, params)
    asked.refuse(
        others, "has no list of members", "Give `listen`, and `contact` unless this is the first process"
    )
    if "\0" in node:
        raise ParameterError(f"node {node!r}", "a name holds no NUL", "Choose another name")
    if listen is None:
        raise ParameterError("listen", "the others must know where to find this process", "Give host:port")
    period_s = shuffle_period_s(SHUFFLE_S if shuffle_s is None else shuffle_s)
    limits.check()
    params = registry.lookup(protocol).live_parameters(params)
    if params["links"] != "dynamic":
        raise ParameterError("links", "live links come and go", "Leave it out")
    registry.make(protocol, node, [node], params)  # refuse an unknown parameter here and now
    addresses = {"listen": parse_address(listen, "listen")}
    if contact is not None:
        addresses["contact"] = parse_address(contact, "contact")
    return NodeSettings(
        group=group,
        node=node,
        addresses={node: addresses["listen"]},
        listen=addresses["listen"],
        protocol=protocol,
        params=params,
        limits=limits,
        keys=asked.choose_keys(transport, addresses),
        plaintext=asked.plaintext,
        overlay=OverlaySettings(addresses.get("contact"), period_s),
    )


def _with_list(
    asked: _Asked, peers: object, store: str | Path | None, others: Mapping[str, object]
) -> NodeSettings:
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
    if limits.retire_after_s is not None and (not core.returns or transport == "udp"):
        raise ParameterError(
            "limit 'retire_after_s'",
            f"under protocol {protocol!r} nobody is waited for, or the protocol itself finds out who is gone",
            "Remove it",
        )
    listens = addresses[node] if listen is None else parse_address(listen, "listen")
    named = {f"address of {member!r}:": address for member, address in addresses.items()}
    return NodeSettings(
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


def _remembering(
    asked: _Asked,
    peers: Mapping[str, str] | None,
    contact: str | Sequence[str] | None,
    store: str | Path | None,
    given: Mapping[str, Any],
) -> NodeSettings:
    """The settings of a node in a group that remembers."""
    group, node, protocol, params, limits, listen, *_ = asked
    lives.check_name(node)
    limits.check()
    transport = choose_transport(asked.transport, protocol, asked.faults, 1)
    known = {} if peers is None else _parse_addresses(peers)
    listens = known.pop(node, None) if listen is None else parse_address(listen, "listen")
    known.pop(node, None)
    if contact is not None and not isinstance(contact, Sequence):
        raise ParameterError("contact", f"{contact!r} is no address", "Give host:port, or a list of them")
    contacts = [contact] if isinstance(contact, str) else list(contact or ())
    dialled: list[tuple[str | None, Address]] = [*known.items()]
    dialled += [(None, parse_address(each, "contact")) for each in contacts]
    log = log_of(tuple(dialled), durable=store is not None, lifetime=asked.lifetime, **given)
    if listens is None and not dialled and not log.discover:
        raise ParameterError(
            "join", "this node can neither be found nor find others", "Give `listen`, `contact` or `peers`"
        )
    params = {**registry.lookup(protocol).live_parameters(params), **log.parameters()}
    params |= lifetime_of(protocol, asked.lifetime, params)
    registry.make(protocol, node, [node], params)  # refuse a bad parameter here and now
    named = {f"contact {each[0] or ''}".strip(): each[1] for each in dialled}
    return NodeSettings(
        group=group,
        node=node,
        addresses={} if listens is None else {node: listens},
        listen=listens,
        protocol=protocol,
        params=params,
        limits=limits,
        store=store_of(store, protocol, transport, limits, renews=False),
        keys=asked.choose_keys(transport, named if listens is None else {"listen": listens} | named),
        plaintext=asked.plaintext,
        log=log,
    )


def _addresses(node: str, peers: object) -> dict[str, Address]:
    """Where every member listens."""
    if not isinstance(peers, Mapping) or node not in peers:
        raise ParameterError(f"node {node!r}", "it is not among the peers", "List every member in `peers`")
    return _parse_addresses(peers)


def _parse_addresses(peers: Mapping[str, str]) -> dict[str, Address]:
    """The addresses of nodes by name; each must have its own."""
    if not isinstance(peers, Mapping):
        raise ParameterError("peers", f"{peers!r} names no nodes", "Give a dict of names and addresses")
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


class Joining(Unentered):
    """The result of `join`: enter it to be a member, leave it to say good-bye."""

    def __init__(self, settings: NodeSettings, trace: Path | None) -> None:
        self._settings = settings
        self._trace = trace
        self._group: Group | None = None

    async def __aenter__(self) -> Group:
        if self._group is not None:
            raise MisuseError("join", "it was entered before", "Call whence.join again for each use")
        settings, store = self._settings, None
        if settings.store is not None and settings.log is None:
            store = await asyncio.to_thread(Store, settings.store)  # a large one is looked at for a while
        node = make_node(settings, store)
        try:
            await node.listen()
            # After the address is ours: a failed start must not leave a trace that blocks the next.
            trace = None if self._trace is None else _open_trace(node, self._trace)
            await node.start(trace)
            if trace is not None:
                trace.announce()
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


def make_node(settings: NodeSettings, store: Store | None = None) -> Node:
    """The node of these settings, with the parts of its kind of group; `store` is a durable listed node's."""
    if settings.log is not None:
        return _remembering_node(settings)
    if settings.overlay is not None:
        host = partial(Host, max_frame_bytes=settings.max_frame_bytes)
        return _node(settings, draw_session(), kind=GroupKind(Open, host, OpenMembership))
    returns = can_return(settings)
    if store is None:
        kind = GroupKind(partial(Listed, returns=returns), Host, ListedMembership)
        return _node(settings, draw_session(), kind=kind)
    try:
        membership = partial(DurableMembership, store=store, shape=shape_given(settings))
        kind = GroupKind(partial(Listed, keeps=True, returns=returns), DurableServer, membership)
        settings, session, lives = opened(store, settings)
        return _node(settings, session, lives, kind=kind)
    except BaseException:
        store.close()
        raise


def _remembering_node(settings: NodeSettings) -> Node:
    """A node that keeps a log, in memory or on the disk. Every opening is a new life."""
    book = None if settings.store is None else book_of(settings.store, settings)
    settings = replace(settings, params={**settings.params, "life": f"{secrets.randbits(64):016x}"})
    limits = settings.limits
    try:
        core = Log(settings.node, (), book=book, **settings.params)
        host = partial(
            LogHost,
            max_frame_bytes=settings.max_frame_bytes,
            unread_messages=limits.unread_messages if book is None else limits.unread_messages // 4,
            unread_bytes=limits.unread_bytes if book is None else limits.unread_bytes // 4,
            queue_bytes=limits.queue_bytes * limits.hard_factor,
            gate=book,
        )
        admission, membership = partial(Open, introduces=True), partial(LogMembership, book=book)
        kind = GroupKind(admission, host, membership, waits_for_peers=False)
        return _node(settings, draw_session(), kind=kind, core=core)
    except BaseException:
        if book is not None:
            book.close()
        raise


def can_return(settings: NodeSettings) -> bool:
    """Whether members of such a group may come back without their state."""
    core = registry.make(settings.protocol, settings.node, settings.addresses, settings.params)
    return core.returns and settings.params.get("mode") != "published"


def _node(
    settings: NodeSettings,
    session: int,
    lives: OwnLives | None = None,
    *,
    kind: GroupKind,
    core: Core | None = None,
) -> Node:
    members = tuple(sorted(settings.addresses))
    if core is None:
        core = registry.make(settings.protocol, settings.node, members, settings.params)
    identity = Identity(
        group=settings.group,
        protocol=settings.protocol,
        parameters=settings.parameters(),
        members=members,
        max_payload_bytes=settings.max_payload_bytes,
        node=settings.node,
        session=session,
        listed=settings.overlay is None and settings.log is None,
        lives=lives or OwnLives(draw_session()),
        agreement=_agreement(core),
    )
    return Node(settings, identity, core, kind)


def _agreement(core: Core) -> Callable[[str], dict[str, str]] | None:
    """What two servers of a system that may change must agree on."""
    if isinstance(core, Domains) and core.is_shaped:
        return lambda peer: canonical_parameters(core.agreement(peer))
    return None


def _open_trace(node: Node, folder: Path) -> TraceWriter:
    settings = node.settings
    info = registry.lookup(settings.protocol)
    slack_us = round(settings.limits.clock_slack_s * 1e6)
    promises = PromisesMade(
        causal=info.promises.causal,
        fifo=info.promises.fifo,
        no_duplicates=info.promises.no_duplicates,
        # A live node may leave or be stopped at any time, and then it misses what follows.
        complete=False,
        timely=info.promises.timely,
        clock_slack_us=slack_us if info.promises.timely or info.lives else 0,
    )
    params, parts, member = dict(settings.params), None, node.membership
    if isinstance(member, DurableMembership):
        parts = member.trace_parts()
        past = manifest_of(folder, settings.node) if shape_given(settings) is not None else None
        if parts is None and past is not None:  # a server lost its store: another life goes on
            parts, params = len(past.parts), past.parameters["params"]
    elif isinstance(member, LogMembership) and member.is_durable:
        past = manifest_of(folder, settings.node)
        if past is not None:  # a later life goes on in the same trace, which knows the first
            parts = member.trace_parts(len(past.parts))
            params["life"] = past.parameters.get("params", {}).get("life")
    try:
        return TraceWriter(
            folder,
            run=settings.group,
            writer=settings.node,
            protocol=settings.protocol,
            parameters={
                "protocol": settings.protocol,
                "params": params,
                "host": "live",
                "transport": settings.transport,
            },
            promises=promises,
            seed=None,
            nodes=settings.addresses or [settings.node],
            level=Level.ALL,
            keep_parts=parts,
            loses=settings.store is None,
        )
    except ModuleNotFoundError as error:
        raise missing_extra("trace", error.name or "pyarrow", "trace") from error
