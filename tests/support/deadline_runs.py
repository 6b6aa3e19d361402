"""Simulated runs of paper 002's protocols, judged by the verifier and by a count of late deliveries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from support.running import simulate
from whence.core.protocol import Protocol
from whence.sim.model import Scenario, node_names
from whence.sim.outcome import Outcome
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind, Level, PromisesMade
from whence.verify.report import Counts
from whence.verify.run import verify_table

ORDERED = PromisesMade(causal=True, fifo=True, no_duplicates=True, complete=False)


class Watched(MemoryTrace):
    """Counts deliveries after the deadline by true time: nothing here is the verifier's or a core's."""

    def __init__(self) -> None:
        super().__init__()
        self.ends_us: dict[tuple[str | None, int], int] = {}
        self.late = 0

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
    ) -> None:
        super().event(node, time_us, kind, origin, number, peer, total_bytes, control_bytes, detail)
        if kind == Kind.BROADCAST:
            assert detail is not None
            self.ends_us[origin, number] = time_us + int(detail)
        elif kind == Kind.DELIVER and node != origin:
            self.late += time_us > self.ends_us[origin, number]


class Judged(NamedTuple):
    """What a run did and what is wrong with it."""

    result: Outcome
    counts: Counts  # the verifier's
    late: int
    cores: list[Protocol]

    @property
    def wrong(self) -> dict[str, int]:
        """Everything that a safe run has none of."""
        counts = self.counts
        found = {
            "causal": counts.causal,
            "fifo": counts.fifo,
            "duplicate": counts.duplicate,
            "created": counts.created,
            "malformed": counts.malformed,
            "late": self.late,
        }
        return {name: count for name, count in found.items() if count}


def judge(
    scenario: Scenario, make: Callable[..., Protocol] | None = None, *, check: bool = False, **params: Any
) -> Judged:
    """Run and judge; `make(me, members, **params)` makes other cores than the scenario's."""
    cores: list[Protocol] = []

    def kept(me: str, members: Any) -> Protocol:
        assert make is not None
        cores.append(make(me, members, **params))
        return cores[-1]

    trace = Watched()
    result = simulate(scenario, trace, make=kept if make else None, level=Level.DELIVERIES, check=check)
    report = verify_table(trace.table("run"), ORDERED, node_names(scenario.nodes))
    return Judged(result, report.counts, trace.late, cores)
