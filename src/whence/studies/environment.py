"""Where a result comes from: versions, machine, commit. What a reader needs besides the parameters."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path

LIBRARIES = ("msgspec", "pyarrow", "numpy", "numba", "pyspark", "pandas", "matplotlib")


def version() -> str:
    """Whence's own version; `unknown` when it runs from a tree that was never installed."""
    return _installed("whence") or "unknown"


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    """Whence, Python, the machine, and each library (None where it is not installed)."""
    found: dict[str, str | None] = {
        "whence": version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    return found | {name: _installed(name) for name in LIBRARIES}


def git_commit() -> str | None:
    """The commit of the source tree that runs, `+` after it if files differ; None outside a clone."""
    here = Path(__file__).parent
    commit = _git(here, "rev-parse", "--short=12", "HEAD")
    if not commit or not _git(here, "ls-files", Path(__file__).name):
        return None  # no git, no clone, or installed below some other project's clone
    changed = _git(here, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}+" if changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
