"""What many scenarios share, and where they differ: so that a page can hold all of them and be read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def flatten(parameters: Mapping[str, Any] | Sequence[Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables and lists as dotted keys, as `whence simulate --set` takes them."""
    flat: dict[str, Any] = {}
    pairs = parameters.items() if isinstance(parameters, Mapping) else enumerate(parameters)
    for key, value in pairs:
        if isinstance(value, Mapping | list | tuple) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def split(all_parameters: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The dotted parameters that all share, and for each the rest. Nothing is in both, nothing is lost."""
    flat = [flatten(parameters) for parameters in all_parameters]
    if not flat:
        return {}, []
    common = {
        key: value for key, value in flat[0].items() if all(key in one and one[key] == value for one in flat)
    }
    return common, [{key: value for key, value in one.items() if key not in common} for one in flat]


def assignments(parameters: Mapping[str, Any]) -> list[str]:
    """`key = value` for each parameter, the value as JSON."""
    return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in parameters.items()]
