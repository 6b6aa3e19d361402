"""TOML files, read alike everywhere: what is wrong with one names the file, the reason and the fix."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from whence.errors import DataError


def read_toml(path: Path, kind: str, error: type[DataError]) -> dict[str, Any]:
    """What a file says; `kind` is what it should be ("a scenario"), `error` what is raised else."""
    return parsed(read_text(path, kind, error), path, error)


def read_text(path: Path, kind: str, error: type[DataError]) -> str:
    """Its text. The mark that some editors put before UTF-8 is no part of it."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as problem:
        fix = f"Give the path of {kind} (a TOML file)"
        raise error(str(path), problem.strerror or str(problem), fix) from problem
    except UnicodeDecodeError as problem:
        reason = f"it is not valid TOML: its text is not UTF-8 ({problem.reason})"
        raise error(str(path), reason, "Save it as UTF-8") from problem


def parsed(text: str, path: Path, error: type[DataError]) -> dict[str, Any]:
    """What its text says."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise error(str(path), f"it is not valid TOML ({problem})", "Correct that place") from problem
