"""VCube: causal broadcast over one spanning tree per source, with aggregation (paper 000).

Guarantee     every node delivers every message exactly once, after everything that happened before
              its broadcast. A message that a child could not deliver yet is kept back and travels
              with what it waits for: fewer packets, and no node delivers any later for it.
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

Parameters: `aggregate = False` forwards every message immediately (the paper's "no aggregation").
`tree = "single"` sends everything to member 0, whose one tree carries it (section 5.5); a node's own
messages come back to it over that tree, and it passes them on like all others. `mtu_bytes` limits
packets of several messages (0: no limit), `size_model` says what counts: the frame on the "wire", or
the "paper"'s formula.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, TypeAlias, cast

from whence.core.clocks import Delta, DeltaClock
from whence.core.effects import Deliver, Discard, Effects, Reason, Send
from whence.core.group import WINDOW_MAX, check_payload, check_peer, group_of, id_of
from whence.core.message import Message, MessageId, NodeId, Packet, Sizes, Waiting
from whence.core.parameters import Parameters, choice, flag, whole
from whence.core.protocol import Protocol, State
from whence.overlay.hypercube import View, complete
from whence.protocols.vcube.wire import SIZE_MODELS, VCubeMessage, VCubePacket, packet_sizes, split

Key: TypeAlias = tuple[int, int]  # (origin, number) of a message

ROOT = 0  # the root of the single tree (section 5.5)
MTU_BYTES = 1500  # section 5

AGGREGATE = flag("aggregate", default=True)
MTU = whole("mtu_bytes", MTU_BYTES, 0)  # 0: no limit
SIZE_MODEL = choice("size_model", "wire", tuple(SIZE_MODELS))


class Pending:
    """A message that was received and is not delivered, or not yet passed on to all children."""

    __slots__ = ("held", "level", "message", "order", "since_us", "watch")

    def __init__(self, message: VCubeMessage, order: int, since_us: int, level: int) -> None:
        self.message = message
        self.order = order  # by arrival at this node
        self.since_us = since_us
        self.level = level  # B(p): blocked for the children below this level
        self.watch: Key | None = None  # the missing dependency that sets `level`
        self.held = False  # not delivered


class VCube(Protocol):
    """The state and the rules of a node."""

    name: ClassVar[str] = "vcube"
    packet_type: ClassVar[type[Packet]] = VCubePacket
    parameters: ClassVar[Parameters] = Parameters(
        AGGREGATE, choice("tree", "source", ("source", "single")), MTU, SIZE_MODEL
    )

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        self.members, self.index, self.my_index = group_of(me, members)
        self.me = me
        options = self.parameters.read(self.name, given)
        self.aggregate: bool = options["aggregate"]
        self.root = ROOT if options.get("tree") == "single" else None
        self.mtu_bytes: int = options["mtu_bytes"]
        self.size_model = SIZE_MODELS[options["size_model"]]
        self.set_view(View(complete(len(self.members)), self.my_index, self.root))
        # Algorithm 2, lines 1-4
        self.last = 0
        self.clock = DeltaClock(len(self.members))
        self.received = [0] * len(self.members)
        self.early: dict[int, set[int]] = {}  # origin -> numbers received beyond a hole
        self.arrivals = 0
        self.pending: dict[Key, Pending] = {}
        self.held_count = 0  # how many of them are not delivered
        # Both are indices of `pending`: each message stands under one key in each, at most.
        self.blocked_by: dict[Key, list[Pending]] = {}  # not received -> whose `level` it sets
        self.held_by: dict[Key, list[Pending]] = {}  # not delivered -> what is not delivered before it
        self.neighbours: set[NodeId] = set()
        self.parked: dict[NodeId, list[VCubeMessage]] = {}  # for children whose link is not there

    def set_view(self, view: View) -> None:
        """Use these trees from now on; the caller looks at what is pending again."""
        self.view = view
        self.children = tuple(None if at is None else self.members[at] for at in view.children)

    # rule 000 line 30: the condition of delivery
    def _obstacle(self, message: VCubeMessage) -> Key | None:
        """The first predecessor that is not delivered here (the condition of line 30)."""
        origin, number, after, _ = message
        counts = self.clock.counts
        if counts[origin] < number - 1:
            return origin, number - 1
        pairs = iter(after)
        for member, count in zip(pairs, pairs, strict=True):
            if counts[member] < count:
                return member, count
        return None

    # CO_Broadcast (lines 5-12; rule 1)

    # rule 000 rule 1: broadcast with what is delivered as dependencies, to all children
    # rule 000 section 5.5: over the single tree everything goes to the root first
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

    # rule 000 rule 2: a set is taken one message at a time, in the order sent
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

    # rule 000 line 16: `vector_max` is the prefix received without a hole
    def _record(self, origin: int, number: int) -> list[Pending]:
        """Lines 16-17: advance the contiguous prefix; returns whose watched dependency arrived."""
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

    # rule 000 rule 4: each child gets in one packet all that was unblocked for it
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

    # rule 000 rule 3: B(p), and the one missing dependency that sets it
    # rule 000 line 26: `>=`, which a level below B(p) stands for
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

    # rule 000 rule 5: deliver to a fixed point, the clock before the application
    def _check_delivery(self, newest: Pending, effects: Effects) -> None:
        """Deliver the newest message and all that waited for it, to a fixed point; or hold it."""
        ready: list[Pending] = []
        if newest.message[0] != self.my_index:
            self._deliver_or_hold(newest, ready)
        elif not newest.level:  # an own message, which was delivered when it was broadcast
            del self.pending[newest.message[:2]]
        for pending in ready:  # it grows: first what one message releases, then what those release
            origin, number, _, payload = pending.message
            if pending.held:
                pending.held = False
                self.held_count -= 1
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
            if not pending.held:
                pending.held = True
                self.held_count += 1
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
        check_peer(self.me, peer)
        self.neighbours.add(peer)
        effects: Effects = []
        self._send([peer], tuple(self.parked.pop(peer, ())), effects)
        return effects

    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        self.neighbours.discard(peer)
        return []

    # What a peer may not send: a message that would be waited for in vain ends at the door

    # rule 000 duplicates: a packet that comes again ends at the door
    def _refuse(self, message: VCubeMessage) -> Reason | None:
        origin, number, after, _ = message
        if not 0 <= origin < len(self.received):
            return Reason.UNKNOWN_ORIGIN
        if number < 1:
            return Reason.MALFORMED
        newest = self.received[origin]
        if number <= newest or (self.early and number in self.early.get(origin, ())):
            return Reason.DUPLICATE
        if origin == self.my_index and number > self.last:
            return Reason.FORGED
        if number > newest + WINDOW_MAX:
            return Reason.TOO_FAR_AHEAD
        return self._refuse_after(origin, after) if after else None

    def _refuse_after(self, origin: int, after: Delta) -> Reason | None:
        if len(after) % 2:
            return Reason.MALFORMED
        received = self.received
        previous = -1
        pairs = iter(after)
        for member, count in zip(pairs, pairs, strict=True):
            if not previous < member < len(received) or member == origin or count < 1:
                return Reason.MALFORMED
            if count > received[member]:
                if member == self.my_index and count > self.last:
                    return Reason.IMPOSSIBLE  # it follows a message that we never broadcast
                if count > received[member] + WINDOW_MAX:
                    return Reason.TOO_FAR_AHEAD
            previous = member
        return None

    def _named(self, message: VCubeMessage) -> MessageId | None:
        """The message's id, or None where it names a member or a number that cannot be."""
        return id_of(self.members, message[0], message[1])

    # The contract: what waits, what must hold

    @property
    def waiting(self) -> int:
        return self.held_count

    def explain(self) -> list[Waiting]:
        counts, pending = self.clock.counts, self.pending
        waiting = []
        for origin, number in sorted(key for key in pending if pending[key].held):
            held = pending[origin, number]
            missing = [
                (origin, gap) for gap in range(counts[origin] + 1, number) if (origin, gap) not in pending
            ]
            missing += [key for key in self.clock.missing(held.message.after) if key not in pending]
            if not missing:  # all that it waits for is here and waits itself: name the obstacle
                obstacle = self._obstacle(held.message)
                missing = [obstacle] if obstacle else []
            ids = tuple(MessageId(self.members[member], count) for member, count in missing)
            waiting.append(Waiting(MessageId(self.members[origin], number), held.since_us, ids))
        return waiting

    def check(self) -> None:
        counts, received, heights = self.clock.counts, self.received, self.view.heights
        self._require(counts[self.my_index] == self.last, "own messages are delivered immediately")
        for member, count in enumerate(counts):
            if member != self.my_index:
                self._require(count <= received[member], f"member {member}: delivered is received")
        for origin, numbers in self.early.items():
            self._require(min(numbers) > received[origin] + 1, f"member {origin}: no hole before {numbers}")
        for key, pending in self.pending.items():
            known = key[1] <= received[key[0]] or key[1] in self.early.get(key[0], ())
            self._require(known, f"{key} is pending and was never received")
            self._require(pending.held or pending.level > 0, f"{key} is pending for nothing")
            self._require(pending.held == (key[1] > counts[key[0]]), f"{key} is held until delivered")
            if pending.held:
                self._require(self._obstacle(pending.message) is not None, f"{key} is held for nothing")
            self._require(pending.level <= heights[key[0]], f"{key} is blocked for its children at most")
            self._require((pending.level > 0) == (pending.watch is not None), f"{key} watches while blocked")
        self._check_index(self.blocked_by, received, {k: p for k, p in self.pending.items() if p.level})
        held = {key: pending for key, pending in self.pending.items() if pending.held}
        self._check_index(self.held_by, counts, held)
        self._require(self.held_count == len(held), "what is not delivered is counted")

    def _check_index(self, index: dict[Key, list[Pending]], have: list[int], of: dict[Key, Pending]) -> None:
        """Each message of `of` stands in `index` once, under something that is not there yet."""
        indexed = sorted(pending.message[:2] for waiting in index.values() for pending in waiting)
        self._require(indexed == sorted(of), "each waiting message is indexed exactly once")
        for member, count in index:
            self._require(have[member] < count, f"{(member, count)} is here and is waited for")

    # The contract: state through plain data

    def save(self) -> State:
        return {
            "last": self.last,
            "neighbours": sorted(self.neighbours),
            "delivered": list(self.clock.counts),
            "changed": [list(pair) for pair in sorted(self.clock.changed.items())],
            "received": list(self.received),
            "early": [[origin, sorted(numbers)] for origin, numbers in sorted(self.early.items())],
            "arrivals": self.arrivals,
            "pending": [
                [
                    *_plain(each.message),
                    each.order,
                    each.since_us,
                    each.level,
                    list(each.watch or ()),
                    each.held,
                ]
                for each in self.pending.values()
            ],
            "parked": [
                [peer, [_plain(message) for message in self.parked[peer]]] for peer in sorted(self.parked)
            ],
        }

    def restore(self, state: State) -> None:
        self.last = state["last"]
        self.neighbours = set(state["neighbours"])
        self.clock.counts = list(state["delivered"])
        self.clock.changed = dict(state["changed"])
        self.received = list(state["received"])
        self.early = {origin: set(numbers) for origin, numbers in state["early"]}
        self.arrivals = state["arrivals"]
        for *plain, order, since_us, level, watch, held in state["pending"]:
            message = _message(plain)
            pending = self.pending[message[:2]] = Pending(message, order, since_us, level)
            pending.held = held
            self.held_count += held
            if watch:
                pending.watch = (watch[0], watch[1])
                self.blocked_by.setdefault(pending.watch, []).append(pending)
            obstacle = self._obstacle(message)
            if obstacle is not None:
                self.held_by.setdefault(obstacle, []).append(pending)
        self.parked = {peer: [_message(plain) for plain in messages] for peer, messages in state["parked"]}

    # The contract: what it costs

    def message_of(self, packet: Packet) -> MessageId | None:
        """The first message; `further_messages_of` has the others."""
        messages = cast(VCubePacket, packet).messages
        return self._named(messages[0]) if messages else None

    def further_messages_of(self, packet: Packet) -> tuple[MessageId, ...]:
        """All but the first, in the packet's order."""
        found = (self._named(message) for message in cast(VCubePacket, packet).messages[1:])
        return tuple(id_ for id_ in found if id_ is not None)

    def sizes(self, packet: Packet) -> Sizes:
        return packet_sizes(cast(VCubePacket, packet))

    def entries(self) -> int:
        pending = sum(1 + len(each.message.after) // 2 for each in self.pending.values())
        parked = sum(map(len, self.parked.values()))
        early = sum(map(len, self.early.values()))
        return 2 * len(self.received) + len(self.clock.changed) + early + pending + parked


def _plain(message: VCubeMessage) -> list[object]:
    origin, number, after, payload = message
    return [origin, number, list(after), payload]


def _message(plain: list[object]) -> VCubeMessage:
    origin, number, after, payload = plain
    return VCubeMessage(
        cast(int, origin), cast(int, number), tuple(cast(list[int], after)), cast(bytes, payload)
    )


def _by_number(pending: Pending) -> int:
    return pending.message[1]


def _by_arrival(pending: Pending) -> int:
    return pending.order
