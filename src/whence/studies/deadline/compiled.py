"""A run of the deadline study in the kernel: the same counts and the same trace as through the cores."""

from __future__ import annotations

import numpy as np

from whence.kernels.compile import Array
from whence.kernels.deadline import bounds as compiled
from whence.kernels.deadline import kernel
from whence.kernels.deadline import state as a
from whence.kernels.deadline.kernel import Outcome
from whence.sim.model import Scenario
from whence.studies.deadline import bounds
from whence.studies.deadline.bounds import Sent
from whence.studies.deadline.measures import counted_span_us, has_bounds
from whence.trace.measures import Value
from whence.trace.schema import Level, Recorder

refusal = kernel.refusal


def run(scenario: Scenario, writer: Recorder, level: Level, find_optimum: bool = False) -> dict[str, Value]:
    """Run a scenario that the kernel does not refuse, and count."""
    outcome = kernel.run(scenario)
    kernel.record(outcome, writer, deliveries=level >= Level.DELIVERIES)
    begin_us, end_us = counted_span_us(scenario, find_optimum)
    counts_too = (begin_us <= outcome.broadcast_us) & (outcome.broadcast_us < end_us)
    others = scenario.nodes - 1
    given = outcome.events_of(a.DELIVER)
    given = given[given[:, a.E_NODE] != outcome.origin[given[:, a.E_MESSAGE]]]
    time_us, message = given[:, a.E_TIME_US], given[:, a.E_MESSAGE]
    within = counts_too[message]
    counts: dict[str, Value] = {
        "messages": outcome.broadcasts,
        "all_pairs": outcome.broadcasts * others,
        "pairs": int(counts_too.sum()) * others,
        "delivered": int(within.sum()),
        "latency_us": int((time_us - outcome.broadcast_us[message])[within].sum()),
        "late": int((time_us > outcome.deadline_us[message]).sum()),
        "packets": outcome.packets,
        "control_packets": outcome.control_packets,
        "lost": outcome.lost_packets,
        "duplicates": outcome.discards.get("duplicate", 0),
        "expired": outcome.expiries.get("expired", 0),
        "overtaken": outcome.expiries.get("overtaken", 0),
    }
    if has_bounds(scenario):
        counts |= _bounds(outcome, counts_too, find_optimum)
    return counts


def _bounds(outcome: Outcome, counts_too: Array, find_optimum: bool) -> dict[str, Value]:
    """What no protocol of one packet per receiver could exceed, of the messages that count."""
    scenario = outcome.scenario
    sent = outcome.events_of(a.BROADCAST)[:, a.E_MESSAGE]  # in the order of broadcasts, as relays are drawn
    sent = sent[counts_too[sent]]
    origin, deadline_us = outcome.origin[sent], outcome.deadline_us[sent]
    arrived = compiled.arrivals(scenario, origin, outcome.number[sent], outcome.broadcast_us[sent])
    chosen = np.array(bounds.relay_sample(scenario, len(sent)), dtype=np.int64)
    relayed = compiled.relayed(
        scenario, bounds.PUSH, chosen, origin[chosen], deadline_us[chosen], arrived[chosen]
    )
    counts: dict[str, Value] = {
        "direct": int((arrived <= deadline_us[:, None]).sum()),
        "relay_pairs": len(chosen) * (scenario.nodes - 1),
        "relay": relayed,
    }
    if find_optimum:
        messages = [
            Sent(time_us, member, number, end_us, tuple(after))
            for time_us, member, number, end_us, after in zip(
                outcome.broadcast_us[sent].tolist(), origin.tolist(), outcome.number[sent].tolist(),
                deadline_us.tolist(), outcome.after[sent].tolist(), strict=True,
            )
        ]  # fmt: skip
        counts["optimum"] = bounds.optimum(messages, arrived.tolist(), scenario.nodes)
    return counts


def warm_up() -> None:
    """Compile what is not compiled."""
    kernel.warm_up()
    none = np.zeros(0, dtype=np.int64)
    scenario = kernel.SMALLEST
    arrived = compiled.arrivals(scenario, none, none, none)
    compiled.relayed(scenario, bounds.PUSH, none, none, none, arrived)
