"""The configuration file of `whence node`: TOML, every field checked, every problem named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from whence.errors import ConfigError
from whence.live.linkfaults import LinkFaults
from whence.protocols import registry
from whence.protocols.log.core import Log
from whence.session.limits import Limits
from whence.toml import read_toml


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a configuration file may say; the words are those of `whence.join`."""

    group: str
    peers: dict[str, str] = {}  # every member; under `log` some of them, under `prc` none
    node: str = ""  # may be given on the command line instead, as may the next two
    listen: str | None = None
    contact: str | list[str] | None = None  # whom to dial, where there is no list; None: we are the first
    shuffle_s: float | None = None  # under `prc`
    protocol: str = "log"
    discover: bool | None = None  # these four under `log`: see `whence.join`
    history: str | None = None
    keep: str | int | None = None
    stability: bool | None = None
    params: dict[str, Any] = {}
    limits: Limits = Limits()
    transport: str | None = None  # None: that for which the protocol is made
    faults: LinkFaults | None = None
    lifetime: float | None = None  # seconds, for protocols with lifetimes
    store: str | None = None  # a file: the node is durable
    keys: str | None = None  # a folder, relative to that of the file
    plaintext: bool = False


def load_config(
    path: Path | None,
    node: str | None = None,
    *,
    group: str | None = None,
    listen: str | None = None,
    contact: str | list[str] | None = None,
) -> NodeConfig:
    """Read a file, if there is one; `group`, `node`, `listen` and `contact` replace the file's own."""
    if path is None and group is None:
        raise ConfigError("whence node", "it is not said which group", "Give --group NAME, or --config FILE")
    config = NodeConfig(group=group or "") if path is None else _decoded(path)
    given = {"group": group, "node": node, "listen": listen, "contact": contact}
    config = msgspec.structs.replace(
        config, **{name: value for name, value in given.items() if value is not None}
    )
    what = "whence node" if path is None else str(path)
    if not config.node:
        raise ConfigError(
            what, "it is not said which node this is", "Use --node NAME, or set `node` in a file"
        )
    # Before `params` become keywords of `join`, where a name of its own would be a clash.
    registry.require_live(config.protocol)
    _check_who(config, what)
    registry.make(config.protocol, config.node, [config.node, *config.peers], config.params)
    return config


def _decoded(path: Path) -> NodeConfig:
    fix = f"Correct it; the fields are: {', '.join(NodeConfig.__struct_fields__)}"
    try:
        config = msgspec.convert(read_toml(path, "a node's configuration", ConfigError), NodeConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(str(path), _plain(str(error)), fix) from None
    # Paths are relative to the file, wherever the command is called.
    named = {"keys": config.keys, "store": config.store}
    beside = {name: str(path.parent / value) for name, value in named.items() if value}
    return msgspec.structs.replace(config, **beside)


def _check_who(config: NodeConfig, what: str) -> None:
    """Either every member is named, or a contact: which of the two is the protocol's."""
    protocol = f"protocol {config.protocol!r}"
    if config.protocol == Log.name:
        return  # `join` says what is missing
    if not registry.lookup(config.protocol).overlay:
        if not config.peers:
            raise ConfigError(what, "Object missing required field `peers`", f"{protocol} needs every member")
        for name in ("contact", "shuffle_s"):
            if getattr(config, name) is not None:
                raise ConfigError(
                    what, f"{protocol} has a list of members, and no `{name}`", "Leave it out, or use 'prc'"
                )
    elif config.peers:
        raise ConfigError(
            what,
            f"{protocol} has no list of members",
            "Leave `peers` out; set `listen`, and `contact` unless this is the first process",
        )
    elif config.listen is None:
        raise ConfigError(
            what, f"{protocol} needs `listen`: where the others find this process", "Set it, or use --listen"
        )


def _plain(text: str) -> str:
    """msgspec's words, with its paths (`$.limits`) as a reader of TOML would write them."""
    return re.sub(r" - at `\$\.?([^`]*)`", lambda found: f" (at {found[1] or 'the top'})", text)
