"""From a description to the node that a server is: what to give to `whence.join`, and which agent to run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from whence.core.message import NodeId
from whence.errors import ConfigError, KeysRequiredError, ParameterError
from whence.live.join import Joining, join
from whence.servers.system import System, read_system
from whence.session.durable import Agent
from whence.session.limits import Limits


def load_system(path: Path, only: Iterable[str] | None = None) -> System:
    """Read a description and check all of it that can be checked without starting anything.

    `only` names the servers that shall run here: keys of the others need not be on this machine.
    """
    system = read_system(path)
    check_system(system, only)
    return system


def check_system(system: System, only: Iterable[str] | None = None) -> None:
    """Check all of a description that can be checked without starting anything."""
    servers = [system.require(server) for server in only] if only is not None else list(system.servers)
    for server in servers:
        # What is the same for all of them is checked once: a large clock takes its time.
        if server == servers[0] or system.servers[server].listen is not None or system.keys is not None:
            joining(system, server)


def joining(system: System, server: NodeId) -> Joining:
    """The server's node: enter it to become a member."""
    try:
        return join(
            system.name,
            node=server,
            peers=system.addresses,
            listen=system.servers[server].listen,
            protocol="domains",
            trace=system.trace_folder,
            limits=limits_of(system),
            keys=system.keys,
            plaintext=system.plaintext,
            domains=system.shape.plain(),
            stamps=system.stamps,
            store=system.store_of(server) if system.durable else None,
        )
    except KeysRequiredError as error:
        raise KeysRequiredError(
            f"{system.path}: {error.what}",
            error.reason,
            f'Make keys with `whence keys init {system.name} --nodes ...` and set keys = "FOLDER"; '
            "or set plaintext = true if you trust the network",
        ) from error
    except ParameterError as error:
        raise ConfigError(f"{system.path}: {error.what}", error.reason, error.fix) from error


def limits_of(system: System) -> Limits:
    """The limits of every server of the system."""
    try:
        return msgspec.convert(dict(system.limits), Limits)
    except msgspec.ValidationError as error:
        fields = ", ".join(Limits.__struct_fields__)
        raise ConfigError(
            f"{system.path}: [limits]", str(error), f"Correct it; the fields are: {fields}"
        ) from None


def load_agents(system: System, server: NodeId) -> dict[str, Agent]:
    """The agents at a server by name, imported; the server's own has an empty name.

    Modules beside the description can be imported, too.
    """
    own = system.servers[server]
    agents = {}
    if own.agent is not None:
        where = f"{system.path}: [servers.{server}] agent"
        agents[""] = _load_agent(system, own.agent, own.options, where)
    for name, table in system.agents_at(server).items():
        where = f"{system.path}: [agents.{name}] agent"
        agents[name] = _load_agent(system, table.agent, table.options, where)
    return agents


def _load_agent(system: System, text: str, options: dict[str, Any] | None, where: str) -> Agent:
    here = str(system.path.parent)
    if here not in sys.path:
        sys.path.insert(0, here)
    module_name, _, function = text.partition(":")
    try:
        agent = getattr(import_module(module_name), function)
    except Exception as error:  # a module of the user's may fail in any way while it is imported
        raise ConfigError(
            where,
            f"{text!r} cannot be loaded ({type(error).__name__}: {error})",
            f"Put the module beside {system.path.name} or on PYTHONPATH, and check the function's name",
        ) from error
    if options is not None:
        agent = _made(agent, options, where)
    if not callable(agent) or not _takes_two(agent):
        raise ConfigError(
            where,
            f"{text!r} is not a function of (state, message)",
            "Write def agent(state: bytes, message: Message) -> tuple[bytes, list[Output]]; "
            "one that makes agents needs `options`",
        )
    made: Agent = agent
    return made


def _made(maker: Any, options: dict[str, Any], where: str) -> Any:
    try:
        return maker(**options)
    except Exception as error:  # the user's function, and the user's options
        raise ConfigError(
            where, f"its options are refused ({type(error).__name__}: {error})", "Correct `options`"
        ) from error


def _takes_two(agent: Any) -> bool:
    try:
        inspect.signature(agent).bind(b"", None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature: the first message will tell
        return True
    return True
