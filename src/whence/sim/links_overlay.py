"""Links that an overlay opens and closes while messages flow (paper 003, section 3).

The cores are the protocol's own; peer sampling (overlay/spray.py) decides whom they link to. Two
things are simpler than in the world, as in the paper's simulator: a shuffle's exchange of names takes no
time, and a link opens or closes at both ends at once, with what is in flight on it dropped. Control and
messages share each link's queue, and all links have the same delay at a time, so nothing overtakes.

What happens at one time happens in this order: arrivals in the order of sending, then joins, shuffles,
broadcasts, replies and departures, then timers in the order of setting. A pair's link is closed when no arc
joins it and no handshake needs it. With `sampling = "authors"` a link that a handshake needs is not exchanged
either, and who begins a shuffle rounds as the authors' program does. The numbers of an entry of the agenda:

    rank          first                      second                     third
    ARRIVAL       number of the packet       -                          -
    JOIN          node                       -                          -
    SHUFFLE       node                       number of its shuffle      -
    BROADCAST     place of the workload      number of the broadcast    node, where it is named
    REPLY         node                       place of the workload      the answered message
    DEPART        node                       -                          number of the outage
    TIMER         number of the timer        node                       -

A node that crashes has departed: its neighbours notice immediately, and what was in flight is lost. It does
not come back, for it could no longer prove what it has seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappush
from typing import Any, ClassVar, NamedTuple, cast

from whence.core.message import NodeId, Packet
from whence.core.rng import below, purpose, stream
from whence.overlay.spray import Pairs, Spray, pair_of
from whence.protocols.prc.links import Overlaid
from whence.protocols.prc.wire import MESSAGE, ROUTED
from whence.sim import links
from whence.sim.distributions import Constant, Ramp
from whence.sim.links import Entry, Outlet, Parcel, Run, Traffic
from whence.sim.model import Overlay, Scenario
from whence.trace.rows import About

# None of them is RECEIVE, which the engine's loop would take for an arrival over a link that cannot close.
ARRIVAL, JOIN, SHUFFLE, BROADCAST, REPLY, DEPART, TIMER = range(10, 17)

CONTACT = purpose("spray contact")
SHUFFLER = purpose("spray shuffle of")
BEGINS, ANSWERS = purpose("spray begins"), purpose("spray answers")
LOST = purpose("spray lost")
SHUFFLE_MESSAGES = 2  # names there, names back: the authors' program counts them as control


class Flight(NamedTuple):
    """A packet in flight, with the incarnation of the link that carries it."""

    source: int
    target: int
    incarnation: int
    packet: Packet
    about: About | None


def join_us(scenario: Scenario, node: int) -> int:
    """Return when a node asks to join; the first one founds the group at time 0."""
    overlay = overlay_of(scenario)
    return overlay.joins_us * (node - node % overlay.join_batch) // scenario.nodes


def overlay_of(scenario: Scenario) -> Overlay:
    """Return the topology of a scenario over an overlay, by its right type."""
    assert isinstance(scenario.topology, Overlay)
    return scenario.topology


class OverlayLinks:
    """The links of a run over an overlay; `views`, `pairs` and `incarnations` are there to be looked at."""

    ongoing: ClassVar = frozenset((ARRIVAL, SHUFFLE, TIMER, links.SAMPLE))

    def __init__(self, run: Run) -> None:
        scenario = run.scenario
        self.traffic = Traffic()
        self.outlets: list[Outlet] = [partial(self._send, node) for node in range(scenario.nodes)]
        self.control_outlets = self.outlets
        self.views: list[Spray[int]] = [Spray(at) for at in range(scenario.nodes)]
        self.pairs: Pairs[int] = Pairs()
        self.members: list[int] = []  # the nodes that have joined, in the order of joining
        self.incarnations: dict[tuple[int, int], int] = {}  # of the links that are up, by (low, high)
        self.opened = 0
        self.is_whole = True
        self._run = run
        self._overlay = overlay_of(scenario)
        self._delay = scenario.link.delay
        self._unwanted: dict[int, set[int]] = {}  # links without an arc that a handshake still needs, by end
        self._sent = self._connected = 0
        # Joins alone decide how many arcs there are: the same draws in groups of all sizes would make a seed
        # with many arcs in one of them a seed with many in all.
        self._contact_key = stream(scenario.seed, CONTACT, scenario.nodes)
        self._by_authors = self._overlay.sampling == "authors"

    def core(self, node: int) -> Overlaid:
        """The protocol core of a node."""
        return cast(Overlaid, self._run.drivers[node].core)

    # The agenda

    def begin(self) -> None:
        """The first node founds the group; plan joins and shuffles."""
        scenario = self._run.scenario
        self._found(0, 0)
        for node in range(scenario.nodes):
            if node:
                heappush(self._run.agenda, (join_us(scenario, node), JOIN, node, 0, 0, None))
            self._schedule_shuffle(node, 1)

    def _found(self, node: int, time_us: int) -> None:
        self.members.append(node)
        self._tell(node, "found", (), time_us)

    def _schedule_shuffle(self, node: int, number: int) -> None:
        scenario, overlay = self._run.scenario, self._overlay
        at_us = join_us(scenario, node) + number * overlay.shuffle_every_us
        if at_us < min(overlay.shuffle_stop_us, scenario.stop.duration_us):
            heappush(self._run.agenda, (at_us, SHUFFLE, node, number, 0, None))

    def put(self, kind: int, time_us: int, node: int, source: int, counter: int, data: Any) -> None:
        """Put something of the engine on the agenda."""
        entry: Entry
        if kind == links.TIMER:
            entry = (time_us, TIMER, source, node, 0, data)
        elif kind == links.BROADCAST:
            entry = (time_us, BROADCAST, source, counter, node, data)
        elif kind == links.REPLY:
            entry = (time_us, REPLY, node, source, counter, data)
        elif kind == links.CRASH:
            entry = (time_us, DEPART, node, 0, counter, data)
        else:
            entry = (time_us, kind, node, source, counter, data)
        heappush(self._run.agenda, entry)

    def happen(self, entry: Entry) -> None:
        """Carry out an entry."""
        time_us, rank, first, number, _, data = entry
        run = self._run
        if run.tally is not None:
            run.tally.advance(time_us)
        if rank == ARRIVAL:
            self._arrive(data, time_us)
        elif rank == JOIN:
            self._join(first, time_us)
        elif rank == SHUFFLE:
            self._shuffle(first, number, time_us)
        elif rank == BROADCAST:
            self._broadcast(run.broadcast(data, number, time_us))
        elif rank == REPLY:
            self._broadcast(first if run.reply(first, data, time_us) else None)
        elif rank == DEPART:
            self._depart(first, data, time_us)
        elif rank == TIMER:
            if run.fire(number, first, data, time_us):
                self._look(number)
                self._close_unneeded(number, time_us)
        else:
            run.sample(time_us)

    def _broadcast(self, node: int | None) -> None:
        if node is not None:
            if self._run.broadcasts == 1:
                self.is_whole &= len(self.members) == self._run.scenario.nodes
            self._look(node)

    def may_send(self, node: int) -> bool:
        """Whether a node that is up is in the group, and may broadcast."""
        return self.core(node).is_joined

    def in_flight(self) -> int:
        """Return how many packets with messages are on their way over links that are up."""
        found = 0
        for entry in self._run.agenda:
            if entry[1] == ARRIVAL:
                source, target, incarnation, packet, _ = entry[5]
                if self.incarnations.get(pair_of(source, target)) == incarnation:
                    core = self.core(target)
                    found += core.message_of(packet) is not None or bool(core.further_messages_of(packet))
        return found

    def _tell(self, node: int, verb: str, names: tuple[NodeId, ...], time_us: int) -> None:
        self._run.drivers[node].command(verb, names, time_us)
        self._look(node)

    def _look(self, node: int) -> None:
        """After a step: what the node holds now, if a series wants to know."""
        tally = self._run.tally
        if tally is not None:
            core = self.core(node)
            tally.hold(node, core.expecting(), core.buffered(), len(core.in_view), core.is_joined)

    # Packets

    def _send(self, node: int, to: tuple[NodeId, ...], parcel: Parcel, now_us: int, total_bytes: int) -> None:
        """Give the packet to the links; all of them take the same time."""
        delay, agenda, index = self._delay, self._run.agenda, self._run.index
        assert isinstance(delay, Constant | Ramp)
        arrive_us = now_us + (delay.value_us if isinstance(delay, Constant) else delay.at(now_us))
        for peer in to:
            target = index[peer]
            incarnation = self.incarnations.get(pair_of(node, target))
            if incarnation is None:
                self.traffic.lost += 1
            else:
                self._sent += 1
                flight = Flight(node, target, incarnation, *parcel)
                heappush(agenda, (arrive_us, ARRIVAL, self._sent, 0, 0, flight))

    def _arrive(self, flight: Flight, time_us: int) -> None:
        source, target, incarnation, packet, about = flight
        if self.incarnations.get(pair_of(source, target)) != incarnation:
            self.traffic.lost += 1  # the link is gone, and with it what was in flight
            return
        kind, tally, names = packet[0], self._run.tally, self._run.names
        if tally is not None:
            tally.receipts += kind == MESSAGE
            tally.control += kind in ROUTED
            tally.overlay += kind != MESSAGE
        core = self.core(target)
        was_joined, had = core.is_joined, names[source] in core.in_view
        self._run.drivers[target].receive(names[source], packet, time_us, about)
        self._look(target)
        if core.is_joined and not was_joined:
            self.members.append(target)
        if names[source] in core.in_view and not had and not self.core(source).is_joined:
            self._introduce(target, source, time_us)
        if kind != MESSAGE:
            self._close_unneeded(target, time_us)

    # Peer sampling

    def _join(self, node: int, time_us: int) -> None:
        if node in self._run.down:
            return
        if not self.members:
            self._found(node, time_us)  # all others have departed
            return
        contact = self.members[below(self._contact_key, node, len(self.members))]
        self.views[node].take([contact])
        self.pairs.add(node, contact)
        self._connect(node, contact, time_us)
        self._tell(node, "join", (self._run.names[contact],), time_us)

    def _introduce(self, contact: int, joiner: int, time_us: int) -> None:
        """The contact has the processes that it names name the joiner."""
        for node in self.views[contact].introductions(self._safe_between(contact)):
            self.views[node].take([joiner])
            self.pairs.add(node, joiner)
            self._open(node, contact, joiner, time_us)

    def _shuffle(self, node: int, number: int, time_us: int) -> None:
        if node in self._run.down:
            return
        self._schedule_shuffle(node, number + 1)
        partner = self.views[node].partner(self._partners_of(node))
        if partner is None:
            return
        if self._run.tally is not None:
            self._run.tally.overlay += SHUFFLE_MESSAGES
        key = stream(self._run.scenario.seed, SHUFFLER, node)
        given = self.views[node].give(
            partner,
            self._given_by(node),
            stream(key, BEGINS, number),
            begins=True,
            by_authors=self._by_authors,
        )
        answer = self.views[partner].give(
            node, self._given_by(partner), stream(key, ANSWERS, number), begins=False
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

    def _depart(self, node: int, restart_us: int, time_us: int) -> None:
        self._run.crash(node, restart_us, time_us)
        if node in self.members:
            self.members.remove(node)
        if self._run.tally is not None:
            self._run.tally.hold(node, 0, 0, 0, False)
        self._unwanted.pop(node, None)
        for pair in sorted(pair for pair in self.incarnations if node in pair):
            other = pair[0] if pair[1] == node else pair[1]
            del self.incarnations[pair]
            self._unwanted.get(other, set()).discard(node)
            self._run.drivers[other].link_down(self._run.names[node], time_us)
            self._look(other)
        for other, view in enumerate(self.views):
            if other != node and node in view.arcs:
                for name in view.lost(node, stream(self._run.scenario.seed, LOST, node, other)):
                    self.pairs.add(other, name)
        self.views[node].arcs = []
        self.pairs.arcs = {pair: count for pair, count in self.pairs.arcs.items() if node not in pair}

    # Links

    def _safe_at(self, node: int) -> Callable[[int], bool]:
        core, names = self.core(node), self._run.names
        return lambda other: core.is_safe_with(names[other])

    def _given_by(self, node: int) -> Callable[[int], bool]:
        """Which links of a process may be exchanged."""
        safe = self._safe_at(node)
        if not self._by_authors:
            return safe
        return lambda other: safe(other) and not self._is_needed(node, other)

    def _partners_of(self, node: int) -> Callable[[int], bool]:
        """With whom a process may shuffle: over a link that it can give away, and the other can use."""
        safe = self._safe_between(node)
        if not self._by_authors:
            return safe
        return lambda other: safe(other) and not self._is_needed(node, other)

    def _is_needed(self, one: int, other: int) -> bool:
        """Whether a handshake needs the link, at either end."""
        names = self._run.names
        return self.core(one).is_using(names[other]) or self.core(other).is_using(names[one])

    def _safe_between(self, node: int) -> Callable[[int], bool]:
        """Whoever is to open a link through us must be able to send to us: a joiner is not, at first."""
        core, names = self.core(node), self._run.names
        return lambda other: core.is_safe_with(names[other]) and self.core(other).is_safe_with(names[node])

    def _connect(self, one: int, other: int, time_us: int) -> None:
        self._connected += 1
        self.incarnations[pair_of(one, other)] = self._connected
        self._run.drivers[one].link_up(self._run.names[other], time_us)
        self._run.drivers[other].link_up(self._run.names[one], time_us)

    def _open(self, opener: int, mediator: int, target: int, time_us: int) -> None:
        """An arc from opener to target has appeared; whoever gave it away, or introduced it, mediates."""
        if pair_of(opener, target) in self.incarnations:
            return
        self.opened += 1
        self._connect(opener, target, time_us)
        one, between, other = self._run.names[opener], self._run.names[mediator], self._run.names[target]
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
            elif not self._is_needed(node, other):
                self._disconnect(node, other, time_us)

    def _want(self, one: int, other: int) -> None:
        self._unwanted.get(one, set()).discard(other)
        self._unwanted.get(other, set()).discard(one)

    def _disconnect(self, one: int, other: int, time_us: int) -> None:
        self._want(one, other)
        del self.incarnations[pair_of(one, other)]
        for near, far in ((one, other), (other, one)):
            self._run.drivers[near].link_down(self._run.names[far], time_us)
            self._look(near)

    def close(self, node: int, peer: NodeId, time_us: int) -> None:
        """A handshake has failed: the link goes at both ends, and the arcs with it."""
        self.is_whole = False  # safe links may no longer join all nodes
        other = self._run.index[peer]
        if pair_of(node, other) in self.incarnations:
            del self.incarnations[pair_of(node, other)]
            self._want(node, other)
            self._run.drivers[other].link_down(self._run.names[node], time_us)
            self._look(other)
            for near, far in ((node, other), (other, node)):
                while far in self.views[near].arcs:
                    self.views[near].arcs.remove(far)
                    self.pairs.remove(near, far)
