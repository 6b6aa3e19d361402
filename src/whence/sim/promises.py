"""What a run promises: the protocol's word, as far as the circumstances of the run allow it.

The verifier demands just that. Order and uniqueness hold whatever the faults; that every node delivers every
message is promised only in a world in which nothing is lost, by a run that has drained.
"""

from __future__ import annotations

from whence.overlay.graphs import Graph
from whence.protocols import registry
from whence.sim.faults import NEVER_US, FaultPlan, clocks_of
from whence.sim.model import Anyone, Contacts, Full, Overlay, Scenario
from whence.sim.topology import link_specs
from whence.trace.schema import PromisesMade


def promises_made(scenario: Scenario, *, complete: bool, final_us: int | None = None) -> PromisesMade:
    """What the protocol promises, as far as this run's circumstances allow it; `final_us`: when it ended."""
    info = registry.lookup(scenario.protocol)
    promised, params = info.promises, scenario.params
    keeps_all = params.get("keep", "forever") == "forever" and params.get("history", "all") == "all"
    end_us = scenario.stop.duration_us + scenario.stop.drain_max_us if final_us is None else final_us
    return PromisesMade(
        # Theorem 1 of paper 004: on a cycle of domains no one can promise order.
        causal=promised.causal and not scenario.params.get("unsafe_cycles"),
        fifo=promised.fifo,
        no_duplicates=promised.no_duplicates,
        complete=promised.complete and complete and keeps_all,
        timely=promised.timely,
        clock_slack_us=clock_slack_us(scenario, end_us) if promised.timely or info.lives else 0,
    )


def clock_slack_us(scenario: Scenario, end_us: int) -> int:
    """How far apart any two clocks of the run can be, at any two times until it ends."""
    clocks = clocks_of(scenario)
    if not clocks:
        return 0
    off_us = [
        clock.offset_us + at_us * clock.drift_ppm // 1_000_000
        for clock in clocks.values()
        for at_us in (0, end_us)
    ]
    if len(clocks) < scenario.nodes or min(off_us) < 0:
        off_us.append(0)  # a clock without skew, or one that stands at 0 until it is right
    return max(off_us) - min(off_us) + 1  # clocks show whole microseconds


def loses_nothing(scenario: Scenario, plan: FaultPlan, graph: Graph, *, renews: bool, is_whole: bool) -> bool:
    """Whether the run's world is one in which every node must get everything, once it has drained.

    That is so if every node that crashes comes back, every partition heals, and every packet that a
    core sends arrives at last: each link either retransmits, or neither loses by chance nor stands
    in the way of a partition or a crash; and if messages have no lifetimes. Flooding may survive more
    than that, but it is not promised. A protocol that does not relay reaches only the neighbours of
    the origin. Over an overlay all nodes must have joined before the first broadcast, none may crash, and
    no handshake may fail (`is_whole`). A core that `renews` its members repairs in time.
    """
    if renews:
        return False  # no one knows whether the run was long enough for that
    if isinstance(scenario.topology, Overlay):
        # A node must deliver what is broadcast after it has joined, and a crash takes what is in flight.
        return is_whole and not plan.outages
    lifetimes = [each.lifetime for each in scenario.workloads if not isinstance(each, Anyone)]
    if scenario.params.get("lifetime_us") or any(each is not None for each in lifetimes):
        return False  # what has died on its way is nowhere
    for_ever = [outage.restart_us for outage in plan.outages] + [split.stop_us for split in plan.splits]
    if isinstance(scenario.topology, Contacts) or NEVER_US in for_ever:
        return False
    if scenario.params.get("relay") in (False, "need") and not isinstance(scenario.topology, Full):
        return False
    troubled = bool(plan.outages or plan.splits)
    links = [scenario.link, *link_specs(scenario, graph).values()]
    return all(
        link.retransmit_us is not None or not (link.loss or link.hop_loss or troubled) for link in links
    )
