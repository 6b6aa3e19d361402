"""The kernel of TDCA and ODCA (paper 002), as the cores of `protocols/deadline.py` in the simulator.

    outcome = run(scenario)              # a whence.sim Scenario of protocol "tdca" or "odca", safe mode
    outcome.events                       # every broadcast, delivery and expiry: time, kind, node, message
    record(outcome, recorder)            # the same as rows of a trace, for the verifier (level `deliveries`)
    outcome.packets, outcome.expiries    # what the simulator counts

The outcome is that of the cores, bit for bit: the same deliveries and expiries at the same times and in the
same order, the same packets lost (tests/equivalence/test_deadline_kernel.py). `refusal` says why a scenario
must go through the cores: the kernel knows full groups of nodes that broadcast at random, over links that
delay and lose packets, with or without a path of their own for control packets. The printed algorithm
(`mode = "published"`) stays with the cores. Memory: some 50 bytes for each packet and event, and with
`pull = "window"` 8 bytes for each solicitation and member.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.errors import MisuseError
from whence.kernels import deadline_arrays as a
from whence.kernels.calendar import NODES_MAX
from whence.kernels.compile import Array
from whence.kernels.deadline_engine import advance
from whence.kernels.deadline_tables import broadcasts, make_state
from whence.kernels.rng import delay_code
from whence.protocols import registry
from whence.protocols.deadline_base import LIFETIME_MAX_US
from whence.protocols.deadline_state import HOLES_MAX
from whence.sim.model import Full, Link, Poisson, Scenario, Stop, node_names
from whence.trace.schema import Kind, Recorder

MESSAGES_MAX = 1 << a.MESSAGE_BITS
TIME_MAX_US = 1 << 40
SMALLEST = Scenario(nodes=1, protocol="odca", stop=Stop(duration_us=1))


@dataclass(frozen=True)
class Outcome:
    """What a run did. Messages are in the order of (origin, number)."""

    scenario: Scenario
    origin: Array
    number: Array
    broadcast_us: Array
    deadline_us: Array
    payload_bytes: Array
    after: Array  # [messages, nodes]: for each member, its newest message before this one
    events: Array  # int64 [events, 4]: the columns E_ of deadline_arrays.py
    packets: int
    control_packets: int
    lost_packets: int
    discards: dict[str, int]
    expiries: dict[str, int]

    @property
    def broadcasts(self) -> int:
        """How many messages were broadcast."""
        return len(self.origin)

    def events_of(self, kind: int) -> Array:
        """The events of one kind (`deadline_arrays.BROADCAST`, ...)."""
        chosen: Array = self.events[self.events[:, a.E_KIND] == kind]
        return chosen


def refusal(scenario: Scenario) -> str | None:
    """Why the kernel does not take this scenario; None if it does."""
    if scenario.protocol not in ("tdca", "odca"):
        return f"there is no kernel for protocol {scenario.protocol!r}"
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
        (not isinstance(scenario.topology, Full), "the topology is not full"),
        (any(not isinstance(each, Poisson) for each in scenario.workloads), "not all broadcast at random"),
        (scenario.record.sample_every_us is not None, "gauges are sampled"),
        (scenario.nodes > NODES_MAX, f"there are more than {NODES_MAX} nodes"),
        (scenario.stop.duration_us + scenario.stop.drain_max_us > TIME_MAX_US, "it lasts too long"),
    )
    return next((reason for applies, reason in reasons if applies), None)


def run(scenario: Scenario) -> Outcome:
    """Run a scenario in the kernel."""
    options: dict[str, Any] = registry.lookup(scenario.protocol).parameters | scenario.params
    reason = refusal(scenario)
    planned = np.empty((0, 4), dtype=np.int64)
    if reason is None:
        registry.make(scenario.protocol, "n0", ["n0"], scenario.params)  # refuses what the core refuses
        planned = broadcasts(scenario, options["lifetime_us"])
        reason = _too_much(planned)
    if reason is not None:
        raise MisuseError("kernel of deadlines", f"it cannot run this scenario: {reason}", "Use the cores")
    room = 1
    state = make_state(scenario, options, planned, room)
    while not advance(state):
        room *= 2
        state = make_state(scenario, options, planned, room)
    return _outcome(scenario, state)


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
    """Compile the kernel, unless it is compiled: once for each machine and release."""
    run(SMALLEST)


def _outcome(scenario: Scenario, state: a.State) -> Outcome:
    counters = state.counters.tolist()
    discards = {"duplicate": counters[a.DUPLICATES], "no room": counters[a.NO_ROOM]}
    expiries = {"expired": counters[a.EXPIRIES], "overtaken": counters[a.OVERTAKINGS]}
    return Outcome(
        scenario=scenario,
        origin=state.messages[:, a.ORIGIN],
        number=state.messages[:, a.NUMBER],
        broadcast_us=state.messages[:, a.BROADCAST_US],
        deadline_us=state.messages[:, a.DEADLINE_US],
        payload_bytes=state.messages[:, a.PAYLOAD_BYTES],
        after=state.after,
        events=state.events[: counters[a.EVENTS_USED]],
        packets=counters[a.SENT],
        control_packets=counters[a.CONTROL],
        lost_packets=counters[a.LOST],
        discards={reason: count for reason, count in discards.items() if count},
        expiries={reason: count for reason, count in expiries.items() if count},
    )


def record(outcome: Outcome, recorder: Recorder, *, deliveries: bool = True) -> None:
    """Tell a recorder the events, as the simulator would have told it; without `deliveries`, broadcasts."""
    names = node_names(outcome.scenario.nodes)
    events = outcome.events if deliveries else outcome.events_of(a.BROADCAST)
    message = events[:, a.E_MESSAGE]
    lifetimes_us = outcome.deadline_us - outcome.broadcast_us
    columns = zip(
        events[:, a.E_TIME_US].tolist(), events[:, a.E_KIND].tolist(), events[:, a.E_NODE].tolist(),
        outcome.origin[message].tolist(), outcome.number[message].tolist(),
        outcome.payload_bytes[message].tolist(), lifetimes_us[message].tolist(), strict=True,
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
