"""What no protocol of one packet per receiver could exceed in a run of paper 002's network, and the best that
order allows.

    direct      a pair of a message and a receiver counts if the packet that the origin sends arrives in time
    relay       ... if it arrives in time when every node that has the message pushes it at once to all,
                over the path that solicitations and replies take
    optimum     the most that a receiver could have delivered in causal order and in time out of what the
                origins' packets brought, with full knowledge of the run

Why the optimum is a maximum antichain: two messages cannot both be delivered just if m is before m' and
arrives after the deadline of m'. That relation is a partial order. (If m comes after the deadline of m', and
m' after that of m'', then m comes after the deadline of m'', for what arrives in time arrives before its
deadline.) So a set without two such messages is an antichain; and such a set can be delivered: each message
as late as its deadline, or when a message that follows it must be. By Dilworth's theorem the largest one has
as many messages as there are, less those of a maximum matching.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from whence.core.rng import chance, purpose, stream
from whence.overlay.graphs import grid_hops
from whence.protocols.deadline.tdca import Tdca
from whence.sim.distributions import Ramp, sampler
from whence.sim.faults import plan_faults
from whence.sim.links import Entry, Traffic
from whence.sim.links_static import make_outlets, path_loss
from whence.sim.model import Scenario, node_names
from whence.sim.topology import make_graph

NEVER_US = 1 << 62
RELAY_DRAWS = 150_000  # each message of which the relay bound is computed takes nodes^2 draws
RELAY_MESSAGES = 60  # but no fewer messages than this: their lifetimes are drawn too

PUSH = purpose("relay bound")


class Sent(NamedTuple):
    """One broadcast of a run."""

    time_us: int
    origin: int
    number: int
    deadline_us: int
    after: tuple[int, ...] = ()  # for each member, its newest message before this one; () if not asked for


# The ends of a run are not like the rest: at first nothing is before a message, and the loss of one of the
# last is not noticed for want of a later one. Only messages in between are counted (but for the optimum).
BEGIN_US, END_US = 200_000, 300_000


def counted_span_us(scenario: Scenario, optimum: bool) -> tuple[int, int]:
    """Return from which time on messages count that are broadcast, and before which."""
    return 0 if optimum else BEGIN_US, scenario.stop.duration_us - (0 if optimum else END_US)


def has_bounds(scenario: Scenario) -> bool:
    """Return whether a run shows what no protocol could exceed: its origins send each message once, and no
    node sends anything else."""
    params = scenario.params
    is_safe = params.get("mode", "safe") == "safe" and not scenario.faults and not scenario.link.duplicate
    return scenario.protocol == Tdca.name and is_safe and params.get("copies", 1) == 1


def arrivals(scenario: Scenario, sent: Sequence[Sent]) -> list[list[int]]:
    """When the origin's packet reaches each node, message by message; NEVER_US if it is lost.

    The network draws by the number of a packet on its link, so that this is what happens in every run in
    which origins send each message once and nothing else takes the same path.
    """
    heap: list[Entry] = []
    names = node_names(scenario.nodes)
    outlets = make_outlets(scenario, make_graph(scenario), plan_faults(scenario), heap, Traffic())
    found = [[NEVER_US] * scenario.nodes for _ in sent]
    for at, message in enumerate(sent):
        others = tuple(name for node, name in enumerate(names) if node != message.origin)
        outlets[message.origin](others, (at,), message.time_us, 0)
        while heap:
            arrive_us, _, target, _, _, parcel = heap.pop()
            found[parcel[0]][target] = min(found[parcel[0]][target], arrive_us)
    return found


def direct(sent: Sequence[Sent], arrived: Sequence[Sequence[int]]) -> int:
    """How many pairs the origins' packets reach in time."""
    return sum(
        time_us <= message.deadline_us
        for message, times_us in zip(sent, arrived, strict=True)
        for node, time_us in enumerate(times_us)
        if node != message.origin
    )


def relay(scenario: Scenario, sent: Sequence[Sent], arrived: Sequence[Sequence[int]]) -> tuple[int, int]:
    """(pairs looked at, pairs that pushing reaches in time), over messages spread evenly through the run."""
    chosen = relay_sample(scenario, len(sent))
    reached = sum(_pushed(scenario, at, sent[at], arrived[at]) for at in chosen)
    return len(chosen) * (scenario.nodes - 1), reached


def relay_sample(scenario: Scenario, messages: int) -> range:
    """The places of the messages of which the relay bound is computed."""
    wanted = max(RELAY_MESSAGES, RELAY_DRAWS // scenario.nodes**2)
    return range(0, messages, max(1, messages // wanted))


def _pushed(scenario: Scenario, at: int, message: Sent, direct_us: Sequence[int]) -> int:
    """How many nodes have one message in time: the shortest ways from all who got it from its origin."""
    spec = scenario.control or scenario.link
    assert not isinstance(spec.delay, Ramp), "the scenarios of the study draw their delays"
    draw = sampler(spec.delay)
    times_us = list(direct_us)
    waiting = {node for node in range(scenario.nodes) if node != message.origin}
    reached = 0
    while waiting:
        holder = min(waiting, key=lambda node: (times_us[node], node))
        if times_us[holder] > message.deadline_us:
            break
        waiting.remove(holder)
        reached += 1
        for other in waiting:
            if times_us[other] <= times_us[holder]:
                continue
            key = stream(scenario.seed, PUSH, at, holder, other)
            hops = grid_hops(scenario.nodes, holder, other)
            if not chance(key, 0, path_loss(spec, hops)):
                came_us = times_us[holder] + draw(key, 1) + spec.process_us + spec.hop_delay_us * hops
                times_us[other] = min(times_us[other], came_us)
    return reached


def optimum(sent: Sequence[Sent], arrived: Sequence[Sequence[int]], nodes: int) -> int:
    """The most deliveries at other nodes than the origins, over all receivers."""
    total = 0
    for node in range(nodes):
        mine = [
            (message, times_us[node])
            for message, times_us in zip(sent, arrived, strict=True)
            if message.origin != node and times_us[node] <= message.deadline_us
        ]
        total += len(mine) - _matching(
            [[at for at, (later, _) in enumerate(mine) if _excludes(one, later)] for one in mine]
        )
    return total


def _excludes(one: tuple[Sent, int], later: Sent) -> bool:
    """Whether the first is before the second and comes after its deadline."""
    message, arrived_us = one
    return message.number <= later.after[message.origin] and arrived_us > later.deadline_us


def _matching(edges: Sequence[Sequence[int]]) -> int:
    """The size of a maximum matching between the left side, given by its edges, and the right side."""
    partner: dict[int, int] = {}  # right -> left

    def augment(left: int, seen: set[int]) -> bool:
        for right in edges[left]:
            if right not in seen:
                seen.add(right)
                if right not in partner or augment(partner[right], seen):
                    partner[right] = left
                    return True
        return False

    return sum(augment(left, set()) for left in range(len(edges)))
