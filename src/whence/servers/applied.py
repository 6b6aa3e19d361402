"""What was applied: the shape of a running system, and the description that it was made from.

`FOLDER/applied.json` is the truth about a system's domains. The description may be edited at any time: what
it says of domains and servers counts when `whence mom apply` has taken it over.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from whence.errors import ConfigError, writing
from whence.overlay.shape import Shape


class Applied(msgspec.Struct, frozen=True):
    """The newest shape, and the text of the description that led to it."""

    shape: Shape
    description: str


def path_of(folder: Path) -> Path:
    """Where it is kept."""
    return folder / "applied.json"


def read_applied(folder: Path) -> Applied | None:
    """What was applied in a folder; None if nothing was yet."""
    path = path_of(folder)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Applied)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            str(path), f"it cannot be read ({error})", "Restore it from a copy: every store counts on it"
        ) from error


def write_applied(folder: Path, applied: Applied) -> None:
    """Replace it, in one step."""
    path = path_of(folder)
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(applied), indent=2))
        temporary.replace(path)
