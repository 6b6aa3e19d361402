"""The kernel of `oppnet`: causal barriers over a contact plan, a million receives in seconds.

    outcome = run(scenario, recorder, Level.DELIVERIES)      # a Scenario of "oppnet" over a contact plan
    detail = run_plan(plan, settings, since_entry(plan, 43_000_000, 60_000_000), watch=[777])
    detail.measures()                         # Tables II, III, V and VI
    detail.delay_us, detail.latency_us        # one number per receive, per co-delivery: Figures 4, 5, 9, 10
    detail.registries                         # of the watched nodes over time: Figures 6 and 11
    detail.barrier_entries                    # of each message

The outcome is that of `oppnet`'s cores in the simulator, bit for bit: same receives, deliveries and expiries
at the same times and in the same order (tests/equivalence/test_oppnet_kernel.py). What is covered are contact
plans, links of one constant delay that lose nothing but what a cut contact takes, one lifetime for all or
none, caches without limit, and clocks that are wrong by a constant. The kernel counts messages, not packets,
and cannot say what a message waits for. Memory: 4 bytes for each pair of node and message, 96 for each
receive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import msgspec
import numpy as np

from whence.kernels.by_place import by_place
from whence.kernels.compile import Array, note_compiled
from whence.kernels.compile import is_compiled as compiled
from whence.kernels.contract import NOTHING, TESTED, Keep, missing, refuse
from whence.kernels.oppnet import state as a
from whence.kernels.oppnet.state import OppnetSettings, grown, make_state
from whence.kernels.oppnet.step import advance
from whence.overlay.contacts import ContactPlan, make_plan
from whence.protocols.barrier.oppnet import Oppnet
from whence.sim.cores import core_params
from whence.sim.distributions import Constant
from whence.sim.faults import clocks_of, plan_faults
from whence.sim.files import run_id
from whence.sim.links_planned import plan_of
from whence.sim.model import Anyone, Link, Replies, Scenario, Skew, node_names
from whence.sim.outcome import Outcome
from whence.sim.promises import promises_made
from whence.sim.workload import sources
from whence.trace.schema import Kind, Level, Recorder

COMPILE_SECONDS = 10.0
KEEPS = frozenset(("registries",))  # with (nodes, every so many microseconds)


# Measures: section VI-A, by the paper's names and definitions; ratios are of totals


class TimeSpread(msgspec.Struct, frozen=True, kw_only=True):
    """min / max / avg / stdev, as Tables III and VI state them, in microseconds; of nothing: zeros."""

    count: int
    min_us: int
    max_us: int
    mean_us: float
    deviation_us: float


class OppnetMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as in Tables II, III, V and VI."""

    broadcasts: int  # bcast
    receives: int  # rcvd: first copies from others
    deliveries: int  # codlvd: a node's own messages included
    delivery_ratio: float  # codlvratio: deliveries / (broadcasts + receives)
    expiries: int  # expd: received, and dead before their turn came
    expiry_ratio: float  # expratio: expiries / receives
    waiting: int  # received, neither delivered nor expired: the node left, or the run ended
    delay: TimeSpread  # tdelay, of every receive
    latency: TimeSpread  # ltcy, of every received message that was co-delivered
    age: TimeSpread  # codlvdelay
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
) -> OppnetMeasures:
    """Sum up one run."""
    receives = len(delay_us)
    return OppnetMeasures(
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


def spread(values_us: Array) -> TimeSpread:
    """min / max / avg / stdev of some times."""
    if not len(values_us):
        return TimeSpread(count=0, min_us=0, max_us=0, mean_us=0.0, deviation_us=0.0)
    return TimeSpread(
        count=len(values_us),
        min_us=int(values_us.min()),
        max_us=int(values_us.max()),
        mean_us=float(values_us.mean()),
        deviation_us=float(np.std(values_us)),
    )


@dataclass(frozen=True)
class OppnetDetail:
    """What happened. A record is a message at a node: received there, or (`is_own`) broadcast."""

    names: list[str]
    settings: OppnetSettings
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
    events: int

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

    def measures(self) -> OppnetMeasures:
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
    settings: OppnetSettings,
    broadcasts: Array,
    *,
    watch: Sequence[int] = (),
    sample_us: int = 1_000_000,
    names: Sequence[str] | None = None,
) -> OppnetDetail:
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
        lacking = advance(by_place(state))
        while lacking != a.DONE:
            state = grown(state, lacking)
            lacking = advance(by_place(state))
        note_compiled(advance)
        if not state.counters[a.OVERFLOWS]:
            return _detail(state, known, settings)
        room *= 8


def _check(plan: ContactPlan, settings: OppnetSettings, broadcasts: Array) -> None:
    given = ("lifetime_us", "mode", "skew_us", "seed", "gap_us", "setup_max_us", "late_us")
    unset = {"skew_us"} if not settings.skew_us else set()
    if settings.mode != "safe":
        unset |= {"late_us"}
    core = {name: getattr(settings, name) for name in given if name not in unset}
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
    refuse("oppnet", reason)


def _detail(state: a.OppnetArrays, names: list[str], settings: OppnetSettings) -> OppnetDetail:
    counters = state.counters
    sent = state.messages[:, a.SENT_US] >= 0
    messages = state.messages[: int(sent.sum())]  # what is due after the end was never broadcast
    records = state.records[: counters[a.RECORDS_USED]]
    came_late = records[:, a.R_RECEIVED_US] < 0
    late, records = records[came_late], records[~came_late]
    return OppnetDetail(
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


def record(
    detail: OppnetDetail,
    recorder: Recorder,
    level: Level = Level.DELIVERIES,
    payload_bytes: Sequence[int] = (),
    moves: Sequence[tuple[int, Kind, int]] = (),
) -> None:
    """Tell a recorder the broadcasts, deliveries and expiries in their order.

    `payload_bytes` are the sizes of the messages; `moves`, (time_us, RESTART or CRASH, node) in their order,
    are the nodes that enter and leave, each before all else at its time.
    """
    names = detail.names
    lifetime_us = detail.settings.lifetime_us
    lifetime = None if lifetime_us is None else str(lifetime_us)
    sizes = payload_bytes or [0] * len(detail.origin)
    every = level >= Level.DELIVERIES
    ends = _ends(detail)
    if not every:  # nobody is told of the hundreds of deliveries that follow each broadcast
        ends = ends[ends[:, 3] == Kind.BROADCAST]
    moved = 0
    for node, message, time_us, kind in ends.tolist():
        while moved < len(moves) and moves[moved][0] <= time_us:
            recorder.event(names[moves[moved][2]], *moves[moved][:2])
            moved += 1
        name, source, number = names[node], names[detail.origin[message]], int(detail.number[message])
        if kind == Kind.BROADCAST:
            recorder.event(name, time_us, Kind.BROADCAST, source, number, None, sizes[message], 0, lifetime)
        if not every:
            continue
        if kind == Kind.EXPIRE:
            recorder.event(name, time_us, Kind.EXPIRE, source, number, None, 0, 0, "expired")
        else:
            recorder.event(name, time_us, Kind.DELIVER, source, number, None, sizes[message])
    for at_us, what, who in moves[moved:]:
        recorder.event(names[who], at_us, what)


def _ends(detail: OppnetDetail) -> Array:
    """Rows (node, message, time_us, kind) in order: BROADCAST is a delivery of a node's own."""
    ended_us = np.maximum(detail.delivered_us, detail.expired_us)
    kind = np.where(detail.is_own, Kind.BROADCAST, Kind.DELIVER)
    kind[detail.delivered_us < 0] = Kind.EXPIRE
    rows = np.column_stack([detail.node, detail.message, ended_us, kind, detail.turn])[ended_us >= 0]
    late = np.insert(detail.late, 3, Kind.EXPIRE, axis=1)
    rows = np.concatenate([rows, late])
    ordered: Array = rows[np.argsort(rows[:, 4], kind="stable")][:, :4]
    return ordered


# Scenarios


def refusal(scenario: Scenario, level: Level = Level.MEASURES, keep: Keep = NOTHING) -> str | None:
    """Return why the cores must run a scenario; None if the kernel can."""
    no_kernel = missing(scenario)
    if no_kernel is not None:
        return no_kernel
    link, params = scenario.link, scenario.params
    offsets = [clock.offset_us for clock in clocks_of(scenario).values()]
    spread_us = max([0, *offsets]) - min([0, *offsets])
    reasons = (
        (Link(delay=link.delay) != link or bool(scenario.overrides), "links do more than delay"),
        (not isinstance(link.delay, Constant) or link.delay.value_us < 1, "delays are not constant"),
        (bool(params.get("capacity")), "caches are limited"),
        (
            any(isinstance(each, Replies | Anyone) for each in scenario.workloads),
            "there are replies, or senders are drawn",
        ),
        (
            any(each.lifetime for each in scenario.workloads if not isinstance(each, Anyone)),
            "messages have lifetimes of their own",
        ),
        (
            any(not isinstance(each, Skew) or each.drift_ppm for each in scenario.faults),
            "there are faults other than clocks that are wrong by a constant",
        ),
        (min([0, *offsets]) < 0, "a clock is behind true time"),
        (
            params.get("mode") != "published" and spread_us > params.get("skew_us", 0),
            "clocks differ by more than skew_us",
        ),
        (scenario.record.sample_every_us is not None, "gauges are sampled"),
        (level is Level.ALL, "the trace is to have every packet, and the kernel keeps none"),
        (not keep.keys() <= KEEPS, f"it keeps no {', '.join(keep)}"),
    )
    return next((reason for applies, reason in reasons if applies), None)


def run(
    scenario: Scenario, recorder: Recorder | None = None, level: Level = Level.MEASURES, keep: Keep = NOTHING
) -> Outcome:
    """Run a scenario; its outcome's detail is an `OppnetDetail`."""
    refuse("oppnet", refusal(scenario, level, keep))
    plan = cast(ContactPlan, plan_of(scenario))
    planned = broadcasts_of(scenario, plan)
    watch, sample_us = keep.get("registries", ((), 1))
    detail = run_plan(plan, settings_of(scenario), planned[:, :2], watch=watch, sample_us=sample_us)
    if recorder is not None:
        record(detail, recorder, level, planned[:, 2].tolist(), _moves(scenario))
    broadcasts, deliveries = len(detail.origin), int((detail.delivered_us >= 0).sum())
    expired = int((detail.expired_us >= 0).sum()) + len(detail.late)
    return Outcome(
        run=run_id(scenario),
        scenario=scenario,
        promises=promises_made(scenario, complete=False),  # who meets whom is the plan's
        path="kernel",
        why=TESTED,
        broadcasts=broadcasts,
        skipped_broadcasts=_skipped(scenario, planned),
        deliveries=deliveries,
        undelivered=broadcasts * scenario.nodes - deliveries,
        expiries={"expired": expired} if expired else {},
        detail=detail,
    )


def settings_of(scenario: Scenario) -> OppnetSettings:
    """Return the kernel's settings for a scenario over links of a constant delay."""
    clocks, stop = clocks_of(scenario), scenario.stop
    offsets_us = [clocks[node].offset_us if node in clocks else 0 for node in range(scenario.nodes)]
    return OppnetSettings(
        **core_params(scenario),
        delay_us=cast(Constant, scenario.link.delay).value_us,
        offsets_us=tuple(offsets_us) if clocks else (),
        end_us=stop.duration_us + (stop.drain_max_us if stop.drain else 0),
    )


def broadcasts_of(scenario: Scenario, plan: ContactPlan) -> Array:
    """Return rows (time_us, node, payload_bytes): what the workloads ask for while the senders are there."""
    stays: list[list[tuple[int, int]]] = [[] for _ in plan.nodes]
    for node, start_us, stop_us in plan.presence:
        stays[node].append((start_us, a.NEVER_US if stop_us == plan.stop_us else stop_us))
    rows = [
        (time_us, source.node, len(source.payloads.of(number)))
        for source in sources(scenario)
        for number, time_us in enumerate(source.times_us)
        if any(start_us <= time_us < stop_us for start_us, stop_us in stays[source.node])
    ]
    return np.array(sorted(rows), dtype=np.int64).reshape(-1, 3)


def _moves(scenario: Scenario) -> list[tuple[int, Kind, int]]:
    """Return when nodes enter and leave before the run ends: the engine has them down while they are away."""
    stop = scenario.stop
    end_us = stop.duration_us + (stop.drain_max_us if stop.drain else 0)
    outages = plan_faults(scenario).outages
    moves = [(each.restart_us, 0, Kind.RESTART, each.node) for each in outages]
    moves += [(each.at_us, 1, Kind.CRASH, each.node) for each in outages]
    return [(time_us, kind, node) for time_us, _, kind, node in sorted(moves) if time_us < end_us]


def _skipped(scenario: Scenario, planned: Array) -> int:
    """Return how many broadcasts were due while their senders were away."""
    return sum(1 for source in sources(scenario) for _ in source.times_us) - len(planned)


def warm_up() -> None:
    """Compile the kernel, or load what is compiled."""
    plan = make_plan(["a", "b"], [(0, 1, 0, 9)])
    run_plan(plan, OppnetSettings(), since_entry(plan, 1, 5))


def is_compiled() -> bool:
    """Return whether `run` can begin without compiling."""
    return compiled(advance)
