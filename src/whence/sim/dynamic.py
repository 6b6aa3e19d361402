"""The engine for links that open and close while messages flow (paper 003, section 3).

    series = run(paper(100))                       # counters and the series of Figures 5a and 5b
    run(experiment, recorder, level=Level.ALL)     # and a trace

The cores are the protocol's own; the overlay (overlay/spray.py) decides whom they link to. Two
things are simpler than in the world, as in the paper's simulator: a shuffle's exchange of names takes no
time, and a link opens or closes at both ends at once, with what is in flight on it dropped. Control and
messages share each link's queue.

What happens at one time happens in this order: arrivals in the order of sending, then joins, shuffles,
broadcasts and departures by process, then timers. A pair's link is closed when no arc joins it and no
handshake needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeAlias, cast

from whence.core.message import Message, NodeId, Packet
from whence.core.rng import GOLDEN, MASK, below, mix64, purpose, stream
from whence.errors import InvariantError
from whence.overlay.spray import Pairs, Spray, pair_of
from whence.protocols import registry
from whence.protocols.prc.links import Overlaid
from whence.protocols.prc.wire import MESSAGE, ROUTED
from whence.sim.driver import Driver
from whence.sim.experiment import Experiment, Series, checked, delay_us, join_us
from whence.sim.model import node_names
from whence.sim.tally import Tally
from whence.trace.rows import About
from whence.trace.schema import Level, Recorder

ARRIVAL, JOIN, SHUFFLE, BROADCAST, DEPART, TIMER = range(6)

CONTACT = purpose("spray contact")
SHUFFLER = purpose("spray shuffle of")
BEGINS, ANSWERS = purpose("spray begins"), purpose("spray answers")
LOST = purpose("spray lost")
SOURCE = purpose("experiment source")
PAYLOAD = b""

Make: TypeAlias = Callable[[NodeId], Overlaid]
Entry: TypeAlias = tuple[int, int, int, int, Any]  # (time_us, what, counter or node, number, data)


class Parcel(NamedTuple):
    """A packet in flight, with the incarnation of the link that carries it."""

    source: int
    target: int
    incarnation: int
    packet: Packet
    about: About | None


def run(
    experiment: Experiment,
    recorder: Recorder | None = None,
    *,
    level: Level = Level.ALL,
    make: Make | None = None,
    check: bool = False,
) -> Series:
    """Run an experiment with the protocol's cores."""
    engine = DynamicEngine(experiment, recorder, level=level, make=make, check=check)
    engine.run()
    return engine.series()


class DynamicEngine:
    """One run; `drivers`, `views` and `pairs` are there to be looked at."""

    def __init__(
        self,
        experiment: Experiment,
        recorder: Recorder | None = None,
        *,
        level: Level = Level.ALL,
        make: Make | None = None,
        check: bool = False,
    ) -> None:
        self.experiment = experiment = checked(experiment)
        self.names = node_names(experiment.nodes)
        self.index = {name: at for at, name in enumerate(self.names)}
        params = {"links": "dynamic", **experiment.params}
        self._make: Make = make or (
            lambda name: cast(Overlaid, registry.make(experiment.protocol, name, [name], params))
        )
        self.drivers = [
            Driver(at, self._make(name), self, recorder=recorder, level=level, check=check)
            for at, name in enumerate(self.names)
        ]
        self.views: list[Spray[int]] = [Spray(at) for at in range(experiment.nodes)]
        self.pairs: Pairs[int] = Pairs()
        self.members: list[int] = []  # who takes part, in the order of joining
        self.incarnations: dict[tuple[int, int], int] = {}  # of the links that are up, by (low, high)
        self.tally = Tally(experiment.window_us, experiment.duration_us, experiment.nodes)
        self.opened = self.broadcasts = 0
        self.numbers: dict[tuple[NodeId, int], int] = {}  # message -> number of its broadcast in the run
        self.logs = [0] * experiment.nodes
        self.gone: set[int] = set()
        self._unwanted: dict[int, set[int]] = {}  # links without an arc that a handshake still needs, by end
        self._heap: list[Entry] = []
        self._counter = 0
        self._timers: dict[tuple[int, str], int] = {}
        self._contact_key = stream(experiment.seed, CONTACT, 0)
        self._source_key = stream(experiment.seed, SOURCE, 0)

    def core(self, node: int) -> Overlaid:
        """The protocol core of a process."""
        return cast(Overlaid, self.drivers[node].core)

    # The run

    def run(self) -> None:
        """Run to the end of the experiment."""
        self._begin()
        heap, end_us = self._heap, self.experiment.duration_us
        while heap and heap[0][0] < end_us:
            time_us, what, first, number, data = heappop(heap)
            self.tally.advance(time_us)
            if what == ARRIVAL:
                self._arrive(data, time_us)
            elif what == JOIN:
                self._join(first, time_us)
            elif what == SHUFFLE:
                self._shuffle(first, number, time_us)
            elif what == BROADCAST:
                self._broadcast(number, time_us)
            elif what == DEPART:
                self._depart(first, time_us)
            elif self._timers.get((number, data)) == first:
                del self._timers[number, data]
                self._fire(number, data, time_us)
        self.tally.advance(end_us)

    def _fire(self, node: int, key: str, time_us: int) -> None:
        self.drivers[node].timer(key, time_us)
        self._look(node)
        self._close_unneeded(node, time_us)

    def _begin(self) -> None:
        experiment = self.experiment
        self._found(0, 0)
        for node in range(experiment.nodes):
            at_us = join_us(experiment, node)
            if node:
                heappush(self._heap, (at_us, JOIN, node, 0, None))
            self._schedule_shuffle(node, 1)
        self._schedule_broadcast(0)
        for departure in experiment.departures:
            heappush(self._heap, (departure.at_us, DEPART, departure.node, 0, None))

    def _found(self, node: int, time_us: int) -> None:
        self.members.append(node)
        self._tell(node, "found", (), time_us)

    def _schedule_shuffle(self, node: int, number: int) -> None:
        at_us = join_us(self.experiment, node) + number * self.experiment.shuffle_every_us
        if at_us < self.experiment.shuffle_stop_us:
            heappush(self._heap, (at_us, SHUFFLE, node, number, None))

    def _schedule_broadcast(self, number: int) -> None:
        at_us = self.experiment.broadcast_start_us + number * self.experiment.broadcast_every_us
        if at_us < self.experiment.broadcast_stop_us:
            heappush(self._heap, (at_us, BROADCAST, 0, number, None))

    def _tell(self, node: int, verb: str, names: tuple[NodeId, ...], time_us: int) -> None:
        self.drivers[node].command(verb, names, time_us)
        self._look(node)

    def _look(self, node: int) -> None:
        """After a step: what the process holds now, and which of its links may go at last."""
        core = self.core(node)
        self.tally.hold(node, core.expecting(), core.buffered(), len(core.in_view), core.is_joined)

    # What happens

    def _arrive(self, parcel: Parcel, time_us: int) -> None:
        source, target, incarnation, packet, about = parcel
        if self.incarnations.get(pair_of(source, target)) != incarnation:
            return  # the link is gone, and with it what was in flight
        kind = packet[0]
        if kind == MESSAGE:
            self.tally.receipts += 1
        elif kind in ROUTED:
            self.tally.control += 1
        core = self.core(target)
        was_joined, had = core.is_joined, self.names[source] in core.in_view
        self.drivers[target].receive(self.names[source], packet, time_us, about)
        self._look(target)
        if core.is_joined and not was_joined:
            self.members.append(target)
        if self.names[source] in core.in_view and not had and not self.core(source).is_joined:
            self._introduce(target, source, time_us)
        if kind != MESSAGE:
            self._close_unneeded(target, time_us)

    def _broadcast(self, number: int, time_us: int) -> None:
        self._schedule_broadcast(number + 1)
        if not self.members:
            return  # everybody has departed
        node = self.members[below(self._source_key, number, len(self.members))]
        self.broadcasts += 1
        self.numbers[self.names[node], self.core(node).last + 1] = number
        self.drivers[node].broadcast(PAYLOAD, time_us)
        self._look(node)

    def _join(self, node: int, time_us: int) -> None:
        if node in self.gone:
            return
        if not self.members:
            self._found(node, time_us)  # all others have departed
            return
        contact = self.members[below(self._contact_key, node, len(self.members))]
        self.views[node].take([contact])
        self.pairs.add(node, contact)
        self._connect(node, contact, time_us)
        self._tell(node, "join", (self.names[contact],), time_us)

    def _introduce(self, contact: int, joiner: int, time_us: int) -> None:
        """The contact has the processes that it names name the joiner."""
        for node in self.views[contact].introductions(self._safe_between(contact)):
            self.views[node].take([joiner])
            self.pairs.add(node, joiner)
            self._open(node, contact, joiner, time_us)

    def _shuffle(self, node: int, number: int, time_us: int) -> None:
        if node in self.gone:
            return
        self._schedule_shuffle(node, number + 1)
        partner = self.views[node].partner(self._safe_between(node))
        if partner is None:
            return
        key = stream(self.experiment.seed, SHUFFLER, node)
        given = self.views[node].give(partner, self._safe_at(node), stream(key, BEGINS, number), begins=True)
        answer = self.views[partner].give(
            node, self._safe_at(partner), stream(key, ANSWERS, number), begins=False
        )
        moves = [(node, partner, *arc) for arc in given] + [(partner, node, *arc) for arc in answer]
        for _, taker, _, becomes in moves:
            self.views[taker].take([becomes])
            self.pairs.add(taker, becomes)
        for giver, _, was, _ in moves:
            self.pairs.remove(giver, was)
        for giver, taker, was, becomes in moves:
            if was == becomes:
                self._open(taker, giver, becomes, time_us)
        for giver, _, was, _ in moves:
            self._close_if_unwanted(giver, was, time_us)

    def _depart(self, node: int, time_us: int) -> None:
        if node in self.gone:
            return
        self.gone.add(node)
        self.drivers[node].crash(time_us)
        if node in self.members:
            self.members.remove(node)
        self.tally.hold(node, 0, 0, 0, False)
        self._unwanted.pop(node, None)
        for key in [key for key in self._timers if key[0] == node]:
            del self._timers[key]
        for pair in sorted(pair for pair in self.incarnations if node in pair):
            other = pair[0] if pair[1] == node else pair[1]
            del self.incarnations[pair]
            self._unwanted.get(other, set()).discard(node)
            self.drivers[other].link_down(self.names[node], time_us)
            self._look(other)
        for other, view in enumerate(self.views):
            if other != node and node in view.arcs:
                for name in view.lost(node, stream(self.experiment.seed, LOST, node, other)):
                    self.pairs.add(other, name)
        self.views[node].arcs = []
        self.pairs.arcs = {pair: count for pair, count in self.pairs.arcs.items() if node not in pair}

    # Links

    def _safe_at(self, node: int) -> Callable[[int], bool]:
        core, names = self.core(node), self.names
        return lambda other: core.is_safe_with(names[other])

    def _safe_between(self, node: int) -> Callable[[int], bool]:
        """Whoever is to open a link through us must be able to send to us: a joiner is not, at first."""
        core, names = self.core(node), self.names
        return lambda other: core.is_safe_with(names[other]) and self.core(other).is_safe_with(names[node])

    def _connect(self, one: int, other: int, time_us: int) -> None:
        self._counter += 1
        self.incarnations[pair_of(one, other)] = self._counter
        self.drivers[one].link_up(self.names[other], time_us)
        self.drivers[other].link_up(self.names[one], time_us)

    def _open(self, opener: int, mediator: int, target: int, time_us: int) -> None:
        """An arc from opener to target has appeared; whoever gave it away, or introduced it, mediates."""
        if pair_of(opener, target) in self.incarnations:
            return
        self.opened += 1
        self._connect(opener, target, time_us)
        one, between, other = self.names[opener], self.names[mediator], self.names[target]
        self._tell(mediator, "mediate", (one, other), time_us)
        self._tell(opener, "open", (one, between, other), time_us)

    def _close_if_unwanted(self, one: int, other: int, time_us: int) -> None:
        if self.pairs.joined(one, other) or pair_of(one, other) not in self.incarnations:
            return
        self._unwanted.setdefault(one, set()).add(other)
        self._unwanted.setdefault(other, set()).add(one)
        self._close_unneeded(one, time_us)

    def _close_unneeded(self, node: int, time_us: int) -> None:
        """Close the links of a process that no arc joins and no handshake needs."""
        for other in sorted(self._unwanted.get(node, ())):
            if self.pairs.joined(node, other):
                self._want(node, other)  # named again in the meantime
            elif not self.core(node).is_using(self.names[other]) and not self.core(other).is_using(
                self.names[node]
            ):
                self._disconnect(node, other, time_us)

    def _want(self, one: int, other: int) -> None:
        self._unwanted.get(one, set()).discard(other)
        self._unwanted.get(other, set()).discard(one)

    def _disconnect(self, one: int, other: int, time_us: int) -> None:
        self._want(one, other)
        del self.incarnations[pair_of(one, other)]
        for near, far in ((one, other), (other, one)):
            self.drivers[near].link_down(self.names[far], time_us)
            self._look(near)

    # What the drivers hand over

    def send(
        self, node: int, to: tuple[NodeId, ...], packet: Packet, time_us: int, about: About | None
    ) -> None:
        """Give the packet to the links; all of them take the same time."""
        arrive_us = time_us + delay_us(self.experiment.latency, time_us)
        for peer in to:
            target = self.index[peer]
            incarnation = self.incarnations.get(pair_of(node, target))
            if incarnation is not None:
                self._counter += 1
                parcel = Parcel(node, target, incarnation, packet, about)
                heappush(self._heap, (arrive_us, ARRIVAL, self._counter, 0, parcel))

    def delivered(self, node: int, message: Message, time_us: int) -> None:
        """Keep the log."""
        self.tally.deliveries += 1
        number = self.numbers[message.origin, message.number]
        self.logs[node] = mix64((self.logs[node] + (number + 1) * GOLDEN + time_us) & MASK)

    def set_timer(self, node: int, key: str, at_us: int) -> None:
        """Set or replace a timer."""
        self._counter += 1
        self._timers[node, key] = self._counter
        heappush(self._heap, (at_us, TIMER, self._counter, node, key))

    def cancel_timer(self, node: int, key: str) -> None:
        """Forget a timer; its entry on the heap finds out when it comes due."""
        self._timers.pop((node, key), None)

    def stop(self, node: int, time_us: int) -> None:
        """No protocol over changing links stops itself."""
        raise InvariantError(f"core of {self.names[node]}", "it stops itself")

    def close_link(self, node: int, peer: NodeId, time_us: int) -> None:
        """A handshake has failed: the link goes at both ends, and the arcs with it."""
        other = self.index[peer]
        if pair_of(node, other) in self.incarnations:
            del self.incarnations[pair_of(node, other)]
            self._want(node, other)
            self.drivers[other].link_down(self.names[node], time_us)
            self._look(other)
            for near, far in ((node, other), (other, node)):
                while far in self.views[near].arcs:
                    self.views[near].arcs.remove(far)
                    self.pairs.remove(near, far)

    def series(self) -> Series:
        """What the run gave."""
        tally = self.tally
        return Series(
            windows=tally.windows,
            broadcasts=self.broadcasts,
            deliveries=sum(each.deliveries for each in tally.windows),
            receipts=sum(each.receipts for each in tally.windows),
            control=sum(each.control for each in tally.windows),
            opened=self.opened,
            degree_max=tally.degree_max,
            expected_left=tally.expected,
            buffered_left=tally.buffered,
            logs=self.logs,
        )
