"""The description of a system of servers: one TOML file for all of them.

    name = "orders"                     # the group's name; without one, the file's
    base_port = 7100                    # addresses on this machine for servers that have none of their own
    folder = "orders-data"              # stores, traces, sockets and logs; relative to the file

    [[domains]]
    name = "shop"
    servers = ["web", "desk", "office"]

    [[domains]]
    name = "stock"
    servers = ["office", "store"]

    [servers.store]
    address = "10.0.0.7:7100"
    agent = "orders:store"              # a module (also one beside the file) and a function in it

    [agents.billing]                    # an agent with a name of its own, addressed by it from anywhere
    server = "store"
    agent = "orders:billing"

Here is what the file itself can be asked for: words, names, domains. What only `whence.join` knows
(addresses, limits, parameters of the protocol) is checked by `servers.joining`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from whence import toml
from whence.core.message import NodeId
from whence.errors import ConfigError, DomainGraphError
from whence.overlay.domain_graph import DomainGraph, from_description
from whence.overlay.shape import Shape, first_shape, next_shape
from whence.servers.applied import Applied, path_of, read_applied, write_applied

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # names become names of files
AGENT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
SOCKET_PATH_MAX_BYTES = 100  # the kernel's limit is 107 on Linux, 103 elsewhere


class ServerTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `[servers.NAME]` may say."""

    address: str | None = None  # host:port; None: on this machine, a port from `base_port` on
    listen: str | None = None  # bind another address than the one that the others use
    agent: str | None = None  # "module:function"; None: messages wait for `whence mom tail`
    options: dict[str, Any] | None = None  # if given, function(**options) makes the agent
    attempts: Annotated[int, msgspec.Meta(ge=1)] = 3  # at one message, before it becomes a dead letter


class AgentTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `[agents.NAME]` may say."""

    server: str  # where it lives
    agent: str  # "module:function"
    options: dict[str, Any] | None = None
    attempts: Annotated[int, msgspec.Meta(ge=1)] = 3


class _Top(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a description may say at the top; the tables are looked at one by one."""

    domains: Any = None
    servers: dict[str, Any] = {}
    agents: dict[str, Any] = {}
    name: str | None = None
    stamps: str = "updates"
    base_port: int | None = None
    folder: str | None = None
    trace: bool = False
    durable: bool = True
    keys: str | None = None
    plaintext: bool = False
    limits: dict[str, Any] = {}


@dataclass(frozen=True)
class System:
    """A checked description."""

    path: Path
    name: str
    graph: DomainGraph
    shape: Shape  # the domains as they were applied
    is_applied: bool  # False: the file says more of domains than what was applied, which is what counts
    servers: Mapping[NodeId, ServerTable]  # every server, sorted
    agents: Mapping[str, AgentTable]  # those with names of their own, sorted
    addresses: Mapping[NodeId, str]
    stamps: str
    folder: Path
    trace: bool
    durable: bool  # False: for measurements; a server that stops forgets everything
    keys: Path | None  # made by `whence keys`: then every connection is TLS
    plaintext: bool  # between machines without keys
    limits: Mapping[str, Any]

    def socket_of(self, server: NodeId) -> Path:
        """Where a server takes requests from people."""
        return self.folder / f"{server}.sock"

    def store_of(self, server: NodeId) -> Path:
        """What a server keeps on disk."""
        return self.folder / f"{server}.store"

    def log_of(self, server: NodeId) -> Path:
        """What a server says while it runs under `whence mom up`."""
        return self.folder / f"{server}.log"

    def lock_of(self, server: NodeId) -> Path:
        """Held by the one process that is this server."""
        return self.folder / f"{server}.lock"

    @property
    def up_lock(self) -> Path:
        """Held by the one `whence mom up` of this folder; says its process id."""
        return self.folder / ".up.lock"

    @property
    def up_log(self) -> Path:
        """What happened to the servers' processes."""
        return self.folder / ".up.log"

    @property
    def trace_folder(self) -> Path | None:
        """Where every server writes its trace, if traces are wanted."""
        return self.folder / "trace" if self.trace else None

    def agents_at(self, server: NodeId) -> dict[str, AgentTable]:
        """The named agents that live at a server."""
        return {name: table for name, table in self.agents.items() if table.server == server}

    def server_of(self, name: str) -> NodeId:
        """The server at which messages for `name` arrive: its own name, or that of an agent there."""
        table = self.agents.get(name)
        return self.require(name) if table is None else table.server

    def require(self, server: str) -> NodeId:
        """`server`, or a `ConfigError` if the description has none of that name."""
        if server in self.servers:
            return server
        names = list(self.servers)
        known = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        where = str(self.path) if self.is_applied else f"what was applied of {self.path}"
        raise ConfigError(f"server {server!r}", f"{where} has none of that name", f"Use one of: {known}")


def read_system(path: Path) -> System:
    """Read and check a description; `ConfigError` or `DomainGraphError` name file, table and fix.

    If its domains or agents differ from those that were applied, those that were applied count.
    """
    data = toml.parsed(read_description(path), path, ConfigError)
    described = _system(data, path, None)
    applied = read_applied(described.folder)
    if applied is None:
        return described
    before = toml.parsed(applied.description, path_of(described.folder), ConfigError)
    if next_shape(applied.shape, described.graph) is applied.shape and (
        data.get("agents") == before.get("agents")
    ):
        return _system(data, path, applied.shape)
    tables = before.get("servers", {})
    now = {name: table for name, table in data.get("servers", {}).items() if name in applied.shape.servers}
    known = {"domains": before["domains"], "agents": before.get("agents", {}), "servers": {**tables, **now}}
    return replace(_system({**data, **known}, path, applied.shape), is_applied=False)


def read_described(path: Path) -> System:
    """The system that the file describes, whatever was applied of it: what `whence mom apply` takes over."""
    data = toml.parsed(read_description(path), path, ConfigError)
    described = _system(data, path, None)
    applied = read_applied(described.folder)
    if applied is None:
        return described
    return _system(data, path, next_shape(applied.shape, described.graph))


def read_as_applied(described: System) -> System:
    """The system as its last description that was applied had it."""
    applied = read_applied(described.folder)
    if applied is None:
        raise ConfigError(
            f"system {described.name!r}",
            f"nothing was started in {described.folder} yet",
            f"Start it with `whence mom up {described.path}`",
        )
    return _system(
        toml.parsed(applied.description, path_of(described.folder), ConfigError),
        described.path,
        applied.shape,
    )


def remember(system: System) -> None:
    """The system starts: what it is described as counts as applied, if nothing was before."""
    if read_applied(system.folder) is None:
        write_applied(system.folder, Applied(system.shape, read_description(system.path)))


def read_description(path: Path) -> str:
    """The text of a description."""
    return toml.read_text(path, "a description", ConfigError)


def _system(data: dict[str, Any], path: Path, shape: Shape | None) -> System:
    top = _table(data, _Top, f"{path}")
    try:
        graph = from_description(data)
    except DomainGraphError as error:
        raise DomainGraphError(f"{path}: {error.what}", error.reason, error.fix) from error
    shape = shape or first_shape(graph)
    name = path.stem if top.name is None else top.name
    agents = _agents(top, graph, path)
    named = [(server, f"server {server!r}") for server in graph.servers]
    named += [(agent, f"agent {agent!r}") for agent in agents]
    for each, what in [(name, "name"), *named]:
        if not NAME.fullmatch(each):
            raise ConfigError(
                f"{path}: {what}",
                f"{each!r} cannot be part of a file's name",
                "Use up to 64 letters, digits, '.', '_' and '-', beginning with a letter or a digit",
            )
    servers = _servers(top, graph, path)
    here = path.resolve().parent
    system = System(
        path=path.resolve(),
        name=name,
        graph=graph,
        shape=shape,
        is_applied=True,
        servers=servers,
        agents=agents,
        addresses=_addresses(top, servers, shape, path),
        stamps=top.stamps,
        folder=here / (top.folder or f"{name}-data"),
        trace=top.trace,
        durable=top.durable,
        keys=None if top.keys is None else here / top.keys,
        plaintext=top.plaintext,
        limits=top.limits,
    )
    _check_socket_paths(system)
    return system


def _servers(top: _Top, graph: DomainGraph, path: Path) -> dict[NodeId, ServerTable]:
    strangers = sorted(set(top.servers) - set(graph.servers))
    if strangers:
        raise ConfigError(
            f"{path}: [servers.{strangers[0]}]",
            "this server is in no domain",
            "Add it to a domain's `servers`",
        )
    tables = {}
    for server in graph.servers:
        where = f"{path}: [servers.{server}]"
        table = _table(top.servers.get(server, {}), ServerTable, where)
        if table.agent is not None and not AGENT.fullmatch(table.agent):
            raise ConfigError(
                f"{where} agent", f"{table.agent!r} names no function", 'Write it as "module:function"'
            )
        if table.options is not None and table.agent is None:
            raise ConfigError(f"{where} options", "there is no agent to give them to", "Set `agent`, too")
        tables[server] = table
    return tables


def _agents(top: _Top, graph: DomainGraph, path: Path) -> dict[str, AgentTable]:
    agents = {}
    for name, data in sorted(top.agents.items()):
        where = f"{path}: [agents.{name}]"
        table = _table(data, AgentTable, where)
        if name in graph.servers:
            raise ConfigError(where, "a server has this name", "Give the agent a name of its own")
        if table.server not in graph.servers:
            raise ConfigError(f"{where} server", f"{table.server!r} is in no domain", "Name a server")
        if not AGENT.fullmatch(table.agent):
            raise ConfigError(
                f"{where} agent", f"{table.agent!r} names no function", 'Write it as "module:function"'
            )
        agents[name] = table
    return agents


def _addresses(
    top: _Top, servers: Mapping[NodeId, ServerTable], shape: Shape, path: Path
) -> dict[NodeId, str]:
    """A server without an address gets base_port and its seat: the same in every process, forever."""
    base_port = top.base_port
    seats = {server: seat for seat, server in enumerate(shape.seats)}
    if base_port is not None and not 0 < base_port <= 65_536 - len(seats):
        raise ConfigError(
            f"{path}: base_port",
            f"{base_port} and {len(seats) - 1} ports after it are not all from 1 to 65535",
            "Use 7100, say",
        )
    addresses = {}
    for server, table in servers.items():
        if table.address is not None:
            addresses[server] = table.address
        elif base_port is not None:
            addresses[server] = f"127.0.0.1:{base_port + seats[server]}"
        else:
            raise ConfigError(
                f"{path}: [servers.{server}]",
                "it has no address",
                'Write address = "host:port" there, or base_port = 7100 at the top, for one machine',
            )
    return addresses


def _check_socket_paths(system: System) -> None:
    for server in system.servers:
        size_bytes = len(str(system.socket_of(server)).encode())
        if size_bytes > SOCKET_PATH_MAX_BYTES:
            raise ConfigError(
                f"{system.path}: folder",
                f"the path of the socket of {server!r} would have {size_bytes} bytes, more than "
                f"{SOCKET_PATH_MAX_BYTES}",
                "Set `folder` to a shorter path",
            )


def _table(data: object, kind: type[Any], where: str) -> Any:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        fields = ", ".join(kind.__struct_fields__)
        text = re.sub(
            r" - at `\$\.?([^`]*)`", lambda found: f" (at {found[1]})" if found[1] else "", str(error)
        )
        raise ConfigError(where, text, f"Correct it; the fields are: {fields}") from None
