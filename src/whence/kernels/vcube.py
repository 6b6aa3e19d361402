"""The kernel of VCube: the paper's simulation model at some 10^6 packets a second.

    outcome = run(scenario)                  # a whence.sim Scenario of protocol "vcube"
    outcome.measures.reduction()             # Table 1 and all the other measures: vcube_measures.py
    run(scenario, trail=True).trail          # arrival and delivery of every copy (Figure 8)
    run(scenario, level=Level.ALL).events    # every event, equal to the simulator's

The scenario is the simulator's own, and so is the outcome: same packets, same times, same deliveries
in the same order, bit for bit (tests/equivalence/test_vcube_kernel.py). `refusal` says why a scenario
is outside of what is tested; `kernels.dispatch` chooses. The model R0 of the specification is

    [link]          delay = normal, mean 100_000, deviation 25_000; service_us = 1_000; process_us = 1_000
    [[workloads]]   kind = "window", count = 1, stop_us = 500_000, payload_bytes = 50
    [params]        size_model = "paper" (mtu_bytes = 1500); aggregate; tree
    [topology]      kind = "full"; from 2,000 nodes on "hypercube" (`rooted` for the single tree)

with one unit of time as 1,000 us; R1 has the deviation 35_400 and the window 550_000 (us). Memory: 13 bytes
for each pair of nodes and 36 for each packet in flight, 0.5 GB at 4,096 nodes; where nodes broadcast more
than once, 4 more for each pair and 5 for each copy.

Definitions: a copy *arrives* when its packet has been processed at the receiver (tpc after tpp). It is
*delayed* if it is delivered later than that; what is delivered in the step in which it arrives was never
held. `queued_us` is the time from the sending request to the beginning of the transmission (tq). With
`tree = "single"`, the packet to the root and the way back to the source are counted as packets; the
source's own copy counts neither as a reception nor as a delivery.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.errors import MisuseError
from whence.kernels import vcube_arrays as a
from whence.kernels.calendar import IN_FLIGHT, NODES_MAX
from whence.kernels.compile import Array
from whence.kernels.rng import delay_code
from whence.kernels.vcube_engine import advance
from whence.kernels.vcube_measures import Measures, trimmed
from whence.kernels.vcube_tables import make_state
from whence.protocols import registry
from whence.protocols.vcube import VCube
from whence.sim.model import Full, Hypercube, Replies, Scenario, node_names
from whence.sim.network import make_graph
from whence.trace.schema import Kind, Level, Recorder


@dataclass(frozen=True)
class Trail:
    """The way of every copy. Row: node; column: message, by (origin, number); -1 or 0 where there is none."""

    origin: Array
    number: Array
    broadcast_us: Array
    received_us: Array  # [nodes, messages]
    delivered_us: Array  # [nodes, messages]
    together: Array  # [nodes, messages]: messages in the packet that brought it


@dataclass(frozen=True)
class Events:
    """Every event in the order in which it happened, as the simulator's driver records it."""

    rows: Array  # int64 [events, 9]: the columns E_ of vcube_arrays.py
    messages: Array  # int64 [., 2]: origin and number of each packet's messages, one packet after the other


@dataclass(frozen=True)
class Outcome:
    """What a run did."""

    scenario: Scenario
    measures: Measures
    broadcasts: int
    deliveries: int  # own messages included
    steps: int
    in_flight: int
    drained: bool
    trail: Trail | None
    events: Events | None


def refusal(scenario: Scenario) -> str | None:
    """Why the kernel does not take this scenario; None if it does."""
    if scenario.protocol != VCube.name:
        return f"there is no kernel for protocol {scenario.protocol!r}"
    core = registry.make(scenario.protocol, "n0", ["n0"], scenario.params)
    if type(core) is not VCube:
        return f"its parameters ask for the core {type(core).__name__}, which the kernel does not know"
    link = scenario.link
    reasons = (
        (bool(scenario.faults), "there are faults"),
        (bool(scenario.overrides), "some links differ from the others"),
        (bool(link.loss or link.hop_loss or link.duplicate), "links lose or duplicate packets"),
        (link.hop_delay_us > 0, "the delay depends on the way"),
        (link.fifo, "links are FIFO"),
        (link.bandwidth_bytes_per_s is not None, "links have a bandwidth"),
        (delay_code(link.delay) is None, "the delay is neither constant nor uniform nor normal"),
        (not isinstance(scenario.topology, Full | Hypercube), "the topology is neither full nor hypercube"),
        (any(isinstance(each, Replies) for each in scenario.workloads), "nodes reply to each other"),
        (scenario.record.sample_every_us is not None, "gauges are sampled"),
        (scenario.nodes > NODES_MAX, f"there are more than {NODES_MAX} nodes"),
    )
    return next((reason for applies, reason in reasons if applies), None)


def run(scenario: Scenario, *, level: Level = Level.MEASURES, trail: bool = False) -> Outcome:
    """Run a scenario in the kernel. `level` says which events are kept, `trail` keeps every copy's times."""
    reason = refusal(scenario)
    if reason is not None:
        raise MisuseError("kernel of vcube", f"it cannot run this scenario: {reason}", "Use kernels.dispatch")
    parameters: dict[str, Any] = registry.lookup("vcube").parameters | scenario.params
    state = make_state(scenario, parameters, int(level), trail)
    while (needed := advance(state)) != a.DONE:
        state = a.grown(state, needed)
    counters = state.counters
    broadcasts, in_flight = int(counters[a.BROADCASTS]), int(counters[IN_FLIGHT])
    return Outcome(
        scenario=scenario,
        measures=_measures(state),
        broadcasts=broadcasts,
        deliveries=int(state.tallies[a.T_DELIVERED]) + broadcasts,
        steps=int(counters[a.STEPS]),
        in_flight=in_flight,
        drained=in_flight == 0 and broadcasts == len(state.starts),
        trail=_trail(state) if trail else None,
        events=_events(state) if level > Level.MEASURES else None,
    )


def _measures(state: a.State) -> Measures:
    tallies = state.tallies.tolist()
    dependencies = state.messages[:, a.DEPENDENCIES]
    by_bytes = tallies[a.T_BY_BYTES : a.T_BY_MESSAGES]
    return Measures(
        nodes=len(state.nodes),
        messages=int(state.counters[a.BROADCASTS]),
        packets=tallies[a.T_PACKETS],
        aggregated_packets=tallies[a.T_AGGREGATED],
        copies=tallies[a.T_COPIES],
        aggregated_messages=tallies[a.T_AGGREGATED_MESSAGES],
        packets_by_messages=trimmed(tallies[a.T_BY_MESSAGES :]),
        packets_by_bytes={size: count for size, count in enumerate(by_bytes) if count},
        packet_bytes=tallies[a.T_BYTES],
        messages_by_dependencies=np.bincount(dependencies[dependencies >= 0]).tolist(),
        receptions=tallies[a.T_RECEIVED],
        reception_us=tallies[a.T_RECEPTION_US],
        reception_max_us=tallies[a.T_RECEPTION_MAX_US],
        deliveries=tallies[a.T_DELIVERED],
        delivery_us=tallies[a.T_DELIVERY_US],
        delivery_max_us=tallies[a.T_DELIVERY_MAX_US],
        delayed=tallies[a.T_DELAYED],
        held_us=tallies[a.T_HELD_US],
        held_max_us=tallies[a.T_HELD_MAX_US],
        queued_us=tallies[a.T_QUEUED_US],
        queued_max_us=tallies[a.T_QUEUED_MAX_US],
        held_peaks=state.nodes[:, a.HELD_PEAK].tolist(),
        messages_max=state.nodes[:, a.MESSAGES_MAX].tolist(),
        final_us=int(state.counters[a.FINAL_US]),
    )


def _trail(state: a.State) -> Trail:
    return Trail(
        origin=state.messages[:, a.ORIGIN],
        number=state.messages[:, a.NUMBER],
        broadcast_us=state.messages[:, a.BROADCAST_US],
        received_us=state.trail[a.ARRIVED],
        delivered_us=state.trail[a.GIVEN],
        together=state.trail[a.TOGETHER],
    )


def _events(state: a.State) -> Events:
    listed = state.listed[: state.counters[a.LISTED_USED]]
    return Events(
        rows=state.events[: state.counters[a.EVENTS_USED]],
        messages=state.messages[listed][:, [a.ORIGIN, a.NUMBER]],
    )


def record(outcome: Outcome, recorder: Recorder, level: Level = Level.ALL) -> None:
    """Tell a recorder the events of a run, as the simulator would have told it."""
    events, scenario = outcome.events, outcome.scenario
    if events is None:
        raise MisuseError("kernel of vcube", "the run kept no events", "Run it with level=Level.ALL")
    names = node_names(scenario.nodes)
    if level >= Level.ALL:
        for node, neighbours in enumerate(make_graph(scenario)):
            for other in neighbours:
                recorder.event(names[node], 0, Kind.LINK_UP, None, 0, names[other])
    kinds = {int(kind): kind for kind in Kind}
    unwanted = Kind.DELIVER if level < Level.DELIVERIES else None
    listed = 0
    for node, time_us, kind, origin, number, peer, total_bytes, control_bytes, count in events.rows.tolist():
        detail = None
        if count > 1:
            further = events.messages[listed + 1 : listed + count].tolist()
            detail = " ".join(f"{names[member]}:{each}" for member, each in further)
        listed += count
        if kind != unwanted:
            recorder.event(
                names[node], time_us, kinds[kind], names[origin], number, names[peer] if peer >= 0 else None,
                total_bytes, control_bytes, detail,
            )  # fmt: skip
