"""The kernel of TDCA and ODCA (paper 002), as the cores of `protocols/deadline/tdca.py` in the simulator.

    outcome = run(scenario, recorder, Level.DELIVERIES)  # a Scenario of protocol "tdca" or "odca", safe mode
    outcome.packets, outcome.expiries                    # what the simulator counts
    outcome.detail.events                                # every broadcast, delivery and expiry, as an array

The outcome is that of the cores, bit for bit: the same deliveries and expiries at the same times and in the
same order, the same packets lost (tests/equivalence/test_deadline_kernel.py). The kernel knows full groups of
nodes that broadcast at random, over links that delay and lose packets, with or without a path of their own
for control packets. It keeps no packets, so that a trace of all events is the cores', and so is the printed
algorithm (`mode = "published"`). Memory: some 50 bytes for each packet and event, and with `pull = "window"`
8 bytes for each solicitation and member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.core.rng import GOLDEN, purpose, stream
from whence.kernels.by_place import by_place
from whence.kernels.calendar import NODES_MAX, WIDTH_US
from whence.kernels.compile import Array, note_compiled
from whence.kernels.compile import is_compiled as compiled
from whence.kernels.contract import NOTHING, TESTED, Keep, missing, refuse
from whence.kernels.deadline import state as a
from whence.kernels.deadline.step import advance
from whence.kernels.rng import delay_code
from whence.overlay.graphs import grid_hops
from whence.protocols import registry
from whence.protocols.deadline.tdca import HOLES_MAX, LIFETIME_MAX_US
from whence.sim.files import run_id
from whence.sim.links_static import path_loss
from whence.sim.model import Link, Poisson, Scenario, Stop, node_names
from whence.sim.outcome import Outcome
from whence.sim.promises import promises_made
from whence.sim.workload import sources
from whence.trace.schema import Kind, Level, Recorder

COMPILE_SECONDS = 11.0
BUCKETS = 1 << 13
POOL_MAX = 1 << 26  # numbers that the pool begins with at most; it grows if they do not suffice

_DELAY, _LOSS, _CONTROL = purpose("link delay"), purpose("link loss"), purpose("control path")


# From a scenario to arrays


def broadcasts(scenario: Scenario, lifetime_us: int) -> Array:
    """Rows (time_us, node, payload_bytes, lifetime_us) in the order in which the engine has them."""
    rows = sorted(
        (time_us, source.node, source.workload, index, len(source.payloads.of(index)),
         source.lifetimes.of(index) or lifetime_us)
        for source in sources(scenario)
        for index, time_us in enumerate(source.times_us)
    )  # fmt: skip
    return np.array(rows, dtype=np.int64).reshape(-1, 6)[:, [0, 1, 4, 5]]


def make_state(scenario: Scenario, options: Mapping[str, Any], planned: Array, room: int) -> a.DeadlineArrays:
    """The state before the first step. `room` is how often as much room there is as a run mostly takes."""
    nodes, count = scenario.nodes, len(planned)
    messages, first, starts = _messages(nodes, planned)
    settings = _settings(scenario, options)
    is_window = settings[a.KEEPS] and not settings[a.EXACT]
    pairs = nodes * count
    packets = room * (pairs * (int(settings[a.COPIES]) + (2 if settings[a.KEEPS] else 0)) + 64)
    pool = room * min(pairs * (nodes + 4 if is_window else 4) + 64, POOL_MAX) if settings[a.KEEPS] else 1
    links, loss = links_of(scenario)
    counters = np.zeros(a.COUNTERS, dtype=np.int64)
    counters[WIDTH_US] = scenario.stop.duration_us // BUCKETS + 1
    at_nodes = np.zeros((nodes, a.NODE_COLUMNS), dtype=np.int64)
    at_nodes[:, [a.ARMED_US, a.FIRES_US]] = a.NEVER_US
    per_pair = (nodes, max(count, 1))
    return a.DeadlineArrays(
        settings=settings,
        messages=messages,
        first=first,
        starts=starts,
        after=np.zeros((count, nodes), dtype=np.int64),
        left=np.zeros((count, nodes) if settings[a.DEADLINES] else (1, 1), dtype=np.int64),
        accepted=np.zeros((nodes, nodes), dtype=np.int64),
        frontier=np.zeros((nodes, nodes), dtype=np.int64),
        ends_us=np.zeros((nodes, nodes), dtype=np.int64),
        flags=np.zeros(per_pair, dtype=np.uint8),
        blocker=np.zeros(per_pair, dtype=np.int64),
        asked=np.zeros(per_pair, dtype=np.int64),
        lapse_us=np.full(per_pair if settings[a.DEADLINES] else (1, 1), -a.NEVER_US, dtype=np.int64),
        nodes=at_nodes,
        order=np.zeros(per_pair, dtype=np.int64),
        due=np.empty((nodes, room * (3 * count + nodes + 8)), dtype=np.int64),
        stored=np.empty(per_pair, dtype=np.int64),
        links=links,
        loss=loss,
        packets=np.empty((packets, a.PACKET_COLUMNS), dtype=np.int64),
        heap=np.empty(packets, dtype=np.int64),
        buckets=np.full(BUCKETS + 1, -1, dtype=np.int64),
        pool=np.empty(pool, dtype=np.int64),
        events=np.empty((room * (pairs + count), a.EVENT_COLUMNS), dtype=np.int64),
        chosen=np.empty(max(count, 1), dtype=np.int64),
        question_to=np.empty(2 * count + 1, dtype=np.int64),
        question_for=np.empty(2 * count + 1, dtype=np.int64),
        counters=counters,
    )


def _messages(nodes: int, planned: Array) -> tuple[Array, Array, Array]:
    """The messages by (origin, number), the place of each member's first one, and the order of broadcasts."""
    by_name = np.argsort(planned[:, 1], kind="stable")
    counts = np.bincount(planned[:, 1], minlength=nodes)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    messages = np.zeros((len(planned), a.MESSAGE_COLUMNS), dtype=np.int64)
    for column, of in ((a.BROADCAST_US, 0), (a.ORIGIN, 1), (a.PAYLOAD_BYTES, 2), (a.LIFETIME_US, 3)):
        messages[:, column] = planned[by_name, of]
    messages[:, a.NUMBER] = np.arange(len(planned)) - first[messages[:, a.ORIGIN]] + 1
    starts = np.empty(len(planned), dtype=np.int64)
    starts[by_name] = np.arange(len(planned))
    return messages, first, starts


def _settings(scenario: Scenario, options: Mapping[str, Any]) -> Array:
    settings = np.zeros(a.SETTINGS, dtype=np.int64)
    stop = scenario.stop
    settings[a.END_US] = stop.duration_us + (stop.drain_max_us if stop.drain else 0)
    settings[a.KEEPS] = scenario.protocol == "odca"
    settings[a.DEADLINES] = options["deadlines"]
    settings[a.COPIES] = options["copies"]
    settings[a.MARGIN_US] = options["margin_us"]
    settings[a.CLOCK_ERROR_US] = options["clock_error_us"]
    settings[a.BUFFER_BYTES] = options["buffer_bytes"]
    if scenario.protocol == "odca":
        settings[a.EXACT] = options["pull"] == "exact"
        settings[a.RETRY_US] = options["retry_us"]
        settings[a.PULLS] = options["pulls"] if options["retry_us"] else 1
        settings[a.REPLY_BYTES] = options["reply_bytes"]
    settings[a.SEPARATE] = scenario.control is not None
    for path, spec in enumerate((scenario.link, scenario.control or scenario.link)):
        code = delay_code(spec.delay)
        if code is not None:  # `refusal` has seen to it
            settings[a.DELAY_KIND + 3 * path : a.DELAY_KIND + 3 * path + 3] = code
    return settings


def links_of(scenario: Scenario) -> tuple[Array, Array]:
    """What `sim/links_static.py` knows of each link of the common path, and of the control path."""
    nodes = scenario.nodes
    links = np.zeros((2, nodes, nodes, a.LINK_COLUMNS), dtype=np.int64)
    loss = np.zeros((2, nodes, nodes))
    hops = np.array([[grid_hops(nodes, one, other) for other in range(nodes)] for one in range(nodes)])
    paths: list[tuple[Link, int]] = [(scenario.link, scenario.seed)]
    if scenario.control is not None:
        paths.append((scenario.control, stream(scenario.seed, _CONTROL)))
    for path, (spec, seed) in enumerate(paths):
        links[path, :, :, a.DELAY_DRAWS] = keys(seed, _DELAY, nodes).view(np.int64)
        links[path, :, :, a.LOSS_DRAWS] = keys(seed, _LOSS, nodes).view(np.int64)
        links[path, :, :, a.EXTRA_US] = spec.process_us + spec.hop_delay_us * hops
        by_hops = np.array([path_loss(spec, each) for each in range(int(hops.max()) + 1)])
        loss[path] = by_hops[hops]
    return links, loss


def keys(seed: int, what: int, nodes: int) -> Array:
    """`core.rng.stream(seed, what, source, target)` of all links."""
    every = np.arange(nodes, dtype=np.uint64)
    by_source = _mixed((np.uint64(stream(seed, what)) ^ every) + np.uint64(GOLDEN))
    return _mixed((by_source[:, None] ^ every[None, :]) + np.uint64(GOLDEN))


def _mixed(value: Array) -> Array:
    """`core.rng.mix64` of an array."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = value ^ (value >> np.uint64(31))
    return mixed


MESSAGES_MAX = 1 << a.MESSAGE_BITS
TIME_MAX_US = 1 << 40
SMALLEST = Scenario(nodes=1, protocol="odca", stop=Stop(duration_us=1))


@dataclass(frozen=True)
class DeadlineDetail:
    """The arrays of a run. Messages are in the order of (origin, number)."""

    origin: Array
    number: Array
    broadcast_us: Array
    deadline_us: Array
    payload_bytes: Array
    after: Array  # [messages, nodes]: for each member, its newest message before this one
    events: Array  # int64 [events, 4]: the columns E_ of state.py

    def events_of(self, kind: int) -> Array:
        """Return the events of one kind (`state.BROADCAST`, ...)."""
        chosen: Array = self.events[self.events[:, a.E_KIND] == kind]
        return chosen


# A run


def refusal(scenario: Scenario, level: Level = Level.MEASURES, keep: Keep = NOTHING) -> str | None:
    """Return why the cores must run a scenario; None if the kernel can."""
    no_kernel = missing(scenario)
    if no_kernel is not None:
        return no_kernel
    links = [scenario.link, *([] if scenario.control is None else [scenario.control])]
    plain = all(
        link == Link(
            delay=link.delay, loss=link.loss, hop_loss=link.hop_loss, hop_delay_us=link.hop_delay_us,
            process_us=link.process_us,
        )
        for link in links
    )  # fmt: skip
    reasons = (
        (scenario.params.get("mode", "safe") != "safe", "it asks for the printed algorithm"),
        (bool(scenario.faults), "there are faults"),
        (bool(scenario.overrides), "some links differ from the others"),
        (not plain, "links do more than delay and lose packets"),
        (None in [delay_code(link.delay) for link in links], "a delay is not constant, uniform or normal"),
        (any(not isinstance(each, Poisson) for each in scenario.workloads), "not all broadcast at random"),
        (scenario.record.sample_every_us is not None, "gauges are sampled"),
        (scenario.nodes > NODES_MAX, f"there are more than {NODES_MAX} nodes"),
        (scenario.stop.duration_us + scenario.stop.drain_max_us > TIME_MAX_US, "it lasts too long"),
        (level is Level.ALL, "the trace is to have every packet, and the kernel keeps none"),
        (bool(keep), f"it keeps no {', '.join(keep)}"),
    )
    return next((reason for applies, reason in reasons if applies), None)


def run(
    scenario: Scenario, recorder: Recorder | None = None, level: Level = Level.MEASURES, keep: Keep = NOTHING
) -> Outcome:
    """Run a scenario; its outcome's detail is a `DeadlineDetail`."""
    refuse("deadlines", refusal(scenario, level, keep))
    options: dict[str, Any] = registry.lookup(scenario.protocol).parameters | scenario.params
    registry.make(scenario.protocol, "n0", ["n0"], scenario.params)  # refuses what the core refuses
    planned = broadcasts(scenario, options["lifetime_us"])
    refuse("deadlines", _too_much(planned))
    room = 1
    state = make_state(scenario, options, planned, room)
    while not advance(by_place(state)):
        room *= 2
        state = make_state(scenario, options, planned, room)
    note_compiled(advance)
    outcome = _outcome(scenario, state)
    if recorder is not None:
        _record(outcome, recorder, level)
    return outcome


def _too_much(planned: Array) -> str | None:
    """What only the workload shows."""
    if len(planned) >= MESSAGES_MAX:
        return f"there are more than {MESSAGES_MAX} messages"
    if len(planned) and np.bincount(planned[:, 1]).max() > HOLES_MAX:
        return f"a node broadcasts more than {HOLES_MAX} messages"
    if len(planned) and planned[:, 3].max() > LIFETIME_MAX_US:
        return "a lifetime is longer than the protocol takes"
    return None


def warm_up() -> None:
    """Compile the kernel, or load what is compiled."""
    run(SMALLEST)


def is_compiled() -> bool:
    """Return whether `run` can begin without compiling."""
    return compiled(advance)


def _outcome(scenario: Scenario, state: a.DeadlineArrays) -> Outcome:
    counters = state.counters.tolist()
    discards = {"duplicate": counters[a.DUPLICATES], "no room": counters[a.NO_ROOM]}
    expiries = {"expired": counters[a.EXPIRIES], "overtaken": counters[a.OVERTAKINGS]}
    detail = DeadlineDetail(
        origin=state.messages[:, a.ORIGIN],
        number=state.messages[:, a.NUMBER],
        broadcast_us=state.messages[:, a.BROADCAST_US],
        deadline_us=state.messages[:, a.DEADLINE_US],
        payload_bytes=state.messages[:, a.PAYLOAD_BYTES],
        after=state.after,
        events=state.events[: counters[a.EVENTS_USED]],
    )
    sent, deliveries = len(detail.events_of(a.BROADCAST)), len(detail.events_of(a.DELIVER))
    return Outcome(
        run=run_id(scenario),
        scenario=scenario,
        promises=promises_made(scenario, complete=False),  # what has died on its way is nowhere
        path="kernel",
        why=TESTED,
        broadcasts=sent,
        deliveries=deliveries,
        undelivered=sent * scenario.nodes - deliveries,
        packets=counters[a.SENT],
        control_packets=counters[a.CONTROL],
        lost_packets=counters[a.LOST],
        duplicated_packets=0,
        discards={reason: count for reason, count in discards.items() if count},
        expiries={reason: count for reason, count in expiries.items() if count},
        detail=detail,
    )


def _record(outcome: Outcome, recorder: Recorder, level: Level) -> None:
    """Tell a recorder the events, as the simulator would have told it."""
    detail: DeadlineDetail = outcome.detail
    names = node_names(outcome.scenario.nodes)
    events = detail.events if level >= Level.DELIVERIES else detail.events_of(a.BROADCAST)
    message = events[:, a.E_MESSAGE]
    lifetimes_us = detail.deadline_us - detail.broadcast_us
    columns = zip(
        events[:, a.E_TIME_US].tolist(), events[:, a.E_KIND].tolist(), events[:, a.E_NODE].tolist(),
        detail.origin[message].tolist(), detail.number[message].tolist(),
        detail.payload_bytes[message].tolist(), lifetimes_us[message].tolist(), strict=True,
    )  # fmt: skip
    for time_us, kind, node, origin, number, payload_bytes, lifetime_us in columns:
        name, source = names[node], names[origin]
        if kind == a.DELIVER:
            recorder.event(name, time_us, Kind.DELIVER, source, number, None, payload_bytes)
        elif kind == a.BROADCAST:
            lifetime = str(lifetime_us)
            recorder.event(name, time_us, Kind.BROADCAST, source, number, None, payload_bytes, 0, lifetime)
        else:
            reason = "expired" if kind == a.EXPIRED else "overtaken"
            recorder.event(name, time_us, Kind.EXPIRE, source, number, None, 0, 0, reason)
