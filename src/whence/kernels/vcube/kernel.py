"""The kernel of VCube: the paper's simulation model at some 10^6 packets a second.

    outcome = run(scenario)                               # a Scenario of protocol "vcube"
    outcome.detail.measures.reduction()                   # Table 1 and all the other measures
    run(scenario, keep={"trail": True}).detail.trail      # arrival and delivery of every copy (Figure 8)
    run(scenario, recorder, Level.ALL)                    # every row, equal to the simulator's

The scenario is the simulator's own, and so is the outcome: same packets, same times, same deliveries
in the same order, bit for bit (tests/equivalence/test_vcube_kernel.py). A run that is cut off before it has
drained is the cores', which can say what waits for what. The events of a run are in memory until it is over,
some 80 bytes each. The model R0 of the specification is

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

import msgspec
import numpy as np

from whence.core.rng import purpose, stream
from whence.kernels.by_place import by_place
from whence.kernels.calendar import IN_FLIGHT, NODES_MAX, WIDTH_US
from whence.kernels.compile import Array, note_compiled
from whence.kernels.compile import is_compiled as compiled
from whence.kernels.contract import NOTHING, TESTED, Keep, missing, refuse
from whence.kernels.rng import NORMAL, UNIFORM, delay_code
from whence.kernels.vcube import state as a
from whence.kernels.vcube.step import advance
from whence.overlay.hypercube import complete
from whence.protocols import registry
from whence.protocols.vcube.core import ROOT, VCube
from whence.sim.files import run_id
from whence.sim.model import Anyone, Replies, Scenario, Stop, node_names
from whence.sim.outcome import Outcome
from whence.sim.promises import promises_made
from whence.sim.topology import make_graph
from whence.sim.workload import sources
from whence.trace.schema import Kind, Level, Recorder

COMPILE_SECONDS = 8.0
KEEPS = frozenset(("trail",))

_DELAY = purpose("link delay")  # as in sim/links_static.py
BUCKETS_MAX = 1 << 24
ROOM_MIN = 4096  # rows to begin with, of what grows


# From a scenario to arrays


def make_state(scenario: Scenario, parameters: dict[str, Any], record: int, trail: bool) -> a.VCubeArrays:
    """Everything before the first step; `parameters` are the protocol's, defaults included."""
    starts, messages = _broadcasts(scenario)
    children = _children(scenario.nodes, ROOT if parameters["tree"] == "single" else -1)
    settings = _settings(scenario, parameters)
    settings[a.REPEATED] = messages[:, a.NUMBER].max(initial=0) > 1
    settings[a.RECORD] = record
    settings[a.TRAIL] = trail
    copies = max(scenario.nodes * len(messages), 1)
    span_us = guess_span_us(settings, starts, children.shape[1] - 1)
    width_us = max(span_us // min(max(copies // 2, 64), BUCKETS_MAX), 1)
    state = a.make_state(
        settings=settings,
        heights=_heights(children[:, :-1], settings[a.ROOT]),
        starts=starts,
        messages=messages,
        links=_links(children, scenario.seed),
        buckets=span_us // width_us + 2,
        room=max(copies // 16, ROOM_MIN),
    )
    state.counters[WIDTH_US] = width_us
    return state


def _broadcasts(scenario: Scenario) -> tuple[Array, Array]:
    """Every broadcast in the engine's order (time, message), and the messages by (origin, number)."""
    found = [
        (time_us, source.node, source.workload, number, len(source.payloads.of(number)))
        for source in sources(scenario)
        for number, time_us in enumerate(source.times_us)
    ]
    found.sort()
    ordered = np.array(found, np.int64).reshape(len(found), 5)
    # A stable sort keeps each node's broadcasts in their order.
    by_message = np.argsort(ordered[:, 1], kind="stable")
    starts = np.empty((len(found), 2), np.int64)
    starts[:, 0] = ordered[:, 0]
    starts[by_message, 1] = np.arange(len(found))
    messages = np.full((len(found), 8), -1, np.int64)
    origins = ordered[by_message, 1]
    messages[:, a.ORIGIN] = origins
    messages[:, a.NUMBER] = np.arange(len(found)) - np.searchsorted(origins, origins) + 1
    messages[:, a.PAYLOAD_BYTES] = ordered[by_message, 4]
    return starts, messages


def _settings(scenario: Scenario, parameters: dict[str, Any]) -> Array:
    link, stop = scenario.link, scenario.stop
    settings = np.zeros(a.SETTINGS, np.int64)
    settings[a.ROOT] = ROOT if parameters["tree"] == "single" else -1
    settings[a.AGGREGATE] = parameters["aggregate"]
    settings[a.BY_WIRE] = parameters["size_model"] == "wire"
    settings[a.MTU_BYTES] = parameters["mtu_bytes"]
    settings[a.SERVICE_US] = link.service_us
    settings[a.PROCESS_US] = link.process_us
    settings[[a.DELAY_KIND, a.DELAY_A, a.DELAY_B]] = delay_code(link.delay) or (0, 0, 0)
    settings[a.END_US] = stop.duration_us + (stop.drain_max_us if stop.drain else 0)
    return settings


def guess_span_us(settings: Array, starts: Array, levels: int) -> int:
    """About how long the run will take: it decides how the calendar is cut, nothing else."""
    delay_us = settings[a.DELAY_A] + settings[a.PROCESS_US] + settings[a.SERVICE_US]
    if settings[a.DELAY_KIND] == UNIFORM:
        delay_us += settings[a.DELAY_B] // 2
    elif settings[a.DELAY_KIND] == NORMAL:
        delay_us += settings[a.DELAY_B]
    # A node sends about as many packets as there are messages; the single tree's root one for each child.
    queued_us = len(starts) * settings[a.SERVICE_US] * (levels if settings[a.ROOT] >= 0 else 1)
    return int(starts[-1, 0] + 2 * (levels + 1) * delay_us + queued_us) if len(starts) else 1


def _children(count: int, root: int) -> Array:
    """By node and level; the last column is the root of the single tree, for all but itself."""
    cube = complete(count)
    table = np.full((count, cube.d + 1), -1, np.int32)
    for node in range(count):
        for level in range(cube.d):
            child = cube.first(node, level + 1)
            if child is not None:
                table[node, level] = child
    if root >= 0:
        table[:, cube.d] = root
        table[root, cube.d] = -1
    return table


def _heights(first: Array, root: int) -> Array:
    """`Cube.height` of every node in the tree of every source, all at once."""
    count, levels = first.shape
    node = np.arange(count, dtype=np.int32)[:, None]
    at = np.broadcast_to(node.T if root < 0 else np.int32(root), (count, count)).copy()
    heights = np.full((count, count), levels, np.int8)
    # The path to a node mends the highest differing bit first: one pass for each bit, from the highest.
    for level in range(levels - 1, -1, -1):
        steps = (at ^ node) >> level == 1
        at[steps] = first[at[steps], level]
        heights[steps] = level
    return heights


def _links(children: Array, seed: int) -> Array:
    """The other end of each link, and the key of its delays."""
    links = np.zeros((*children.shape, 3), np.int64)
    links[:, :, a.CHILD] = children
    for node, slot in zip(*np.nonzero(children >= 0), strict=True):
        key = stream(seed, _DELAY, int(node), int(children[node, slot]))
        links[node, slot, a.DRAWS] = key - (key >> 63 << 64)  # the same 64 bits, with a sign
    return links


# What a run gives


class VCubeMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers behind the paper's tables and figures, of one run.

    Section 5 of the paper names a *message* what an application broadcasts and a *packet* what travels;
    a *copy* is one message at one of the nodes that did not broadcast it. Times are sums over copies (or
    packets), in microseconds, with the largest beside them, so that runs can be added up without loss.
    """

    nodes: int
    messages: int  # broadcast
    # Table 1
    packets: int  # sent; N (N - 1) without aggregation
    aggregated_packets: int  # with more than one message
    copies: int  # messages in all packets together
    aggregated_messages: int  # messages in the packets with more than one (Figure 11)
    # Tables 2 and 3, Figure 6: histograms; place k counts what has k
    packets_by_messages: list[int]
    packets_by_bytes: dict[int, int]  # by the paper's account; everything from BYTES_MAX on is at BYTES_MAX
    packet_bytes: int  # the sum, by the paper's account
    splits: int  # packets that were sent because the next message would not fit
    messages_by_dependencies: list[int]
    # Figures 7 and 8: from the broadcast to the arrival, to the delivery, and in between
    receptions: int
    reception_us: int
    reception_max_us: int
    deliveries: int  # at nodes other than the origin
    delivery_us: int
    delivery_max_us: int
    delayed: int  # copies that were delivered later than they arrived (Figure 11)
    held_us: int
    held_max_us: int
    queued_us: int  # over packets: in the sender's queue before being transmitted (tq)
    queued_max_us: int
    # Figures 9 and 10: by node
    held_peaks: list[int]  # most messages received and not delivered, after a step
    messages_max: list[int]  # most messages in one packet that the node sent
    final_us: int  # when the last packet arrived

    def aggregated_share(self) -> float:
        """The share of packets that carry more than one message (Table 1's last column)."""
        return self.aggregated_packets / self.packets if self.packets else 0.0

    def reduction(self) -> float:
        """How much fewer packets than copies: Table 1's reduction, where each copy alone were a packet."""
        return 1.0 - self.packets / self.copies if self.copies else 0.0


def trimmed(histogram: list[int]) -> list[int]:
    """Without the zeros at the end."""
    last = len(histogram)
    while last and not histogram[last - 1]:
        last -= 1
    return histogram[:last]


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
class VCubeDetail:
    """What the kernel knows of a run beyond its outcome."""

    measures: VCubeMeasures
    trail: Trail | None  # if it is to be kept


def refusal(scenario: Scenario, level: Level = Level.MEASURES, keep: Keep = NOTHING) -> str | None:
    """Return why the cores must run a scenario; None if the kernel can."""
    no_kernel = missing(scenario)
    if no_kernel is not None:
        return no_kernel
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
        (any(isinstance(each, Replies) for each in scenario.workloads), "nodes reply to each other"),
        (
            any(isinstance(each, Anyone) for each in scenario.workloads),
            "senders are drawn one by one",
        ),
        (scenario.record.sample_every_us is not None, "gauges are sampled"),
        (scenario.nodes > NODES_MAX, f"there are more than {NODES_MAX} nodes"),
        (not keep.keys() <= KEEPS, f"it keeps no {', '.join(keep)}"),
    )
    return next((reason for applies, reason in reasons if applies), None)


def run(
    scenario: Scenario, recorder: Recorder | None = None, level: Level = Level.MEASURES, keep: Keep = NOTHING
) -> Outcome:
    """Run a scenario; its outcome's detail is a `VCubeDetail`."""
    refuse("vcube", refusal(scenario, level, keep))
    parameters: dict[str, Any] = registry.lookup("vcube").parameters | scenario.params
    kept = level if recorder is not None else Level.MEASURES
    state = run_state(make_state(scenario, parameters, int(kept), "trail" in keep))
    counters = state.counters
    broadcasts, in_flight = int(counters[a.BROADCASTS]), int(counters[IN_FLIGHT])
    if in_flight or broadcasts < len(state.starts):
        refuse("vcube", "the run is cut off before everything has arrived")
    if recorder is not None:
        _record(scenario, state, recorder, level)
    measures = _measures(state)
    deliveries = measures.deliveries + broadcasts
    return Outcome(
        run=run_id(scenario),
        scenario=scenario,
        promises=promises_made(scenario, complete=True, final_us=measures.final_us),
        path="kernel",
        why=TESTED,
        broadcasts=broadcasts,
        deliveries=deliveries,
        undelivered=broadcasts * scenario.nodes - deliveries,
        packets=measures.packets,
        control_packets=0,
        lost_packets=0,
        duplicated_packets=0,
        in_flight=0,
        discards={},
        expiries={},
        steps=int(counters[a.STEPS]),
        final_us=measures.final_us,
        drained=True,
        waiting={},
        measures=msgspec.to_builtins(measures, str_keys=True),
        detail=VCubeDetail(measures, _trail(state) if "trail" in keep else None),
    )


def run_state(state: a.VCubeArrays) -> a.VCubeArrays:
    """Run to the end; whatever must grow grows."""
    while (needed := advance(by_place(state))) != a.DONE:
        state = a.grown(state, needed)
    note_compiled(advance)
    return state


def warm_up() -> None:
    """Compile the kernel, or load what is compiled."""
    run(Scenario(nodes=2, protocol="vcube", stop=Stop(duration_us=1)))


def is_compiled() -> bool:
    """Return whether `run` can begin without compiling."""
    return compiled(advance)


def _measures(state: a.VCubeArrays) -> VCubeMeasures:
    tallies = state.tallies.tolist()
    dependencies = state.messages[:, a.DEPENDENCIES]
    by_bytes = tallies[a.T_BY_BYTES : a.T_BY_MESSAGES]
    return VCubeMeasures(
        nodes=len(state.nodes),
        messages=int(state.counters[a.BROADCASTS]),
        packets=tallies[a.T_PACKETS],
        aggregated_packets=tallies[a.T_AGGREGATED],
        copies=tallies[a.T_COPIES],
        aggregated_messages=tallies[a.T_AGGREGATED_MESSAGES],
        packets_by_messages=trimmed(tallies[a.T_BY_MESSAGES :]),
        packets_by_bytes={size: count for size, count in enumerate(by_bytes) if count},
        packet_bytes=tallies[a.T_BYTES],
        splits=tallies[a.T_SPLITS],
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


def _trail(state: a.VCubeArrays) -> Trail:
    return Trail(
        origin=state.messages[:, a.ORIGIN],
        number=state.messages[:, a.NUMBER],
        broadcast_us=state.messages[:, a.BROADCAST_US],
        received_us=state.trail[a.ARRIVED],
        delivered_us=state.trail[a.GIVEN],
        together=state.trail[a.TOGETHER],
    )


# Rows


def _record(scenario: Scenario, state: a.VCubeArrays, recorder: Recorder, level: Level) -> None:
    """Tell a recorder the rows of a run, as the simulator would have told it."""
    names = node_names(scenario.nodes)
    if level is Level.MEASURES:
        for time_us, message in state.starts.tolist():
            origin, number, payload_bytes = state.messages[message, :3].tolist()
            name = names[origin]
            recorder.event(name, time_us, Kind.BROADCAST, name, number, None, payload_bytes)
        return
    if level is Level.ALL:
        for node, neighbours in enumerate(make_graph(scenario)):
            for other in neighbours:
                recorder.event(names[node], 0, Kind.LINK_UP, None, 0, names[other])
    kinds = {int(kind): kind for kind in Kind}
    listed_ids = state.messages[state.listed[: state.counters[a.LISTED_USED]]][:, [a.ORIGIN, a.NUMBER]]
    listed = 0
    rows = state.events[: state.counters[a.EVENTS_USED]].tolist()
    for node, time_us, kind, origin, number, peer, total_bytes, control_bytes, count in rows:
        detail = None
        if count > 1:
            further = listed_ids[listed + 1 : listed + count].tolist()
            detail = " ".join(f"{names[member]}:{each}" for member, each in further)
        listed += count
        recorder.event(
            names[node], time_us, kinds[kind], names[origin], number, names[peer] if peer >= 0 else None,
            total_bytes, control_bytes, detail,
        )  # fmt: skip
