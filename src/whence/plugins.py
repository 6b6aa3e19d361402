"""Plug-ins: protocols, kernels, studies and readers of logs that other packages bring, found by name.

A plug-in is a module with one or more of these names:

    PROTOCOLS   `ProtocolInfo`s (protocols/registry.py)
    KERNELS     `KernelEntry`s (kernels/contract.py)
    STUDIES     `Study`s (studies/base.py)
    READERS     `LogReader`s (foreign/mapping.py)

It is found if its distribution names it under the entry points `whence.plugins`, or if the variable
WHENCE_PLUGINS has it (module names with commas between; `--plugin` adds to it, so that processes that this
one starts find it too). A plug-in is imported when a name is asked for that Whence itself does not know, or
all names are listed; one that cannot be used costs its own names only, and `problems` says why.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from whence.errors import PluginError

ENTRY_POINTS = "whence.plugins"
VARIABLE = "WHENCE_PLUGINS"
ATTRIBUTES = ("PROTOCOLS", "KERNELS", "STUDIES", "READERS")

Kind = TypeVar("Kind")

_REFUSED: dict[tuple[str, str, int], PluginError] = {}  # by module, attribute and place


class _Found(NamedTuple):
    """The plug-ins of this process: by the names of their modules, and what is wrong with the others."""

    modules: dict[str, ModuleType]
    problems: tuple[PluginError, ...]


def names() -> tuple[str, ...]:
    """The modules of all plug-ins that can be used, those of the variable first."""
    return tuple(_found(_wanted()).modules)


def use(*modules: str) -> None:
    """Take up plug-ins by the names of their modules, here and in processes that this one starts.

    Raises `PluginError` if one cannot be imported, or brings nothing.
    """
    for module in modules:
        _load(module)
    os.environ[VARIABLE] = ",".join(dict.fromkeys([*_asked(), *modules]))


def problems() -> tuple[PluginError, ...]:
    """What is wrong with plug-ins, as far as they were asked for what they declare."""
    return (*_found(_wanted()).problems, *_REFUSED.values())


def declared(attribute: str, kind: type[Kind], own: Container[str]) -> dict[str, Kind]:
    """What plug-ins declare under `attribute`, by name; `own` are the names that Whence has itself.

    A thing whose name is taken, or that is not a `kind`, is left out and found in `problems`.
    """
    known: dict[str, Kind] = {}
    for module, plugin in _found(_wanted()).modules.items():
        for at, thing in enumerate(getattr(plugin, attribute, ())):
            name = getattr(thing, "name", None)
            if not isinstance(thing, kind) or not isinstance(name, str):
                reason = f"{attribute}[{at}] is a {type(thing).__name__}, not a {kind.__name__}"
            elif name in own or name in known:
                reason = f"it declares {name!r} in {attribute}, and that name is taken"
            else:
                known[name] = thing
                continue
            error = PluginError(f"plug-in {module!r}", reason, "Repair it, or give it another name")
            _REFUSED[module, attribute, at] = error
    return known


def packages() -> list[ModuleType]:
    """The top-level packages or modules of all plug-ins, for machines that do not have them."""
    tops = dict.fromkeys(name.partition(".")[0] for name in names())
    return [sys.modules[top] for top in tops]


def _wanted() -> tuple[str, ...]:
    return tuple(dict.fromkeys([*_asked(), *_installed()]))


def _asked() -> list[str]:
    return [name for each in os.environ.get(VARIABLE, "").split(",") if (name := each.strip())]


@cache
def _installed() -> tuple[str, ...]:
    """The modules that installed distributions name; asking for them takes milliseconds."""
    from importlib import metadata  # so does this import, and most processes never ask

    return tuple(sorted(point.value for point in metadata.entry_points(group=ENTRY_POINTS)))


@cache
def _found(wanted: tuple[str, ...]) -> _Found:
    modules: dict[str, ModuleType] = {}
    problems: list[PluginError] = []
    for name in wanted:
        try:
            modules[name] = _load(name)
        except PluginError as error:
            problems.append(error)
    return _Found(modules, tuple(problems))


def _load(name: str) -> ModuleType:
    what = f"plug-in {name!r}"
    try:
        module = import_module(name)
    except Exception as error:  # whatever a stranger's module raises is its own fault
        fix = "Install it beside whence, give the name of its module, or repair it"
        raise PluginError(what, f"it cannot be imported ({type(error).__name__}: {error})", fix) from error
    things: Any = [getattr(module, attribute, ()) for attribute in ATTRIBUTES]
    if not any(things):
        fix = f"Name a module that defines one of {', '.join(ATTRIBUTES)} (docs/plugins.md)"
        raise PluginError(what, "it brings nothing", fix)
    return module
