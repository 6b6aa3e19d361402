"""The deterministic engine: an agenda of what is to happen, and a loop that makes it happen.

One engine for every scenario: it has the agenda, the nodes with their timers, the workloads and the faults.
The links of the run (`links.py` has the contract) carry packets, and say what comes first of several things
at one time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop
from typing import TypeAlias

from whence.core.lives import split_stream
from whence.core.message import Message, NodeId, Packet, Waiting
from whence.core.protocol import Protocol as Core
from whence.core.rng import below
from whence.sim.cores import Make, cores_of
from whence.sim.driver import Driver, Sent
from whence.sim.faults import NEVER_US, plan_faults
from whence.sim.links import BROADCAST, CRASH, RECEIVE, REPLY, RESTART, SAMPLE, TIMER, Entry, Links
from whence.sim.links_overlay import OverlayLinks
from whence.sim.links_static import StaticLinks
from whence.sim.model import Overlay, Scenario, node_names
from whence.sim.selection import select
from whence.sim.series import RunSeries, Tally
from whence.sim.topology import link_specs, make_graph
from whence.sim.workload import Reply, Source, responders, sources
from whence.trace.rows import About
from whence.trace.schema import Level, Recorder

PROGRESS_STEPS = 1 << 14  # how often `progress` is told the time

Progress: TypeAlias = Callable[[int], None]


class Engine:
    """One run. `run()` once; then read the counters."""

    def __init__(
        self,
        scenario: Scenario,
        make: Make | None = None,
        recorder: Recorder | None = None,
        *,
        level: Level = Level.ALL,
        check: bool = False,
        sent: Sequence[Sent] = (),
    ) -> None:
        self.scenario = scenario
        self.names = node_names(scenario.nodes)
        self.index = {name: at for at, name in enumerate(self.names)}
        self.graph = make_graph(scenario)
        self.plan = plan_faults(scenario)
        self.agenda: list[Entry] = []
        self.down: dict[int, int] = {}  # the nodes that are down -> when they restart
        self.stopped: set[int] = set()  # of these, those that stopped themselves
        self.steps = self.packets = self.broadcasts = self.skipped_broadcasts = 0
        self.control_packets = 0  # of `packets`, those that the protocol calls control
        self.time_us = 0  # of the last step; samples are not steps of the system
        self.in_flight = 0  # packets with messages still on their way when the run ended
        self.drained = False
        record = scenario.record
        self.tally: Tally | None = None
        if record.window_us is not None:
            self.tally = Tally(record.window_us, scenario.stop.duration_us, scenario.nodes)
        self._sampled = select(record.sample_nodes, self.names, "record.sample_nodes", scenario.seed)
        self._make = make or cores_of(scenario)
        self._sent = tuple(sent)  # those that watch packets
        self._timers: dict[tuple[int, str], int] = {}  # (node, key) -> number of the timer that counts
        self._timers_set = 0
        self._responders = responders(scenario)
        self._depths: dict[tuple[int, int], int] = {}  # (origin, number) of a reply -> its depth
        specs = [scenario.link, *link_specs(scenario, self.graph).values()]
        if scenario.control is not None:
            specs.append(scenario.control)
        self.drivers = [
            Driver(
                index,
                self._make(name, self.names),
                self,
                recorder=recorder,
                level=level,
                clock=self.plan.clocks.get(index),
                check=check,
                sized=any(spec.bandwidth_bytes_per_s for spec in specs),
            )
            for index, name in enumerate(self.names)
        ]
        self.links: Links = (
            OverlayLinks(self) if isinstance(scenario.topology, Overlay) else StaticLinks(self, self.graph)
        )
        # Looked up once, for the innermost loop.
        self._receive: list[Callable[..., None]] = [driver.receive for driver in self.drivers]
        self._outlets, self._control_outlets = self.links.outlets, self.links.control_outlets
        # Asked once: most protocols have no control packets, and every packet would pay for the question.
        core = self.drivers[0].core
        self._has_control = type(core).is_control is not Core.is_control

    # The run

    def run(self, progress: Progress | None = None) -> None:
        """Run to the end that the scenario sets."""
        stop = self.scenario.stop
        end_us = stop.duration_us + (stop.drain_max_us if stop.drain else 0)
        self._begin()
        while self._run_steps(end_us):
            if progress is not None:
                progress(self.time_us)
        self.in_flight = self.links.in_flight()
        # Timers may be left, and packets without a message: a protocol that sends something now and
        # then is never without them.
        ongoing = self.links.ongoing
        self.drained = not self.in_flight and all(entry[1] in ongoing for entry in self.agenda)

    def waiting(self) -> dict[NodeId, list[Waiting]]:
        """What each node holds back, and what it waits for; nodes that hold nothing are left out."""
        held = {driver.name: driver.core.explain() for driver in self.drivers}
        return {name: waiting for name, waiting in held.items() if waiting}

    def series(self) -> RunSeries | None:
        """Return the sums over windows, after the run; None without `record.window_us`."""
        return None if self.tally is None else self.tally.series(self.links.opened)

    def _begin(self) -> None:
        put = self.links.put
        self.links.begin()
        for number, outage in enumerate(self.plan.outages):
            put(CRASH, outage.at_us, outage.node, 0, number, outage.restart_us)
            if outage.restart_us != NEVER_US:
                put(RESTART, outage.restart_us, outage.node, 0, number, None)
        for source in sources(self.scenario):
            self._schedule(source, 0)
        if self.scenario.record.sample_every_us is not None:
            put(SAMPLE, self.scenario.record.sample_every_us, 0, 0, 0, None)

    def _schedule(self, source: Source, number: int) -> None:
        """Put a source's next broadcast on the agenda, if there is one."""
        time_us = next(source.times_us, None)
        if time_us is not None:
            self.links.put(BROADCAST, time_us, source.node, source.workload, number, source)

    def _run_steps(self, end_us: int) -> bool:
        """Run PROGRESS_STEPS steps; False when there is nothing more to do before `end_us`."""
        agenda, names = self.agenda, self.names
        receive, happen = self._receive, self.links.happen
        last_us, step = self.time_us, 0
        while step < PROGRESS_STEPS and agenda and agenda[0][0] < end_us:
            step += 1
            entry = heappop(agenda)
            time_us, rank, node, source, _, data = entry
            if rank == RECEIVE:
                last_us = time_us
                receive[node](names[source], data[0], time_us, data[1])
            else:
                if rank != SAMPLE:
                    last_us = time_us
                happen(entry)
        self.time_us = last_us
        self.steps += step
        return step == PROGRESS_STEPS

    # What the links have the engine do when its time has come (the `Run` of links.py)

    def broadcast(self, source: Source, number: int, time_us: int) -> int | None:
        """A workload's broadcast is due; returns the node that made it, None if it is skipped."""
        self._schedule(source, number + 1)
        node, members = source.node, self.links.members
        if source.key is not None and members:
            node = members[below(source.key, number, len(members))]
        if not members or node in self.down or not self.links.may_send(node):
            self.skipped_broadcasts += 1  # the application is down with its node
            return None
        payload, lifetime_us = source.payloads.of(number), source.lifetimes.of(number)
        self._give(node, source.to(number), payload, time_us, lifetime_us)
        return node

    def reply(self, node: int, reply: Reply, time_us: int) -> bool:
        """A reply is due; returns whether the node made it."""
        if node in self.down or not self.links.may_send(node):
            self.skipped_broadcasts += 1
            return False
        self._depths[node, self.drivers[node].core.last + 1] = reply.depth
        self._give(node, reply.to, reply.payload, time_us, reply.lifetime_us)
        return True

    def _give(self, node: int, to: int | None, payload: bytes, time_us: int, lifetime_us: int | None) -> None:
        """The application of a node broadcasts, or sends to one other."""
        self.broadcasts += 1
        driver = self.drivers[node]
        if self.tally is not None:
            self.tally.broadcast(driver.name, driver.core.last + 1)
        if to is None:
            driver.broadcast(payload, time_us, lifetime_us)
        else:
            driver.send(self.names[to], payload, time_us)

    def fire(self, node: int, number: int, key: str, time_us: int) -> bool:
        """A timer is due; returns whether the core was called."""
        if self._timers.get((node, key)) != number:
            return False  # it was cancelled or replaced
        up_again_us = self.down.get(node)
        if up_again_us is None:
            del self._timers[node, key]
            self.drivers[node].timer(key, time_us)
            return True
        if up_again_us != NEVER_US:
            # The state is durable and so are its timers: what came due meanwhile fires on restart.
            self.links.put(TIMER, up_again_us, node, number, 0, key)
        return False

    def crash(self, node: int, restart_us: int, time_us: int) -> None:
        """A node is down from now on."""
        self.down[node] = restart_us
        self.drivers[node].crash(time_us)
        if self.drivers[node].core.sessions and isinstance(self.links, StaticLinks):
            self.links.part(node, time_us)

    def restart(self, node: int, time_us: int) -> None:
        """A node is back."""
        del self.down[node]
        self.drivers[node].restart(self._make(self.names[node], self.names), time_us)
        if self.drivers[node].core.sessions and isinstance(self.links, StaticLinks):
            self.links.join(node, time_us)

    def sample(self, time_us: int) -> None:
        """The gauges are due."""
        for node in self._sampled:
            if node not in self.down:
                self.drivers[node].sample(time_us)
        every_us = self.scenario.record.sample_every_us
        if self.agenda and every_us is not None:  # when nothing else is left, the run is over
            self.links.put(SAMPLE, time_us + every_us, 0, 0, 0, None)

    # What the drivers hand over (the `DriverHost` of driver.py)

    def send(
        self, node: int, to: tuple[NodeId, ...], packet: Packet, time_us: int, about: About | None
    ) -> None:
        """Give the packet to the links."""
        self.packets += len(to)
        for sent in self._sent:
            sent(self.drivers[node].core, to, packet, time_us)
        outlet = self._outlets[node]
        if self._has_control and self.drivers[node].core.is_control(packet):
            self.control_packets += len(to)
            outlet = self._control_outlets[node]
        outlet(to, (packet, about), time_us, 0 if about is None else about.total_bytes)

    def delivered(self, node: int, message: Message, time_us: int) -> None:
        """Let those nodes reply that want to."""
        if self.tally is not None:
            self.tally.delivered(node, message, time_us)
        for responder in self._responders:
            origin = self._node_of(message.origin)
            depth = self._depths.get((origin, message.number), 0)
            reply = responder.reply(node, origin, message.number, depth, time_us)
            if reply is not None:
                answered = origin << 40 | message.number
                self.links.put(REPLY, reply.time_us, node, reply.workload, answered, reply)

    def _node_of(self, origin: NodeId) -> int:
        """The node of an origin, which may be the stream of one of its lives."""
        return self.index[origin if origin in self.index else split_stream(origin)[0]]

    def set_timer(self, node: int, key: str, at_us: int) -> None:
        """Set or replace a timer."""
        self._timers_set += 1
        self._timers[node, key] = self._timers_set
        self.links.put(TIMER, at_us, node, self._timers_set, 0, key)

    def cancel_timer(self, node: int, key: str) -> None:
        """Forget a timer; its entry on the agenda finds out when it comes due."""
        self._timers.pop((node, key), None)

    def stop(self, node: int, time_us: int) -> None:
        """The node is down from now on, as if it had crashed; what is under way to it is lost."""
        self.stopped.add(node)
        self._receive[node] = _nobody
        self.crash(node, NEVER_US, time_us)

    def close_link(self, node: int, peer: NodeId, time_us: int) -> None:
        """A core has closed its link to `peer`."""
        self.links.close(node, peer, time_us)


def _nobody(*_values: object) -> None:
    """Takes what arrives at a node that has stopped itself."""
