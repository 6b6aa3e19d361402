"""VCube: causal broadcast over one spanning tree per source, with aggregation (paper 000).

Guarantee     every node delivers every message exactly once, after everything that happened before
              its broadcast. A message that a child could not deliver yet is kept back and travels
              with what it waits for: fewer packets, and nobody delivers any later for it.
Assumptions   a known group of any size, without crashes; a reliable link from each node to its
              neighbours in the hypercube (and to member 0 with `tree = "single"`). Links need not be
              FIFO, and duplicates do no harm.
Source        "Causal aggregation broadcast" on VCube, sections 4 and 5, corrected: each of its flaws
              is a test in tests/paper/test_000_flaws.py. "Rule" is one of the corrected algorithm's.

    paper                               here
    vector_clock[l]                     clock.counts[l]: delivered of member l
    vector_max[l]                       received[l]: received without a hole; `early` has the rest
    pending                             pending: received, and not delivered or not yet passed on
    m.s, m.vc[m.s], m.vc                origin, number, after: what changed since the origin's previous
                                        message (Birman's compression, section 5.2)
    Children(m.s, log2 N)               view.children at the levels below view.heights[m.s]
    second condition of line 26         `level`, rule 3's B(p): p has been passed on to its children at
                                        levels >= B(p) and is kept from those below

Why watching one dependency is exact: B(p) is the largest height among the missing dependencies of p,
so it stays as it is until the one that sets it arrives.

Why differences are enough: until the origin's previous message is here, that alone blocks p for all
its children; from then on, B(p) is the larger of the previous message's B and of what p's own
difference gives.

Parameters: `aggregate = False` forwards every message at once (the paper's "no aggregation").
`tree = "single"` sends everything to member 0, whose one tree carries it (section 5.5); a node's own
messages come back to it over that tree, and it passes them on like all others. `mtu_bytes` limits
packets of several messages (0: no limit), `size_model` says what counts: the frame on the "wire", or
the "paper"'s formula.
"""

from __future__ import annotations

from typing import ClassVar, cast

from whence.core.effects import Deliver, Discard, Effects, Reason, Send
from whence.core.message import Message, NodeId, Packet
from whence.errors import MisuseError
from whence.protocols.flooding import check_payload
from whence.protocols.vcube_state import Pending, VCubeState
from whence.protocols.vcube_wire import VCubeMessage, VCubePacket, split


class VCube(VCubeState):
    """See the module."""

    name: ClassVar[str] = "vcube"

    # CO_Broadcast (lines 5-12; rule 1)

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        check_payload(payload)
        after = self.clock.take_delta()
        self.last += 1
        # The own entry is the message's number: `advance` would repeat it in the next difference.
        self.clock.counts[self.my_index] = self.last
        message = VCubeMessage(self.my_index, self.last, after, payload)
        effects: Effects = []
        if self.root is None or self.root == self.my_index:
            self.received[self.my_index] = self.last
            self._send(self._children(0, self.view.heights[self.my_index]), (message,), effects)
        else:  # for the tree it counts as received only when the tree brings it back
            self._send([self.members[self.root]], (message,), effects)
        effects.append(Deliver(Message(self.me, self.last, payload)))
        return effects

    # upon receive (lines 13-22; rule 2): one message at a time, in the order sent

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        if peer not in self.neighbours:
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        messages = cast(VCubePacket, packet).messages
        if not messages:
            return [Discard(None, peer, Reason.MALFORMED)]
        effects: Effects = []
        for message in messages:
            refused = self._refuse(message)
            if refused is not None:
                effects.append(Discard(self._named(message), peer, refused))
            else:
                self._take(message, now_us, effects)
        return effects

    def _take(self, message: VCubeMessage, now_us: int, effects: Effects) -> None:
        """A first copy: pass on what it unblocks, then deliver what it allows."""
        origin, number = message[0], message[1]
        self.arrivals += 1
        pending = Pending(message, self.arrivals, now_us, self.view.heights[origin])
        self.pending[origin, number] = pending
        woken = self._record(origin, number)
        if self.aggregate:
            self._check_aggregation(pending, woken, effects)
        elif pending.level:
            self._send(self._children(0, pending.level), (message,), effects)
            pending.level = 0
        self._check_delivery(pending, effects)

    def _record(self, origin: int, number: int) -> list[Pending]:
        """Lines 16-17: advance the contiguous prefix; answers whose watched dependency has come."""
        if number != self.received[origin] + 1:
            self.early.setdefault(origin, set()).add(number)
            return []
        newest = number
        early = self.early.get(origin)
        if early:
            while newest + 1 in early:
                newest += 1
                early.remove(newest)
            if not early:
                del self.early[origin]
        self.received[origin] = newest
        woken: list[Pending] = []
        if self.blocked_by:
            for come in range(number, newest + 1):
                woken += self.blocked_by.pop((origin, come), ())
        return woken

    # CheckAgg (lines 18-21 and 23-28; rules 3 and 4)

    def _check_aggregation(self, newest: Pending, woken: list[Pending], effects: Effects) -> None:
        """Send each child, in one packet, all that the newest message has unblocked for it."""
        # By number, because a level builds on the level of the same origin's previous message.
        woken.sort(key=_by_number)
        freed = []
        for pending in (newest, *woken):
            before = pending.level
            self._set_level(pending)
            if pending.level < before:
                freed.append((pending.order, pending.level, before, pending.message))
            if pending is not newest and not pending.level and not pending.held:
                del self.pending[pending.message[:2]]
        if not freed:
            return
        freed.sort()
        same: list[NodeId] = []  # children that get the same packet, so that the host encodes it once
        theirs: tuple[VCubeMessage, ...] = ()
        for level in range(max(stop for _, _, stop, _ in freed)):
            messages = tuple(message for _, low, stop, message in freed if low <= level < stop)
            if messages != theirs:
                self._send(same, theirs, effects)
                same, theirs = [], messages
            same += self._children(level, level + 1)
        self._send(same, theirs, effects)

    def _set_level(self, pending: Pending) -> None:
        """B(p), as far as it concerns p's own children, and the dependency that sets it."""
        origin, number, after, _ = pending.message
        heights, received = self.view.heights, self.received
        top = heights[origin]
        level, watch = 0, None
        if top and received[origin] < number - 1:
            level, watch = top, (origin, number - 1)
        elif top:
            previous = self.pending.get((origin, number - 1))
            if previous is not None:
                level, watch = previous.level, previous.watch
            pairs = iter(after)
            for member, count in zip(pairs, pairs, strict=True):
                if heights[member] > level and received[member] < count:
                    level, watch = min(heights[member], top), (member, count)
                    if level == top:
                        break
        pending.level, pending.watch = level, watch
        if watch is not None:
            self.blocked_by.setdefault(watch, []).append(pending)

    # CheckDelivery (lines 29-33; rule 5): the clock advances before the application hears of it

    def _check_delivery(self, newest: Pending, effects: Effects) -> None:
        """Deliver the newest message and all that waited for it, to a fixed point; or hold it."""
        ready: list[Pending] = []
        if newest.message[0] != self.my_index:
            self._deliver_or_hold(newest, ready)
        elif not newest.level:  # an own message, which was delivered when it was broadcast
            del self.pending[newest.message[:2]]
        for pending in ready:  # it grows: first what one message releases, then what those release
            origin, number, _, payload = pending.message
            pending.held = False
            if not pending.level:
                del self.pending[origin, number]
            self.clock.advance(origin, number)
            effects.append(Deliver(Message(self.members[origin], number, payload)))
            for waiting in sorted(self.held_by.pop((origin, number), ()), key=_by_arrival):
                self._deliver_or_hold(waiting, ready)

    def _deliver_or_hold(self, pending: Pending, ready: list[Pending]) -> None:
        obstacle = self._obstacle(pending.message)
        if obstacle is None:
            ready.append(pending)
        else:
            pending.held = True
            self.held_by.setdefault(obstacle, []).append(pending)

    # Sending

    def _children(self, low: int, stop: int) -> list[NodeId]:
        return [child for child in self.children[low:stop] if child is not None]

    def _send(self, to: list[NodeId], messages: tuple[VCubeMessage, ...], effects: Effects) -> None:
        """To each of them all the messages, in as many packets as the MTU makes of them."""
        if not messages:
            return
        if not self.neighbours.issuperset(to):
            for peer in to:
                if peer not in self.neighbours:
                    self.parked.setdefault(peer, []).extend(messages)
            to = [peer for peer in to if peer in self.neighbours]
        packets = split(messages, self.size_model, self.mtu_bytes)
        if to and len(packets) == 1:
            effects.append(Send(tuple(to), packets[0]))
            return
        for peer in to:
            effects += [Send((peer,), packet) for packet in packets]

    # Links

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        if peer == self.me:
            raise MisuseError(f"link {peer!r}", "a node has no link to itself", "Name another node")
        self.neighbours.add(peer)
        effects: Effects = []
        self._send([peer], tuple(self.parked.pop(peer, ())), effects)
        return effects

    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        self.neighbours.discard(peer)
        return []


def _by_number(pending: Pending) -> int:
    return pending.message[1]


def _by_arrival(pending: Pending) -> int:
    return pending.order
