"""The counts of a run of the deadline study that the kernel made: the same as through the cores."""

from __future__ import annotations

import numpy as np

from whence.kernels.compile import Array
from whence.kernels.deadline import bounds as compiled
from whence.kernels.deadline import kernel
from whence.kernels.deadline import state as a
from whence.kernels.deadline.kernel import DeadlineDetail
from whence.sim.model import Scenario
from whence.sim.outcome import Outcome
from whence.studies.deadline import bounds
from whence.studies.deadline.bounds import Sent, counted_span_us, has_bounds
from whence.trace.measures import Value


def counts_of(outcome: Outcome, *, optimum: bool) -> dict[str, Value]:
    """Return what is counted of messages and deliveries, and the bounds."""
    scenario, detail = outcome.scenario, outcome.detail
    begin_us, end_us = counted_span_us(scenario, optimum)
    counts_too = (begin_us <= detail.broadcast_us) & (detail.broadcast_us < end_us)
    given = detail.events_of(a.DELIVER)
    given = given[given[:, a.E_NODE] != detail.origin[given[:, a.E_MESSAGE]]]
    time_us, message = given[:, a.E_TIME_US], given[:, a.E_MESSAGE]
    within = counts_too[message]
    counts: dict[str, Value] = {
        "pairs": int(counts_too.sum()) * (scenario.nodes - 1),
        "delivered": int(within.sum()),
        "latency_us": int((time_us - detail.broadcast_us[message])[within].sum()),
        "late": int((time_us > detail.deadline_us[message]).sum()),
    }
    if has_bounds(scenario):
        counts |= _bounds(scenario, detail, counts_too, optimum)
    return counts


def _bounds(scenario: Scenario, detail: DeadlineDetail, counts_too: Array, optimum: bool) -> dict[str, Value]:
    """What no protocol of one packet per receiver could exceed, of the messages that count."""
    sent = detail.events_of(a.BROADCAST)[:, a.E_MESSAGE]  # in the order of broadcasts, as relays are drawn
    sent = sent[counts_too[sent]]
    origin, deadline_us = detail.origin[sent], detail.deadline_us[sent]
    arrived = compiled.arrivals(scenario, origin, detail.number[sent], detail.broadcast_us[sent])
    chosen = np.array(bounds.relay_sample(scenario, len(sent)), dtype=np.int64)
    relayed = compiled.relayed(
        scenario, bounds.PUSH, chosen, origin[chosen], deadline_us[chosen], arrived[chosen]
    )
    counts: dict[str, Value] = {
        "direct": int((arrived <= deadline_us[:, None]).sum()),
        "relay_pairs": len(chosen) * (scenario.nodes - 1),
        "relay": relayed,
    }
    if optimum:
        messages = [
            Sent(time_us, member, number, end_us, tuple(after))
            for time_us, member, number, end_us, after in zip(
                detail.broadcast_us[sent].tolist(), origin.tolist(), detail.number[sent].tolist(),
                deadline_us.tolist(), detail.after[sent].tolist(), strict=True,
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
