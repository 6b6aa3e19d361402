"""Beyond paper 000, its future work: nodes crash, VCube's own tests find it, and the trees close the gap.

All nodes broadcast by and by; some crash at one time, for good. Counted are: how long after the crash the
first node and the last one know of it, the latency of messages among the survivors before the crash, until
all know of it, and after, and the packets that tests and tallies cost. Simulated through the cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from whence.core.message import NodeId, Packet
from whence.core.protocol import Protocol
from whence.lab.observer import Observer
from whence.lab.run import run
from whence.protocols.vcube.control import MemberPacket
from whence.protocols.vcube.members import VCubeMembers
from whence.sim.distributions import Normal
from whence.sim.model import Crash, Link, Poisson, Record, Scenario, Stop, node_names
from whence.sim.outcome import Outcome
from whence.studies.vcube.claims import TEST_INTERVAL_US, TEST_TIMEOUT_US
from whence.trace.measures import Value
from whence.trace.schema import Kind, Level

CRASH_US = 2_000_000
BROADCASTS_STOP_US, END_US = 6_000_000, 10_000_000
CASES = {"no crash": 0, "1 crash": 1, "4 crashes": 4}
PHASES = ("before", "during", "after")


def crash_scenario(nodes: int, crashed: int, seed: int) -> Scenario:
    """The network of R0; the last `crashed` nodes of the cube crash together."""
    return Scenario(
        name="vcube-crashes",
        protocol="vcube",
        nodes=nodes,
        seed=seed,
        params={
            "detect": True,
            "test_interval_us": TEST_INTERVAL_US,
            "test_timeout_us": TEST_TIMEOUT_US,
            "size_model": "paper",
        },
        link=Link(delay=Normal(mean_us=100_000, deviation_us=25_000), service_us=1_000, process_us=1_000),
        workloads=[Poisson(interval_us=20_000 * nodes, stop_us=BROADCASTS_STOP_US, payload_bytes=50)],
        faults=[Crash(nodes=node_names(nodes)[-crashed:], at_us=CRASH_US)] if crashed else [],
        stop=Stop(duration_us=END_US, drain=False),
        record=Record(level="deliveries"),
    )


def run_crashes(scenario: Scenario, folder: Path, level: Level | None = None) -> Outcome:
    """Run it through the cores and count."""
    return run(scenario, folder, level=level, observers=[CrashWatch(scenario)])


class CrashWatch(Observer):
    """Sees who knows of the crash since when, and how long messages take among those that survive it."""

    level = Level.DELIVERIES

    def __init__(self, scenario: Scenario) -> None:
        names = node_names(scenario.nodes)
        crashes = [fault for fault in scenario.faults if isinstance(fault, Crash)]
        self._crashed = {name for fault in crashes if isinstance(fault.nodes, list) for name in fault.nodes}
        self._places = {names.index(name) for name in self._crashed}
        self._knows_us: dict[NodeId, int] = {}
        self._born_us: dict[tuple[str, int], int] = {}
        self._latencies: list[tuple[int, int]] = []  # time of the broadcast, latency
        self._data_packets = self._test_packets = 0

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
        """Keep the broadcasts and deliveries of survivors."""
        if origin is None or origin in self._crashed or node in self._crashed:
            return
        if kind == Kind.BROADCAST:
            self._born_us[origin, number] = time_us
        elif kind == Kind.DELIVER and node != origin:
            born_us = self._born_us[origin, number]
            self._latencies.append((born_us, time_us - born_us))

    def sent(self, core: Protocol, to: tuple[NodeId, ...], packet: Packet, time_us: int) -> None:
        """Count a packet, and look what its sender knows: every node tests others all the time."""
        if cast(MemberPacket, packet).messages:
            self._data_packets += len(to)
        else:
            self._test_packets += len(to)
        if core.me in self._crashed or core.me in self._knows_us or not self._places:
            return
        if self._places <= set(cast(VCubeMembers, core).roster.gone):
            self._knows_us[core.me] = time_us

    def finished(self, cores: Sequence[Protocol], time_us: int) -> Mapping[str, Value]:
        """Return times since the crash, and sums of latencies by phase."""
        survivors = len(cores) - len(self._crashed)
        known = sorted(self._knows_us.values())
        all_us = known[-1] if len(known) == survivors else CRASH_US
        counted: dict[str, Value] = {
            "survivors": survivors,
            "survivors_that_know": len(known),
            "first_knows_us": known[0] - CRASH_US if known else 0,
            "all_know_us": known[-1] - CRASH_US if known else 0,
            "data_packets": self._data_packets,
            "test_packets": self._test_packets,
            "broadcasts_of_survivors": len(self._born_us),
        }
        edges = (0, CRASH_US, all_us, END_US)
        for phase, low, high in zip(PHASES, edges[:-1], edges[1:], strict=True):
            found = [latency_us for born_us, latency_us in self._latencies if low <= born_us < high]
            counted |= {f"copies_{phase}": len(found), f"latency_{phase}_us": sum(found)}
        return counted


def derive(counted: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers of one run: times in u.t., of which one is a millisecond."""
    copies = sum(counted[f"copies_{phase}"] for phase in PHASES)
    survivors, broadcasts = counted["survivors"], counted["broadcasts_of_survivors"]
    crashed = counted["survivors_that_know"] > 0
    found: dict[str, float | None] = {
        "first_knows_ut": counted["first_knows_us"] / 1000 if crashed else None,
        "all_know_ut": counted["all_know_us"] / 1000 if crashed else None,
        "survivors_without_news": survivors - counted["survivors_that_know"] if crashed else None,
        "survivors_missed": broadcasts * (survivors - 1) - copies,
        "data_packets_per_broadcast": counted["data_packets"] / broadcasts if broadcasts else None,
        "tests_per_node_and_second": counted["test_packets"] / survivors / (END_US / 1e6),
    }
    for phase in PHASES:
        count = counted[f"copies_{phase}"]
        found[f"latency_{phase}_ut"] = counted[f"latency_{phase}_us"] / count / 1000 if count else None
    return found
