"""The measures that a run counted of itself: `measures.json` beside its trace.

A kernel counts while it runs, so that a run of a million packets needs no trace of ten million events to
be measured. The names are those of the kernel's own measures; each value is an integer, a list of integers
or a table of integers (a histogram). Where a full trace of the same run exists, Spark computes the same
numbers from it: tests/spark/test_kernel_measures.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import msgspec

from whence.errors import TraceError

MEASURES_FILE = "measures.json"
FORMAT = "whence-measures"
VERSION = 1

# The keys of a table are numbers in the kernel and text in JSON.
Value: TypeAlias = int | list[int] | dict[str, int]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `measures.json`."""

    format: str = FORMAT
    version: int = VERSION
    run: str
    protocol: str
    counted_by: str  # which program counted
    measures: dict[str, Value]


def write_measures(folder: Path, measured: Measured) -> Path:
    """Write the file as a whole or not at all."""
    path = folder / MEASURES_FILE
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_bytes(msgspec.json.encode(measured))
        return temporary.replace(path)
    except OSError as error:
        raise TraceError(
            str(path), f"it cannot be written ({error.strerror})", "Check permissions and the free space"
        ) from error


def read_measures(folder: Path) -> Measured | None:
    """The measures beside a trace; None where the run counted none. Refuses what is damaged or foreign."""
    path = folder / MEASURES_FILE
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Measured)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(path, f"it cannot be read ({error.strerror})") from error
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise _refused(path, f"it holds no measures ({error})") from error
    if (found.format, found.version) != (FORMAT, VERSION):
        raise _refused(path, f"it is {found.format!r} version {found.version}, not {FORMAT!r} {VERSION}")
    return found


def _refused(path: Path, reason: str) -> TraceError:
    return TraceError(str(path), reason, "Remove the run's folder and run it again")
