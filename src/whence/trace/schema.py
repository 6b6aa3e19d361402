"""The trace's vocabulary: event kinds, columns, manifest. Standard library and msgspec only.

A trace is a folder. Each writer puts its parts (`<writer>-00000.parquet`, ...) and one manifest
(`<writer>.manifest.json`) there: a simulation is one writer, a live group one writer per node, so
that merging the traces of several processes means putting their files into one folder.

At rest a Parquet row is an event (FLAT_SCHEMA in columns.py), and a segment, some consecutive events of
one node, lies in one row group. In memory and in files of version 1 a row packs a segment into array
columns, and carries its own table of names: `origin` and `peer` are indices into the same row's `names`
(-1 for none). docs/trace-format.md has the argument and the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import msgspec

from whence.errors import TraceError

FORMAT = "whence-trace"
VERSION = 2
VERSIONS = (1, VERSION)  # that can be read
MANIFEST_SUFFIX = ".manifest.json"
LATER_LIVES = 1_700_000_000_000 << 20  # numbers beyond it are of later lives (core/group.py has the rule)
SEGMENT_EVENTS = 4096  # consecutive events of one node that are written together, at most

FLAT_COLUMNS = (
    "run", "node", "segment", "seq", "time_us", "kind", "origin", "number", "peer", "total_bytes",
    "control_bytes", "detail",
)  # fmt: skip


class Kind(IntEnum):
    """The kinds of events. Numbers are part of the format: never reuse one."""

    BROADCAST = 1
    SEND = 2
    RECEIVE = 3
    DELIVER = 4
    EXPIRE = 5
    DISCARD = 6
    LINK_UP = 7
    LINK_DOWN = 8
    CRASH = 9
    RESTART = 10
    SAMPLE = 11  # a gauge: `detail` is its name, `number` its value
    TIMER = 12  # a timer of the core expired: `detail` is its key
    COMMAND = 13  # an overlay's decision for the core: `detail` is a JSON array, the verb and its names
    MISSED = 14  # numbers up to `number` will not be delivered: `detail` is the first of them and the reason
    SPEAK = 15  # the core broadcasts a message of its own, and delivers it
    STABLE = 16  # the origin's messages up to `number` are stable at the node


class Recorder(Protocol):
    """Where a host writes events. The writer is one; a host that records nothing is given none.

    Events of one node must come in the node's own order: the recorder numbers them (`seq`).
    """

    def event(
        self,
        node: str,
        time_us: int,
        kind: Kind,
        origin: str | None = None,
        number: int = 0,
        peer: str | None = None,
        total_bytes: int = 0,
        control_bytes: int = 0,
        detail: str | None = None,
    ) -> None: ...


class Level(IntEnum):
    """How much a run records."""

    MEASURES = 0  # nothing but broadcast and counters; for kernels that measure themselves
    DELIVERIES = 1  # what the verifier needs: broadcast, deliver, expire, crash, restart, samples
    ALL = 2  # every event: needed for packet metrics and for replay


VERIFIED_KINDS = (
    Kind.BROADCAST,
    Kind.DELIVER,
    Kind.EXPIRE,
    Kind.CRASH,
    Kind.RESTART,
    Kind.SPEAK,
)


def command_text(verb: str, names: tuple[str, ...]) -> str:
    """The `detail` of a COMMAND row."""
    return msgspec.json.encode([verb, *names]).decode()


KILLED = " after a kill"  # ends the `detail` of a RESTART row whose node had not left in order


def command_of(detail: str | None) -> tuple[str, tuple[str, ...]]:
    """Verb and names of a COMMAND row."""
    try:
        words = msgspec.json.decode(detail or "", type=list[str])
    except msgspec.DecodeError:
        words = []
    if not words:
        raise TraceError(
            f"detail {detail!r} of a command", "it is not a JSON array of a verb and names", "Record it again"
        )
    return words[0], tuple(words[1:])


class Segment(NamedTuple):
    """Consecutive events of one node, as columns."""

    node: str
    first_seq: int
    names: list[str]
    integers: list[bytes]  # little-endian 64-bit integers, one per integer column
    details: Sequence[str | None]

    @property
    def events(self) -> int:
        """How many events the segment holds."""
        return len(self.details)


class PromisesMade(msgspec.Struct, frozen=True, kw_only=True):
    """The promises of the protocol under this run's circumstances; the verifier demands just that."""

    causal: bool = True
    fifo: bool = True
    no_duplicates: bool = True
    complete: bool = False
    timely: bool = False  # nothing is delivered after its lifetime
    clock_slack_us: int = 0  # how far the clocks of this run may be apart: `timely` is judged with it


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file of a writer."""

    file: str
    rows: int
    events: int
    size_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A writer's description of its parts."""

    format: str = FORMAT
    version: int = VERSION
    run: str
    writer: str
    protocol: str
    parameters: dict[str, Any]  # everything needed to repeat the run
    promises: PromisesMade
    seed: int | None
    software: str
    nodes: list[str]  # all members that the writer knows of, sorted; completeness is judged on these
    level: str
    events: int
    trace_hash: str  # sha256 over the events themselves, independent of Parquet (docs/trace-format.md)
    parts: list[Part]
    unfinished: bool | msgspec.UnsetType = msgspec.UNSET  # true: its writer was interrupted, or has not ended
