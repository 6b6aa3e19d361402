"""The kernel of `oppnet`: causal barriers over a contact plan, a million receives in seconds.

    settings = Settings(lifetime_us=1_200_000_000, mode="published")
    outcome = run_plan(walker_plan(1), settings, since_entry(plan, 43_000_000, 60_000_000), watch=[777])
    outcome.measures()           # Tables II, III, V and VI (oppnet_measures.py)
    outcome.delay_us, outcome.latency_us      # one number per receive, per co-delivery: Figures 4, 5, 9, 10
    outcome.registries           # of the watched nodes over time: Figures 6 and 11
    outcome.barrier_entries      # of each message
    record(outcome, recorder)    # BROADCAST, DELIVER and EXPIRE rows, for the verifier

The outcome is that of `oppnet`'s cores in the simulator, bit for bit: same receives, deliveries and expiries
at the same times and in the same order (tests/equivalence/test_oppnet_kernel.py). `from_scenario` takes a
scenario of the simulator, and `refusal` says why it cannot: what is covered are contact plans, links of one
constant delay that lose nothing but what a cut contact takes, one lifetime for all or none, caches without
limit, and clocks that are wrong by a constant. Memory: 4 bytes for each pair of node and message, 96 for each
receive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from whence.errors import MisuseError
from whence.kernels.compile import Array
from whence.kernels.oppnet import state as a
from whence.kernels.oppnet.state import grown, make_state
from whence.kernels.oppnet.step import advance
from whence.overlay.contacts import ContactPlan
from whence.protocols.barrier.oppnet import Oppnet
from whence.protocols.barrier.order import LATE_US
from whence.sim.contacts import plan_of
from whence.sim.distributions import Constant
from whence.sim.faults import plan_faults
from whence.sim.model import Contacts, Link, Replies, Scenario, Skew, node_names
from whence.sim.workload import sources
from whence.trace.schema import Kind, Recorder

# The measures of section VI-A, by the paper's names and definitions; ratios are of totals.


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """min / max / avg / stdev, as Tables III and VI state them, in microseconds; of nothing: zeros."""

    count: int
    min_us: int
    max_us: int
    mean_us: float
    deviation_us: float


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as in Tables II, III, V and VI."""

    broadcasts: int  # bcast
    receives: int  # rcvd: first copies from others
    deliveries: int  # codlvd: a node's own messages included
    delivery_ratio: float  # codlvratio: deliveries / (broadcasts + receives)
    expiries: int  # expd: received, and dead before their turn came
    expiry_ratio: float  # expratio: expiries / receives
    waiting: int  # received, neither delivered nor expired: the node left, or the run ended
    delay: Spread  # tdelay, of every receive
    latency: Spread  # ltcy, of every received message that was co-delivered
    age: Spread  # codlvdelay
    barrier_mean: float  # scb: entries in a message's barrier
    barrier_max: int


def measure(
    *,
    broadcasts: int,
    delay_us: Array,
    latency_us: Array,
    age_us: Array,
    deliveries: int,
    expiries: int,
    barrier_entries: Array,
) -> Measures:
    """Sum up one run."""
    receives = len(delay_us)
    return Measures(
        broadcasts=broadcasts,
        receives=receives,
        deliveries=deliveries,
        delivery_ratio=deliveries / max(broadcasts + receives, 1),
        expiries=expiries,
        expiry_ratio=expiries / max(receives, 1),
        waiting=broadcasts + receives - deliveries - expiries,
        delay=spread(delay_us),
        latency=spread(latency_us),
        age=spread(age_us),
        barrier_mean=float(barrier_entries.mean()) if len(barrier_entries) else 0.0,
        barrier_max=int(barrier_entries.max()) if len(barrier_entries) else 0,
    )


def spread(values_us: Array) -> Spread:
    """min / max / avg / stdev of some times."""
    if not len(values_us):
        return Spread(count=0, min_us=0, max_us=0, mean_us=0.0, deviation_us=0.0)
    return Spread(
        count=len(values_us),
        min_us=int(values_us.min()),
        max_us=int(values_us.max()),
        mean_us=float(values_us.mean()),
        deviation_us=float(np.std(values_us)),
    )


_DEFAULTS = {"gap_us": 125_000, "setup_max_us": 10_000_000}


@dataclass(frozen=True)
class Settings:
    """The parameters of `protocols/barrier/oppnet.py`, and the delay of every packet."""

    lifetime_us: int | None = None
    mode: str = "safe"
    skew_us: int = 0
    seed: int = 1
    gap_us: int = _DEFAULTS["gap_us"]
    setup_max_us: int = _DEFAULTS["setup_max_us"]
    late_us: int = LATE_US
    delay_us: int = 2_000
    offsets_us: tuple[int, ...] = ()  # of the nodes' clocks; empty: all are right
    end_us: int | None = None  # nothing happens then or later; None: the plan's end


@dataclass(frozen=True)
class Outcome:
    """What happened. A record is a message at a node: received there, or (`is_own`) broadcast."""

    names: list[str]
    settings: Settings
    origin: Array  # of each message
    number: Array
    broadcast_us: Array
    barrier_entries: Array
    node: Array  # of each record
    message: Array
    received_us: Array
    delivered_us: Array  # -1: not delivered
    expired_us: Array  # -1: not expired while it was pending
    turn: Array  # the order of deliveries and expiries of one node
    late: Array  # rows (node, message, time_us, turn): ended because it first came after its deadline
    registries: Array  # rows (node, time_us, causal barrier, co-delivered, pending)
    sent: int  # messages given to contacts
    lost: int  # of these, cut off
    duplicates: int  # that came to a node that had them
    too_late: int  # that came after their deadline, those in `late` included
    events: int = field(default=0)

    @property
    def is_own(self) -> Array:
        """Which records are a node's own messages."""
        own: Array = self.origin[self.message] == self.node
        return own

    @property
    def delay_us(self) -> Array:
        """Transmission delay of each receive."""
        received = ~self.is_own
        delay_us: Array = self.received_us[received] - self.broadcast_us[self.message[received]]
        return delay_us

    @property
    def latency_us(self) -> Array:
        """Co-delivery latency of each received message that was co-delivered."""
        given = ~self.is_own & (self.delivered_us >= 0)
        latency_us: Array = self.delivered_us[given] - self.received_us[given]
        return latency_us

    def measures(self) -> Measures:
        """The numbers of the paper's tables."""
        return measure(
            broadcasts=len(self.origin),
            delay_us=self.delay_us,
            latency_us=self.latency_us,
            age_us=self._age_us(),
            deliveries=int((self.delivered_us >= 0).sum()),
            expiries=int((self.expired_us >= 0).sum()),
            barrier_entries=self.barrier_entries,
        )

    def _age_us(self) -> Array:
        given = ~self.is_own & (self.delivered_us >= 0)
        age_us: Array = self.delivered_us[given] - self.broadcast_us[self.message[given]]
        return age_us


def since_entry(plan: ContactPlan, first_us: int, interval_us: int) -> Array:
    """Broadcasts (time_us, node): `first_us` after each entry of a node, then every `interval_us`."""
    rows = [
        (time_us, node)
        for node, start_us, stop_us in plan.presence
        for time_us in range(start_us + first_us, stop_us, interval_us)
    ]
    return np.array(sorted(rows), dtype=np.int64).reshape(-1, 2)


def run_plan(
    plan: ContactPlan,
    settings: Settings,
    broadcasts: Array,
    *,
    watch: Sequence[int] = (),
    sample_us: int = 1_000_000,
    names: Sequence[str] | None = None,
) -> Outcome:
    """Run broadcasts, rows (time_us, node) in order, over a plan.

    `watch` names the nodes whose registries are looked at every `sample_us`. `names` are the nodes' names for
    the random order: the simulator's, unless told otherwise.
    """
    _check(plan, settings, broadcasts)
    known = node_names(len(plan.nodes)) if names is None else list(names)
    room = 1 << 16
    while True:
        state = make_state(
            plan, settings, broadcasts, known, list(watch), sample_us if len(watch) else 0, room
        )
        lacking = advance(state)
        while lacking != a.DONE:
            state = grown(state, lacking)
            lacking = advance(state)
        if not state.counters[a.OVERFLOWS]:
            return _outcome(state, known, settings)
        room *= 8


def _check(plan: ContactPlan, settings: Settings, broadcasts: Array) -> None:
    given = ("lifetime_us", "mode", "skew_us", "seed", "gap_us", "setup_max_us", "late_us")
    core = {name: getattr(settings, name) for name in given if name != "skew_us" or settings.skew_us}
    Oppnet("n0", [], **core)  # refuses what the core refuses
    reason = None
    offsets_us = settings.offsets_us or (0,)
    if settings.offsets_us and len(settings.offsets_us) != len(plan.nodes):
        reason = f"{len(settings.offsets_us)} clocks for {len(plan.nodes)} nodes"
    elif min(offsets_us) < 0:
        reason = "a clock is behind true time"
    elif settings.mode == "safe" and max(offsets_us) - min(offsets_us) > settings.skew_us:
        reason = "clocks differ by more than skew_us, for which the safe order is not made"
    elif settings.delay_us < 1:
        reason = "packets take no time"
    elif len(broadcasts) > 1 and (np.diff(broadcasts[:, 0]) < 0).any():
        reason = "the broadcasts are not in order"
    elif len(np.unique(broadcasts, axis=0)) < len(broadcasts):
        reason = "a node broadcasts twice in one microsecond"
    if reason is not None:
        raise MisuseError("kernel of oppnet", reason, "Change it, or run the cores in the simulator")


def _outcome(state: a.State, names: list[str], settings: Settings) -> Outcome:
    counters = state.counters
    sent = state.messages[:, a.SENT_US] >= 0
    messages = state.messages[: int(sent.sum())]  # what is due after the end was never broadcast
    records = state.records[: counters[a.RECORDS_USED]]
    came_late = records[:, a.R_RECEIVED_US] < 0
    late, records = records[came_late], records[~came_late]
    return Outcome(
        names=names,
        settings=settings,
        origin=messages[:, a.ORIGIN],
        number=messages[:, a.NUMBER],
        broadcast_us=messages[:, a.SENT_US],
        barrier_entries=messages[:, a.ENTRIES],
        node=records[:, a.R_NODE],
        message=records[:, a.R_MESSAGE],
        received_us=records[:, a.R_RECEIVED_US],
        delivered_us=records[:, a.R_DELIVERED_US],
        expired_us=records[:, a.R_EXPIRED_US],
        turn=records[:, a.R_TURN],
        late=late[:, [a.R_NODE, a.R_MESSAGE, a.R_EXPIRED_US, a.R_TURN]],
        registries=state.samples[: counters[a.SAMPLES_USED]],
        sent=int(counters[a.SENT]),
        lost=int(counters[a.LOST]),
        duplicates=int(counters[a.DUPLICATES]),
        too_late=int(counters[a.TOO_LATE]),
        events=int(counters[a.EVENTS]),
    )


def record(outcome: Outcome, recorder: Recorder) -> None:
    """Tell a recorder the broadcasts, deliveries and expiries, each node's in order (level `deliveries`)."""
    names = outcome.names
    lifetime_us = outcome.settings.lifetime_us
    lifetime = None if lifetime_us is None else str(lifetime_us)
    for node, message, time_us, kind in _ends(outcome).tolist():
        name, source, number = names[node], names[outcome.origin[message]], int(outcome.number[message])
        if kind == Kind.BROADCAST:
            recorder.event(name, time_us, Kind.BROADCAST, source, number, None, 0, 0, lifetime)
        if kind == Kind.EXPIRE:
            recorder.event(name, time_us, Kind.EXPIRE, source, number, None, 0, 0, "expired")
        else:
            recorder.event(name, time_us, Kind.DELIVER, source, number)


def _ends(outcome: Outcome) -> Array:
    """Rows (node, message, time_us, kind) in order: BROADCAST is a delivery of a node's own."""
    ended_us = np.maximum(outcome.delivered_us, outcome.expired_us)
    kind = np.where(outcome.is_own, Kind.BROADCAST, Kind.DELIVER)
    kind[outcome.delivered_us < 0] = Kind.EXPIRE
    rows = np.column_stack([outcome.node, outcome.message, ended_us, kind, outcome.turn])[ended_us >= 0]
    late = np.insert(outcome.late, 3, Kind.EXPIRE, axis=1)
    rows = np.concatenate([rows, late])
    ordered: Array = rows[np.argsort(rows[:, 4], kind="stable")][:, :4]
    return ordered


# Scenarios


def refusal(scenario: Scenario) -> str | None:
    """Why a scenario must go through the cores; None if the kernel can run it."""
    link, params = scenario.link, scenario.params
    offsets = [clock.offset_us for clock in plan_faults(scenario).clocks.values()]
    spread_us = max([0, *offsets]) - min([0, *offsets])
    checks = {
        "it is no run of oppnet over a contact plan": scenario.protocol != "oppnet"
        or not isinstance(scenario.topology, Contacts),
        "links do more than delay": Link(delay=link.delay) != link or bool(scenario.overrides),
        "delays are not constant": not isinstance(link.delay, Constant) or link.delay.value_us < 1,
        "caches are limited": bool(params.get("capacity")),
        "messages have lifetimes of their own": any(each.lifetime is not None for each in scenario.workloads),
        "there are replies": any(isinstance(each, Replies) for each in scenario.workloads),
        "there are faults other than clocks that are wrong by a constant": any(
            not isinstance(each, Skew) or each.drift_ppm for each in scenario.faults
        ),
        "a clock is behind true time": min([0, *offsets]) < 0,
        "clocks differ by more than skew_us": params.get("mode") != "published"
        and spread_us > params.get("skew_us", 0),
    }
    return next((reason for reason, holds in checks.items() if holds), None)


def from_scenario(scenario: Scenario) -> Outcome:
    """Run a scenario of the simulator, if `refusal` finds nothing against it."""
    reason = refusal(scenario)
    plan = plan_of(scenario)
    if reason is not None or plan is None or not isinstance(scenario.link.delay, Constant):
        raise MisuseError("kernel of oppnet", f"{reason}", "Run the cores in the simulator")
    clocks = plan_faults(scenario).clocks
    stop = scenario.stop
    settings = Settings(
        **scenario.params,
        delay_us=scenario.link.delay.value_us,
        offsets_us=tuple(clocks[node].offset_us if node in clocks else 0 for node in range(scenario.nodes))
        if clocks
        else (),
        end_us=stop.duration_us + (stop.drain_max_us if stop.drain else 0),
    )
    return run_plan(plan, settings, _broadcasts(scenario, plan))


def _broadcasts(scenario: Scenario, plan: ContactPlan) -> Array:
    """What the workloads ask for while the senders are there."""
    stays: list[list[tuple[int, int]]] = [[] for _ in plan.nodes]
    for node, start_us, stop_us in plan.presence:
        stays[node].append((start_us, a.NEVER_US if stop_us == plan.stop_us else stop_us))
    rows = [
        (time_us, source.node)
        for source in sources(scenario)
        for time_us in source.times_us
        if any(start_us <= time_us < stop_us for start_us, stop_us in stays[source.node])
    ]
    return np.array(sorted(rows), dtype=np.int64).reshape(-1, 2)
