"""What `make jars` has fetched."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "jars.py"


def jars(name: str) -> list[Path]:
    """The files of a set; where they are missing, the test is skipped by name."""
    spec = importlib.util.spec_from_file_location("jars", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    found: list[Path] = tool.jars_of(name)
    if not found:
        pytest.skip(f"no jars of the set {name!r}: make jars, or python tools/jars.py {name}")
    return found
