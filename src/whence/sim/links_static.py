"""Links over a graph that is known before: when each packet arrives, decided when it is sent.

All links are up from the beginning, or, with a contact plan (`links_planned.py`), while two nodes are in
contact. The order of what happens at one time, and the numbers of an entry of the agenda:

    rank          first     second                     third
    LINK_DOWN     node      the other node             -
    RESTART, CRASH     node -                          number of the outage
    LINK_UP       node      the other node             -
    RECEIVE       node      the sending node           2 x number on the link
                                                       (+ 1: the extra copy; + 2^40: on the control path)
    TIMER         node      number of the timer        -
    BROADCAST     node      place of the workload      number of the broadcast
    REPLY         node      place of the workload      the answered message
    SAMPLE        -         -                          -

What a node is told at one time it is told in that order: it is up before it receives, and it has
received before it broadcasts. Links go down before a node leaves and come up after it has entered; only
contact plans have such entries.

A packet waits in its sender's queue (`service_us` each, one after the other), takes its turn on the
link (`bandwidth_bytes_per_s`), travels for a drawn delay, and is processed for `process_us`. An
attempt fails if it is lost by chance, if the sender is down when it leaves, if the receiver is down
when it arrives, or if a partition stands between the two at any moment of its way. On a link with
`retransmit_us` a failed packet leaves again at the next multiple of that time at which the obstacle is gone,
until it arrives; elsewhere it is lost. Retransmissions and duplicates are the network's own: they take no
turn in the queue and no bandwidth.

Draws are keyed by (purpose, sender, receiver) and indexed by the packet's number on the link. Where the
scenario has a `control` link, control packets travel over it, with queues, numbers and draws of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappush
from typing import Any, ClassVar

from whence.core.message import NodeId
from whence.core.rng import branch, chance, purpose, stream
from whence.errors import InvariantError
from whence.overlay import graphs
from whence.overlay.graphs import Graph
from whence.sim.distributions import Delay, Draw, Ramp, sampler
from whence.sim.faults import NEVER_US, FaultPlan, Slowness, Windows
from whence.sim.links import (
    BROADCAST,
    CRASH,
    LINK_DOWN,
    LINK_UP,
    RECEIVE,
    REPLY,
    RESTART,
    SAMPLE,
    TIMER,
    Entry,
    Outlet,
    Parcel,
    Run,
    Traffic,
)
from whence.sim.links_planned import changes, plan_of
from whence.sim.model import Link, Scenario, node_names
from whence.sim.topology import link_specs

_DELAY = purpose("link delay")
_LOSS = purpose("link loss")
_DUPLICATE = purpose("link duplicate")
_AGAIN = purpose("link further attempts")
_CONTROL = purpose("control path")

REDIAL_US = 1_000_000  # after which a connection that one end has closed is made anew
CONTROL_COUNTER = 1 << 40  # added to the counter of an arrival on the control path: it may tie with others


class StaticLinks:
    """The links of a run over a graph: always up, or up as a contact plan says."""

    ongoing: ClassVar = frozenset((TIMER, SAMPLE, RECEIVE, LINK_UP, LINK_DOWN))

    def __init__(self, run: Run, graph: Graph) -> None:
        scenario = run.scenario
        self.traffic = Traffic()
        self.members: Sequence[int] = range(scenario.nodes)
        self.opened, self.is_whole = 0, True
        self.outlets = make_outlets(scenario, graph, run.plan, run.agenda, self.traffic)
        self.control_outlets = self.outlets
        if scenario.control is not None:
            self.control_outlets = make_outlets(
                scenario, graph, run.plan, run.agenda, self.traffic, control=True
            )
        self._run = run
        self._graph = graph
        self._contacts: dict[int, set[int]] | None = None  # with a plan: who is in contact now

    def begin(self) -> None:
        """Link up, or plan every change of a link."""
        run = self._run
        contacts = plan_of(run.scenario)
        if contacts is None:
            for node, neighbours in enumerate(self._graph):
                for other in neighbours:
                    run.drivers[node].link_up(run.names[other], 0)
        else:
            self._contacts = {}
            for is_up, time_us, node, other in changes(contacts):
                heappush(run.agenda, (time_us, LINK_UP if is_up else LINK_DOWN, node, other, 0, None))

    def put(self, kind: int, time_us: int, node: int, source: int, counter: int, data: Any) -> None:
        """Put something of the engine on the agenda."""
        heappush(self._run.agenda, (time_us, kind, node, source, counter, data))

    def happen(self, entry: Entry) -> None:
        """Carry out an entry."""
        time_us, rank, node, source, counter, data = entry
        run = self._run
        if rank == BROADCAST:
            run.broadcast(data, counter, time_us)
        elif rank == REPLY:
            run.reply(node, data, time_us)
        elif rank == TIMER:
            run.fire(node, source, data, time_us)
        elif rank == SAMPLE:
            run.sample(time_us)
        elif run.down.get(node) == NEVER_US:
            return  # it has stopped itself since the outage was planned
        elif rank in (LINK_UP, LINK_DOWN):
            self._meet(rank == LINK_UP, node, source, time_us)
        elif rank == CRASH:
            run.crash(node, data, time_us)
        elif rank == RESTART:
            run.restart(node, time_us)

    def may_send(self, node: int) -> bool:
        """Whether a node that is up is in the group, and may broadcast."""
        return self._run.drivers[node].core.ready

    def part(self, node: int, time_us: int) -> None:
        """A node whose links are connections has crashed: tell the other ends."""
        run = self._run
        for other in sorted(self._linked(node)):
            if other not in run.down:
                run.drivers[other].link_down(run.names[node], time_us)

    def join(self, node: int, time_us: int) -> None:
        """A node whose links are connections is back: connect it."""
        run = self._run
        for other in sorted(self._linked(node)):
            if other not in run.down:
                run.drivers[node].link_up(run.names[other], time_us)
                run.drivers[other].link_up(run.names[node], time_us)

    def _linked(self, node: int) -> Iterable[int]:
        """The other ends of a node's links that are up now: all of the graph, or those in contact."""
        return self._graph[node] if self._contacts is None else self._contacts.get(node, ())

    def _meet(self, is_up: bool, node: int, other: int, time_us: int) -> None:
        """One end of a contact begins or ends. A connection to a node that is down cannot be."""
        run = self._run
        driver = run.drivers[node]
        if self._contacts is not None:
            met = self._contacts.setdefault(node, set())
            (met.add if is_up else met.discard)(other)
        if driver.core.sessions and (node in run.down or other in run.down):
            return
        (driver.link_up if is_up else driver.link_down)(run.names[other], time_us)

    def close(self, node: int, peer: NodeId, time_us: int) -> None:
        """The graph is given: only a connection can be closed, and it is made anew."""
        run = self._run
        if not run.drivers[node].core.sessions:
            raise InvariantError(
                f"protocol core of {run.names[node]}", f"it closes its static link to {peer!r}"
            )
        other = run.names.index(peer)
        self.put(LINK_DOWN, time_us, other, node, 0, None)
        if self._contacts is None:  # else the next contact
            for one, its in ((node, other), (other, node)):
                self.put(LINK_UP, time_us + REDIAL_US, one, its, 0, None)

    def in_flight(self) -> int:
        """Return how many packets with messages are on their way to nodes that may deliver them."""
        run = self._run
        return sum(
            entry[1] == RECEIVE
            and entry[2] not in run.stopped
            and run.drivers[entry[2]].core.message_of(entry[5][0]) is not None
            for entry in run.agenda
        )


def make_outlets(
    scenario: Scenario,
    graph: Graph,
    plan: FaultPlan,
    heap: list[Entry],
    traffic: Traffic,
    *,
    control: bool = False,
) -> list[Outlet]:
    """For each node the function that takes its packets and puts their arrivals on the heap."""
    names = node_names(scenario.nodes)
    specs = {} if control else link_specs(scenario, graph)
    common = scenario.control if control and scenario.control is not None else scenario.link
    seed = stream(scenario.seed, _CONTROL) if control else scenario.seed
    first = CONTROL_COUNTER if control else 0
    draws: dict[Delay, Draw] = {}  # links share one function per distribution
    separable = bool(plan.splits or plan.apart)
    down = [plan.down(node) for node in range(scenario.nodes)] if plan.outages else None
    outlets: list[Outlet] = []
    for source, neighbours in enumerate(graph):
        delays = stream(seed, _DELAY, source)
        links = []
        for target in neighbours:
            spec = specs.get((source, target), common)
            draw = draws.get(spec.delay)
            if draw is None:
                draw = draws[spec.delay] = _timeless if isinstance(spec.delay, Ramp) else sampler(spec.delay)
            hops = 0
            if spec.hop_loss or spec.hop_delay_us:
                hops = graphs.grid_hops(scenario.nodes, source, target)
            link = _Link(spec, draw, branch(delays, target), seed, source, target, hops)
            if separable:
                link.separated = plan.separated(source, target)
            if down is not None:
                link.down = down[target]
            link.slow = plan.slow.get(target)
            links.append(link)
        own_down = down[source] if down is not None else Windows()
        own_slow = plan.slow.get(source)
        if own_down or own_slow or not all(link.is_plain() for link in links):
            sender = _Sender(heap, traffic, source, own_down, own_slow, first)
            outlets.append(sender.outlet(_by_name(names, source, links)))
        else:
            outlets.append(_plain_outlet(heap, source, _by_name(names, source, links), first))
    return outlets


class _Links(dict[NodeId, "_Link"]):
    """The links of one node by the name of the other end."""

    def __init__(self, name: NodeId) -> None:
        super().__init__()
        self.name = name

    def __missing__(self, peer: NodeId) -> _Link:
        raise InvariantError(f"protocol core of {self.name}", f"it sends to {peer!r}, which is no neighbour")


def _by_name(names: list[NodeId], source: int, links: list[_Link]) -> _Links:
    found = _Links(names[source])
    for link in links:
        found[names[link.target]] = link
    return found


class _Link:
    """One direction of one link."""

    __slots__ = (
        "count", "down", "draw", "duplicate_key", "extra_us", "free_us", "key", "last_us", "loss", "loss_key",
        "ramp", "separated", "slow", "spec", "target",
    )  # fmt: skip

    def __init__(
        self, spec: Link, draw: Draw, key: int, seed: int, source: int, target: int, hops: int
    ) -> None:
        self.spec = spec
        self.draw = draw
        self.target = target
        self.key = key
        self.loss = path_loss(spec, hops)
        self.extra_us = spec.process_us + spec.hop_delay_us * hops
        self.loss_key = stream(seed, _LOSS, source, target) if self.loss else 0
        self.duplicate_key = stream(seed, _DUPLICATE, source, target) if spec.duplicate else 0
        self.ramp = spec.delay if isinstance(spec.delay, Ramp) else None
        self.count = 0  # packets sent on it
        self.free_us = 0  # when the bandwidth is free again
        self.last_us = 0  # the latest arrival, for FIFO
        self.separated: Windows | None = None
        self.down: Windows | None = None  # of the receiver
        self.slow: list[Slowness] | None = None  # of the receiver

    def draw_attempt(self, count: int, copy: int, attempt: int, depart_us: int) -> tuple[int, bool]:
        """The delay of one attempt to bring packet `count`, and whether chance loses it."""
        loss = self.loss
        if copy == 0 and attempt == 0:
            delay_us, is_lost = self.draw(self.key, count), bool(loss) and chance(self.loss_key, count, loss)
        else:
            key = stream(self.key, _AGAIN, count, copy)
            delay_us, is_lost = self.draw(key, 2 * attempt), chance(key, 2 * attempt + 1, loss)
        return delay_us if self.ramp is None else self.ramp.at(depart_us), is_lost

    def is_plain(self) -> bool:
        """Whether a delay is all that can happen to a packet."""
        spec = self.spec
        troubled = self.loss or spec.duplicate or spec.fifo or spec.service_us or spec.bandwidth_bytes_per_s
        return not (troubled or self.extra_us or self.ramp or self.separated or self.down or self.slow)


def _timeless(key: int, index: int) -> int:
    """Stands where the delay follows from the time of sending."""
    return 0


def path_loss(spec: Link, hops: int) -> float:
    """The chance that a packet is lost on a link that spans that many hops."""
    kept = 1.0 - spec.loss
    for _ in range(hops):  # not `**`: the C library's pow need not have the same bits everywhere
        kept *= 1.0 - spec.hop_loss
    return 1.0 - kept if spec.hop_loss and hops else spec.loss


def _plain_outlet(heap: list[Entry], source: int, links: _Links, first: int) -> Outlet:
    """The short way, taken where a delay is all that can happen; equal to `_Sender` there (tested)."""

    def send(to: tuple[NodeId, ...], parcel: Parcel, now_us: int, total_bytes: int) -> None:
        for peer in to:
            link = links[peer]
            count = link.count
            link.count = count + 1
            arrive_us = now_us + link.draw(link.key, count)
            heappush(heap, (arrive_us, RECEIVE, link.target, source, first + 2 * count, parcel))

    return send


class _Sender:
    """A node's side of the network, with everything that a scenario can ask for."""

    def __init__(
        self,
        heap: list[Entry],
        traffic: Traffic,
        source: int,
        down: Windows,
        slow: list[Slowness] | None,
        first: int = 0,
    ) -> None:
        self.first = first  # of the counters of its arrivals
        self.heap = heap
        self.traffic = traffic
        self.source = source
        self.down = down
        self.slow = slow
        self.free_us = 0  # when the sending queue is empty

    def outlet(self, links: _Links) -> Outlet:
        """The function that the engine calls."""

        def send(to: tuple[NodeId, ...], parcel: Parcel, now_us: int, total_bytes: int) -> None:
            for peer in to:
                self._send(links[peer], parcel, now_us, total_bytes)

        return send

    def _send(self, link: _Link, parcel: Parcel, now_us: int, total_bytes: int) -> None:
        spec = link.spec
        count = link.count
        link.count = count + 1
        depart_us = self._departure(link, now_us, total_bytes)
        copies = 1
        if spec.duplicate and chance(link.duplicate_key, count, spec.duplicate):
            copies = 2
            self.traffic.duplicated += 1
        for copy in range(copies):
            arrive_us = self._arrival(link, depart_us, count, copy)
            if arrive_us is None:
                self.traffic.lost += 1
                continue
            if spec.fifo:
                arrive_us = max(arrive_us, link.last_us)
                link.last_us = arrive_us
            counter = self.first + 2 * count + copy
            heappush(self.heap, (arrive_us, RECEIVE, link.target, self.source, counter, parcel))

    def _departure(self, link: _Link, now_us: int, total_bytes: int) -> int:
        """When the packet leaves: after those before it in the node's queue and on the link."""
        spec = link.spec
        depart_us = now_us
        if spec.service_us:
            service_us = spec.service_us
            for slowness in self.slow or ():
                if slowness.start_us <= now_us < slowness.stop_us:
                    service_us = int(service_us * slowness.factor + 0.5)
            depart_us = max(depart_us, self.free_us) + service_us
            self.free_us = depart_us
        if spec.bandwidth_bytes_per_s:
            taken_us = -(-total_bytes * 1_000_000 // spec.bandwidth_bytes_per_s)  # rounded up
            depart_us = max(depart_us, link.free_us) + taken_us
            link.free_us = depart_us
        return depart_us

    def _arrival(self, link: _Link, depart_us: int, count: int, copy: int) -> int | None:
        """When one copy arrives; None if it never does."""
        retransmit_us = link.spec.retransmit_us
        attempt = 0
        while True:
            delay_us, is_lost = link.draw_attempt(count, copy, attempt, depart_us)
            delay_us = _slowed(delay_us, depart_us, self.slow)
            arrive_us = depart_us + _slowed(delay_us, depart_us + delay_us, link.slow) + link.extra_us
            clear_us = self._obstacle(link, depart_us, arrive_us)
            if clear_us is None and not is_lost:
                return arrive_us
            if retransmit_us is None or clear_us == NEVER_US:
                return None
            wait_us = 1 if clear_us is None else max(clear_us - depart_us, 1)
            depart_us += -(-wait_us // retransmit_us) * retransmit_us
            attempt += 1

    def _obstacle(self, link: _Link, depart_us: int, arrive_us: int) -> int | None:
        """When the thing that stops this attempt ends; None if nothing does."""
        clear_us = self.down.end_of(depart_us, depart_us)
        if link.separated:
            clear_us = clear_us or link.separated.end_of(depart_us, arrive_us)
        if link.down:
            clear_us = clear_us or link.down.end_of(arrive_us, arrive_us)
        return clear_us


def _slowed(delay_us: int, at_us: int, slow: list[Slowness] | None) -> int:
    for slowness in slow or ():
        if slowness.start_us <= at_us < slowness.stop_us:
            delay_us = int(delay_us * slowness.factor + 0.5) + slowness.extra_us
    return delay_us
