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

Here is what the file itself can be asked for: words, names, domains. What only `whence.join` knows
(addresses, limits, parameters of the protocol) is checked by `servers.joining`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from whence.core.message import NodeId
from whence.errors import ConfigError, DomainGraphError
from whence.overlay.domain_graph import DomainGraph, from_description

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


class _Top(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a description may say at the top; the tables are looked at one by one."""

    domains: Any = None
    servers: dict[str, Any] = {}
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
    servers: Mapping[NodeId, ServerTable]  # every server, sorted
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

    def require(self, server: str) -> NodeId:
        """`server`, or a `ConfigError` if the description has none of that name."""
        if server in self.servers:
            return server
        names = list(self.servers)
        known = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise ConfigError(f"server {server!r}", f"{self.path} has none of that name", f"Use one of: {known}")


def read_system(path: Path) -> System:
    """Read and check a description; `ConfigError` or `DomainGraphError` name file, table and fix."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(str(path), error.strerror or str(error), "Give the path of a TOML file") from error
    except ValueError as error:  # no TOML, or no UTF-8
        raise ConfigError(str(path), f"it is not TOML ({error})", "Correct the syntax") from None
    top = _table(data, _Top, f"{path}")
    try:
        graph = from_description(data)
    except DomainGraphError as error:
        raise DomainGraphError(f"{path}: {error.what}", error.reason, error.fix) from error
    name = path.stem if top.name is None else top.name
    for each, what in [(name, "name"), *((server, f"server {server!r}") for server in graph.servers)]:
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
        servers=servers,
        addresses=_addresses(top, servers, path),
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


def _addresses(top: _Top, servers: Mapping[NodeId, ServerTable], path: Path) -> dict[NodeId, str]:
    """A server without an address gets base_port and its place among all names: the same in every process."""
    base_port = top.base_port
    if base_port is not None and not 0 < base_port <= 65_536 - len(servers):
        raise ConfigError(
            f"{path}: base_port",
            f"{base_port} and {len(servers) - 1} ports after it are not all from 1 to 65535",
            "Use 7100, say",
        )
    addresses = {}
    for place, (server, table) in enumerate(servers.items()):
        if table.address is not None:
            addresses[server] = table.address
        elif base_port is not None:
            addresses[server] = f"127.0.0.1:{base_port + place}"
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
