"""Scenario files: TOML to `Scenario` and back, with errors that name the file, the line, the field.

scenario = load(Path("examples/scenarios/partition.toml"))
other = from_dict({"nodes": 4, "protocol": "vector", ...})
run_id(scenario)        # names the run: the hash of every parameter that is not its default
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec

from whence.errors import ScenarioError
from whence.sim import model
from whence.sim.distributions import Delay, Distribution
from whence.sim.model import Fault, Scenario, Topology, Workload
from whence.sim.validation import kinds, validate
from whence.toml import read_toml

__all__ = ["Scenario", "change", "checked", "dumps", "from_dict", "load", "run_id", "to_dict"]

_AT = re.compile(r"^(?P<reason>.*?)(?: - at `\$?\.?(?P<path>[^`]*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")


def load(path: Path, changes: Iterable[str] = ()) -> Scenario:
    """Read a scenario file; `changes` are `key.path=value` assignments on top of it."""
    data = read_toml(path, "a scenario", ScenarioError)
    for assignment in changes:
        change(data, assignment)
    try:
        return from_dict(data)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error.what}", error.reason, error.fix) from error


def from_dict(data: Mapping[str, Any]) -> Scenario:
    """A checked scenario from plain data, as in a TOML file."""
    try:
        scenario = msgspec.convert(data, Scenario)
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from error
    validate(scenario)
    return scenario


def to_dict(scenario: Scenario) -> dict[str, Any]:
    """Plain data with every field, defaults included: what a manifest keeps."""
    plain: dict[str, Any] = msgspec.to_builtins(scenario)
    return plain


def checked(scenario: Scenario) -> Scenario:
    """The same scenario after all checks: one that was built in Python has not seen them yet."""
    return from_dict(to_dict(scenario))


def run_id(scenario: Scenario) -> str:
    """Return the name of the run: 16 hex digits of the hash of all that differs from the defaults.

    So a new field of the language, with a default that changes nothing, renames no run.
    """
    text = json.dumps(_given(scenario), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _given(value: Any) -> Any:
    """Return plain data without the fields that have their default; `kind` stays."""
    if isinstance(value, list | tuple):
        return [_given(element) for element in value]
    if not isinstance(value, msgspec.Struct):
        return value
    tag = value.__struct_config__.tag
    plain: dict[str, Any] = {} if tag is None else {"kind": tag}
    for field in _fields(type(value)):
        now = getattr(value, field.name)
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if default is msgspec.NODEFAULT or now != default:
            plain[field.name] = _given(now)
    return plain


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a class; asking compiles its annotations every time."""
    return msgspec.structs.fields(kind)


def change(data: dict[str, Any], assignment: str) -> None:
    """Carry out one `key.path=value` on plain data; numbers in the path index lists."""
    path, equals, text = assignment.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ScenarioError(f"assignment {assignment!r}", "it is not key.path=value", "E.g. link.loss=0.1")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()  # a bare word is a string
    target: Any = data
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        if isinstance(target, list):
            if not key.isdigit() or int(key) >= len(target):
                raise _no_place(assignment, ".".join(keys[:depth]), f"it has no element {key!r}")
            if last:
                target[int(key)] = value
            else:
                target = target[int(key)]
        elif isinstance(target, dict):
            if last:
                target[key] = value
            else:
                target = target.setdefault(key, {})
        else:
            raise _no_place(assignment, ".".join(keys[:depth]), "it is neither a table nor a list")


def _no_place(assignment: str, where: str, reason: str) -> ScenarioError:
    return ScenarioError(f"assignment {assignment!r}, {where!r}", reason, "See docs/scenarios.md")


# What msgspec says, in the words of this package


def _explained(text: str) -> ScenarioError:
    match = _AT.match(text)
    reason = match["reason"] if match else text
    path = (match["path"] if match else None) or ""
    fix = "See docs/scenarios.md for the fields, their units and ranges"
    unknown = _UNKNOWN.search(reason)
    if unknown:
        path = f"{path}.{unknown['name']}".lstrip(".")
        reason = "there is no such field"
        near = difflib.get_close_matches(unknown["name"], _field_names(), n=1)
        if near and near[0] != unknown["name"]:
            fix = f"Did you mean {near[0]!r}? {fix}"
    if path.endswith("kind") or "Invalid value" in reason:
        fix = f"The kinds are {_kinds_for(path)}. {fix}"
    return ScenarioError(f"scenario field '{path}'" if path else "scenario", reason, fix)


def _kinds_for(path: str) -> str:
    unions = {"topology": Topology, "workloads": Workload, "faults": Fault}
    name = re.split(r"[.\[]", path, maxsplit=1)[0]
    union = Distribution if ".delay" in path or ".lasting" in path else unions.get(name, Distribution)
    if re.match(r"(link|control|overrides\[\d+\])\.delay", path):
        union = Delay
    return ", ".join(kinds(union))


def _field_names() -> list[str]:
    """Every field name of every section, for "did you mean"."""
    found: set[str] = set()
    for each in vars(model).values():
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            found.update(each.__struct_fields__)
    for each in get_args(Delay):
        found.update(each.__struct_fields__)
    return sorted(found)


# Writing TOML


def dumps(scenario: Scenario) -> str:
    """The scenario as a TOML file that `load` reads back to the same scenario."""
    plain = to_dict(scenario)
    lines = [f"{key} = {_inline(value)}" for key, value in plain.items() if _is_simple(value)]
    for key, value in plain.items():
        if isinstance(value, dict):
            lines += ["", f"[{key}]", *_pairs(value)]
    for key, value in plain.items():
        if isinstance(value, list):
            for element in value:
                lines += ["", f"[[{key}]]", *_pairs(element)]
    return "\n".join(lines) + "\n"


def _is_simple(value: object) -> bool:
    return value is not None and not isinstance(value, dict | list)


def _pairs(table: Mapping[str, Any]) -> list[str]:
    """TOML has no null: a field that is None is left out."""
    return [f"{_key(key)} = {_inline(value)}" for key, value in table.items() if value is not None]


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(_pairs(value)) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    # Strings, numbers and booleans are written in TOML as in JSON; DEL alone must be escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
