"""What one run did, in numbers, whichever path it took.

Here and not in `lab`, because kernels, which `lab` calls, return it too.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from whence.core.message import NodeId
from whence.sim.model import Scenario
from whence.sim.series import RunSeries
from whence.trace.measures import Value
from whence.trace.schema import Manifest, PromisesMade

WRITER = "sim"  # the name of the simulator among a trace's writers


class Held(Struct, frozen=True, kw_only=True):
    """A message that a node still held back at the end, and what it waited for ("origin:number")."""

    message: str
    since_us: int
    missing: list[str]


class Outcome(Struct, frozen=True, kw_only=True):
    """One run. None: this path does not count it."""

    run: str
    scenario: Scenario
    promises: PromisesMade
    drained: bool | None = None  # it ended because nothing was left to happen (timers apart)
    final_us: int | None = None
    steps: int | None = None  # inputs given to cores, and samples
    broadcasts: int
    skipped_broadcasts: int = 0  # due while the sender was down
    deliveries: int
    undelivered: int  # broadcasts x nodes - deliveries; of point-to-point protocols broadcasts - deliveries
    packets: int | None = None  # packets given to links, one per receiver
    control_packets: int | None = None  # of these, solicitations and replies to them
    lost_packets: int | None = None
    duplicated_packets: int | None = None
    in_flight: int | None = None  # packets that had not arrived at the end
    discards: dict[str, int] | None = None  # by reason
    expiries: dict[str, int]  # messages that came or waited too long, by reason
    waiting: dict[NodeId, list[Held]] | None = None  # nodes that hold nothing are left out
    path: Literal["core", "kernel"]
    why: str  # that path, in words
    series: RunSeries | None = None  # over windows, with `record.window_us`
    measures: dict[str, Value] = field(default_factory=dict)  # the content of measures.json
    manifest: Manifest | None = None  # of the trace, if one was written
    detail: Any = None  # what a kernel kept of its arrays: for functions that measure, never saved
