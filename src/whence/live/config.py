"""The configuration file of `whence node`: TOML, every field checked, every problem named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from whence.errors import ConfigError
from whence.live.limits import Limits
from whence.live.linkfaults import LinkFaults
from whence.protocols import registry


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a configuration file may say; the words are those of `whence.join`."""

    group: str
    peers: dict[str, str]
    node: str = ""  # may be given on the command line instead
    listen: str | None = None
    protocol: str = "vector"
    params: dict[str, Any] = {}
    limits: Limits = Limits()
    transport: str | None = None  # None: that for which the protocol is made
    faults: LinkFaults | None = None
    lifetime: float | None = None  # seconds, for protocols with lifetimes
    store: str | None = None  # a file: the node is durable
    keys: str | None = None  # a folder, relative to that of the file
    plaintext: bool = False


def load_config(path: Path, node: str | None = None) -> NodeConfig:
    """Read a file; `node` replaces the file's own."""
    fix = f"Correct it; the fields are: {', '.join(NodeConfig.__struct_fields__)}"
    try:
        config = msgspec.toml.decode(path.read_bytes(), type=NodeConfig)
    except OSError as error:
        raise ConfigError(str(path), error.strerror or str(error), "Give the path of a TOML file") from error
    except msgspec.ValidationError as error:
        raise ConfigError(str(path), _plain(str(error)), fix) from None
    except ValueError as error:  # not TOML, or not text
        raise ConfigError(str(path), f"it is not TOML ({error})", "Correct the syntax") from None
    if config.keys is not None:
        config = msgspec.structs.replace(config, keys=str(path.parent / config.keys))
    if node is not None:
        config = msgspec.structs.replace(config, node=node)
    if not config.node:
        raise ConfigError(str(path), "it does not say which node this is", "Set `node`, or use --node NAME")
    # Before `params` become keywords of `join`, where a name of its own would be a clash.
    registry.require_live(config.protocol)
    registry.make(config.protocol, config.node, [config.node, *config.peers], config.params)
    return config


def _plain(text: str) -> str:
    """msgspec's words, with its paths (`$.limits`) as a reader of TOML would write them."""
    return re.sub(r" - at `\$\.?([^`]*)`", lambda found: f" (at {found[1] or 'the top'})", text)
