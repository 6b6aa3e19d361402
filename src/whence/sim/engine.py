"""The deterministic engine: a heap of what is to happen, and a loop that makes it happen.

An entry is (time_us, priority, node, source, counter, data). Two entries never share the first
five, so the order of a run depends on identifiers alone, never on the order of insertion:

    priority      source                     counter                     data
    LINK_DOWN     the other node             -                           -
    RESTART, CRASH     -                     number of the outage        -
    LINK_UP       the other node             -                           -
    RECEIVE       the sending node           2 x number on the link      (packet, about)
                                             (+ 1: the extra copy;
                                             + 2^40: on the control path)
    TIMER         number of the timer        -                           its key
    BROADCAST     place of the workload      number of the broadcast     its source
    REPLY         place of the workload      the answered message        the reply
    SAMPLE        -                          -                           -

What a node is told at one time it is told in that order: it is up before it receives, and it has
received before it broadcasts. Links go down before a node leaves and come up after it has entered; only
contact plans have such entries, all other links are up from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

from whence.core.message import Message, NodeId, Packet, Waiting
from whence.core.protocol import Protocol as Core
from whence.errors import InvariantError
from whence.overlay.contacts import ContactPlan
from whence.sim.contacts import plan_of
from whence.sim.driver import Driver
from whence.sim.faults import NEVER_US, plan_faults
from whence.sim.model import Scenario, node_names
from whence.sim.network import RECEIVE, Entry, Traffic, link_specs, make_graph, make_outlets
from whence.sim.workload import Reply, Source, responders, sources
from whence.trace.rows import About
from whence.trace.schema import Level, Recorder

LINK_DOWN, RESTART, CRASH, LINK_UP, TIMER, BROADCAST, REPLY, SAMPLE = -1, 0, 1, 2, 4, 5, 6, 7  # RECEIVE = 3

PROGRESS_STEPS = 1 << 14  # how often `progress` is told the time

Make: TypeAlias = Callable[[NodeId, Sequence[NodeId]], Core]  # (me, members) -> a fresh core
Progress: TypeAlias = Callable[[int], None]


class Engine:
    """One run. `run()` once; then read the counters."""

    def __init__(
        self,
        scenario: Scenario,
        make: Make,
        recorder: Recorder | None = None,
        *,
        level: Level = Level.ALL,
        check: bool = False,
    ) -> None:
        self.scenario = scenario
        self.names = node_names(scenario.nodes)
        self.index = {name: at for at, name in enumerate(self.names)}
        self.graph = make_graph(scenario)
        self.plan = plan_faults(scenario)
        self.traffic = Traffic()
        self.steps = self.packets = self.broadcasts = self.skipped_broadcasts = 0
        self.control_packets = 0  # of `packets`, those that the protocol calls control
        self.time_us = 0  # of the last step; samples are not steps of the system
        self.in_flight = 0  # packets still on their way when the run ended
        self.drained = False
        self._make = make
        self._heap: list[Entry] = []
        self._outlets = make_outlets(scenario, self.graph, self.plan, self._heap, self.traffic)
        self._control_outlets = self._outlets
        if scenario.control is not None:
            self._control_outlets = make_outlets(
                scenario, self.graph, self.plan, self._heap, self.traffic, control=True
            )
        self._up_again_us: dict[int, int] = {}  # the nodes that are down -> when they restart
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
                make(name, self.names),
                self,
                recorder=recorder,
                level=level,
                clock=self.plan.clocks.get(index),
                check=check,
                sized=any(spec.bandwidth_bytes_per_s for spec in specs),
            )
            for index, name in enumerate(self.names)
        ]
        # Looked up once, for the innermost loop.
        self._receive: list[Callable[..., None]] = [driver.receive for driver in self.drivers]
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
        self.in_flight = sum(map(self._has_message, self._heap))
        # Timers may be left, and packets without a message: a protocol that sends something now and
        # then is never without them.
        ongoing = (TIMER, SAMPLE, RECEIVE, LINK_UP, LINK_DOWN)
        self.drained = not self.in_flight and all(entry[1] in ongoing for entry in self._heap)

    def _has_message(self, entry: Entry) -> bool:
        """Whether an entry is a message on its way to a node that may deliver it."""
        if entry[1] != RECEIVE or self._receive[entry[2]] is _nobody:
            return False
        return self.drivers[entry[2]].core.message_of(entry[5][0]) is not None

    def waiting(self) -> dict[NodeId, list[Waiting]]:
        """What each node holds back, and what it waits for; nodes that hold nothing are left out."""
        held = {driver.name: driver.core.explain() for driver in self.drivers}
        return {name: waiting for name, waiting in held.items() if waiting}

    def _begin(self) -> None:
        contacts = plan_of(self.scenario)
        if contacts is None:
            for node, neighbours in enumerate(self.graph):
                for other in neighbours:
                    self.drivers[node].link_up(self.names[other], 0)
        else:
            self._plan_links(contacts)
        for number, outage in enumerate(self.plan.outages):
            heappush(self._heap, (outage.at_us, CRASH, outage.node, 0, number, outage.restart_us))
            if outage.restart_us != NEVER_US:
                heappush(self._heap, (outage.restart_us, RESTART, outage.node, 0, number, None))
        for source in sources(self.scenario):
            self._schedule(source, 0)
        if self.scenario.record.sample_every_us is not None:
            heappush(self._heap, (self.scenario.record.sample_every_us, SAMPLE, 0, 0, 0, None))

    def _plan_links(self, contacts: ContactPlan) -> None:
        """Put every change of a link on the heap; instants are left out, nothing can be sent in them."""
        for a, b, start_us, stop_us in contacts.contacts:
            if start_us < stop_us:
                for node, other in ((a, b), (b, a)):
                    heappush(self._heap, (start_us, LINK_UP, node, other, 0, None))
                    heappush(self._heap, (stop_us, LINK_DOWN, node, other, 0, None))

    def _schedule(self, source: Source, number: int) -> None:
        """Put a source's next broadcast on the heap, if there is one."""
        time_us = next(source.times_us, None)
        if time_us is not None:
            heappush(self._heap, (time_us, BROADCAST, source.node, source.workload, number, source))

    def _run_steps(self, end_us: int) -> bool:
        """Run PROGRESS_STEPS steps; False when there is nothing more to do before `end_us`."""
        heap, names = self._heap, self.names
        receive = self._receive
        last_us, step = self.time_us, 0
        while step < PROGRESS_STEPS and heap and heap[0][0] < end_us:
            step += 1
            time_us, priority, node, source, counter, data = heappop(heap)
            if priority != SAMPLE:
                last_us = time_us
            if priority == RECEIVE:
                receive[node](names[source], data[0], time_us, data[1])
            elif priority == BROADCAST:
                self._broadcast(data, counter, time_us)
            elif priority == REPLY:
                self._broadcast_reply(node, data, time_us)
            elif priority == TIMER:
                self._fire(node, source, data, time_us)
            elif priority == SAMPLE:
                self._sample(time_us)
            elif self._up_again_us.get(node) == NEVER_US:
                continue  # it has stopped itself since the outage was planned
            elif priority == LINK_UP:
                self.drivers[node].link_up(names[source], time_us)
            elif priority == LINK_DOWN:
                self.drivers[node].link_down(names[source], time_us)
            elif priority == CRASH:
                self._up_again_us[node] = data
                self.drivers[node].crash(time_us)
            else:
                del self._up_again_us[node]
                self.drivers[node].restart(self._make(names[node], names), time_us)
        self.time_us = last_us
        self.steps += step
        return step == PROGRESS_STEPS

    def _broadcast(self, source: Source, number: int, time_us: int) -> None:
        if source.node in self._up_again_us or not self.drivers[source.node].core.ready:
            self.skipped_broadcasts += 1  # the application is down with its node
        else:
            payload, lifetime_us = source.payloads.of(number), source.lifetimes.of(number)
            self._give(source.node, source.to(number), payload, time_us, lifetime_us)
        self._schedule(source, number + 1)

    def _broadcast_reply(self, node: int, reply: Reply, time_us: int) -> None:
        driver = self.drivers[node]
        if node in self._up_again_us or not driver.core.ready:
            self.skipped_broadcasts += 1
            return
        self._depths[node, driver.core.last + 1] = reply.depth
        self._give(node, reply.to, reply.payload, time_us, reply.lifetime_us)

    def _give(self, node: int, to: int | None, payload: bytes, time_us: int, lifetime_us: int | None) -> None:
        """The application of a node broadcasts, or sends to one other."""
        self.broadcasts += 1
        if to is None:
            self.drivers[node].broadcast(payload, time_us, lifetime_us)
        else:
            self.drivers[node].send(self.names[to], payload, time_us)

    def _fire(self, node: int, number: int, key: str, time_us: int) -> None:
        if self._timers.get((node, key)) != number:
            return  # it was cancelled or replaced
        up_again_us = self._up_again_us.get(node)
        if up_again_us is None:
            del self._timers[node, key]
            self.drivers[node].timer(key, time_us)
        elif up_again_us != NEVER_US:
            # The state is durable and so are its timers: what came due meanwhile fires on restart.
            heappush(self._heap, (up_again_us, TIMER, node, number, 0, key))

    def _sample(self, time_us: int) -> None:
        for node, driver in enumerate(self.drivers):
            if node not in self._up_again_us:
                driver.sample(time_us)
        every_us = self.scenario.record.sample_every_us
        if self._heap and every_us is not None:  # when nothing else is left, the run is over
            heappush(self._heap, (time_us + every_us, SAMPLE, 0, 0, 0, None))

    # What the drivers hand over (the `Host` of driver.py)

    def send(
        self, node: int, to: tuple[NodeId, ...], packet: Packet, time_us: int, about: About | None
    ) -> None:
        """Give the packet to the network."""
        self.packets += len(to)
        outlet = self._outlets[node]
        if self._has_control and self.drivers[node].core.is_control(packet):
            self.control_packets += len(to)
            outlet = self._control_outlets[node]
        outlet(to, (packet, about), time_us, 0 if about is None else about.total_bytes)

    def delivered(self, node: int, message: Message, time_us: int) -> None:
        """Let those reply who want to."""
        for responder in self._responders:
            origin = self.index[message.origin]
            depth = self._depths.get((origin, message.number), 0)
            reply = responder.reply(node, origin, message.number, depth, time_us)
            if reply is not None:
                answered = origin << 40 | message.number
                heappush(self._heap, (reply.time_us, REPLY, node, reply.workload, answered, reply))

    def set_timer(self, node: int, key: str, at_us: int) -> None:
        """Set or replace a timer."""
        self._timers_set += 1
        self._timers[node, key] = self._timers_set
        heappush(self._heap, (at_us, TIMER, node, self._timers_set, 0, key))

    def stop(self, node: int, time_us: int) -> None:
        """The node is down from now on, as if it had crashed; what is under way to it is lost."""
        self._up_again_us[node] = NEVER_US
        self._receive[node] = _nobody
        self.drivers[node].crash(time_us)

    def cancel_timer(self, node: int, key: str) -> None:
        """Forget a timer; its entry on the heap finds out when it comes due."""
        self._timers.pop((node, key), None)

    def close_link(self, node: int, peer: NodeId, time_us: int) -> None:
        """The graph of this engine is static: sim/dynamic.py has links that close."""
        raise InvariantError(f"protocol core of {self.names[node]}", f"it closes its static link to {peer!r}")


def _nobody(*_values: object) -> None:
    """Takes what arrives at a node that has stopped itself."""
