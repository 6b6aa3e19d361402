"""What point-to-point protocols share: a known group, links that come up, and packets that wait for them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from whence.core.effects import Discard, Effects, Missed, Reason, Send, Tell
from whence.core.group import LATER_LIVES, NUMBER_MAX, base_beyond, check_payload, check_peer, group_of
from whence.core.lives import BACK, BEFORE, BEGIN, CUT_OFF, OVER, WELCOME, RolledBack
from whence.core.message import MessageId, NodeId, Packet
from whence.core.protocol import Protocol, State
from whence.errors import MisuseError
from whence.protocols.domains.clock import Stamp, matrix_of
from whence.protocols.domains.consumer import Consumer, HandOn, plain, restored


class Unicast(Protocol):
    """Members are indexed by their place in the sorted list, so that all nodes agree without talking.

    A packet for a peer without a link waits in `unsent` and leaves, in order, when the link comes up.
    """

    returns: ClassVar[bool] = True

    def __init__(self, me: NodeId, members: Iterable[NodeId]) -> None:
        self.members, self.index, self.my_index = group_of(me, members)
        self.me = me
        self.last = 0
        self.neighbours: set[NodeId] = set()
        self.unsent: dict[NodeId, list[Packet]] = {}

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        """Point-to-point protocols have no broadcast: our misuse."""
        raise MisuseError(
            f"broadcast under protocol {self.name!r}", "its messages go to one node each", "Use send(to, ...)"
        )

    def _check_send(self, to: NodeId, payload: bytes) -> None:
        check_payload(payload)
        if to not in self.index:
            raise MisuseError(f"destination {to!r}", "it is not a member of the group", "Name a member")

    def _pass_to(self, peer: NodeId, packet: Packet, effects: Effects) -> None:
        """Give a packet to the link, or keep it until there is one."""
        if peer in self.neighbours:
            effects.append(Send((peer,), packet))
        else:
            self.unsent.setdefault(peer, []).append(packet)

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        check_peer(self.me, peer)
        self.neighbours.add(peer)
        for consumer, place in self._shared_with(peer):
            consumer.clock.gone.discard(place)
        return [Send((peer,), packet) for packet in self.unsent.pop(peer, [])]

    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        """The peer is out of the group: what it sent and no node has is not waited for."""
        self.neighbours.discard(peer)
        effects: Effects = []
        for consumer, place in self._shared_with(peer):
            consumer.clock.gone.add(place)
            consumer.look_again(self._hand_on_to(effects))
            self._tell_and_ask(consumer, effects)
        return effects

    # Lives (core/lives.py). What is said of them is a packet of number 0 (a cut) or below (a life begins).

    @abstractmethod
    def _shared_with(self, peer: NodeId) -> list[tuple[Consumer, int]]:
        """The consumers whose domains this server shares with `peer`, and its place there."""

    @abstractmethod
    def _word(self, consumer: Consumer, number: int, sent: int, stamp: Stamp) -> Packet:
        """A packet that is no message, about the domain of a consumer."""

    @abstractmethod
    def _hand_on_to(self, effects: Effects) -> HandOn:
        """What is done with a message whose turn has come."""

    def command(self, verb: str, names: tuple[NodeId, ...], now_us: int) -> Effects:
        """What the host knows of links and lives."""
        effects: Effects = []
        if verb == BEGIN:
            self._begin_life(int(names[0]), effects)
        elif verb == WELCOME:
            for consumer, place in self._shared_with(names[0]):
                sent, known = consumer.cut_for(place, int(names[1]))
                self._pass_to(names[0], self._word(consumer, 0, sent, known), effects)
        elif verb in (CUT_OFF, BACK):
            for consumer, place in self._shared_with(names[0]):
                if verb == CUT_OFF:
                    consumer.clock.owe_whole(place, is_cut_off=True)
                else:
                    consumer.clock.back(place)
        else:
            return super().command(verb, names, now_us)
        return effects

    def _begin_life(self, base: int, effects: Effects) -> None:
        self.last = base
        shared = [
            (peer, consumer, consumer.clock.value[consumer.clock.me * consumer.clock.size + place])
            for peer in self.members
            if peer != self.me
            for consumer, place in self._shared_with(peer)
        ]
        for _, consumer, _ in shared:
            consumer.clock.begin_life(base)
        for peer, consumer, before in shared:
            self._pass_to(peer, self._word(consumer, -base, before, ()), effects)

    def _hear(
        self, peer: NodeId, consumer: Consumer, place: int, number: int, sent: int, stamp: Stamp
    ) -> Effects:
        """A packet that is no message."""
        effects: Effects = []
        hand_on = self._hand_on_to(effects)
        if number < 0:
            if sent < 0 or -number <= sent or stamp:
                return [Discard(None, peer, Reason.MALFORMED)]
            consumer.hear_life(place, -number, sent, hand_on)
            self._tell_and_ask(consumer, effects)
            return effects
        stamp = matrix_of(stamp, consumer.clock.size)
        if sent < 0 or len(stamp) != consumer.clock.size**2 or min(stamp) < 0 or max(stamp) >= NUMBER_MAX:
            return [Discard(None, peer, Reason.MALFORMED)]
        lost, own = consumer.jump(place, sent, stamp, hand_on)
        if lost is not None:
            effects.append(Missed(f"{peer}>{self.me}", *lost, BEFORE))
        self._hear_own(own, effects)
        consumer.begin_lives(hand_on)
        self._tell_and_ask(consumer, effects)
        return effects

    def has_heard_of(self, peer: NodeId) -> bool:
        return any(place in consumer.hearsay for consumer, place in self._shared_with(peer))

    def _hear_own(self, own: tuple[int, int] | None, effects: Effects) -> None:
        """Others have met a life of this server that it does not know; None: they have not."""
        if own is None:
            return
        effects.append(Tell(RolledBack("", own[0] - 1, own[1])))
        if self.last >= LATER_LIVES:
            # Another copy of the store has gone further: until this one begins anew, it would count on from
            # where that one is, which those who have not met that one wait for.
            self._begin_life(base_beyond(max(own[1], self.last)), effects)

    def _is_of_a_copy(self, consumer: Consumer, source: int, stamp: Stamp, effects: Effects) -> bool:
        """Whether a stamp knows of messages of this server that a copy of its store has sent.

        If so this server has begun anew, and the stamp is possible now.
        """
        claims = list(consumer.clock.claims(stamp))
        if self.last < LATER_LIVES or max(said for _, said in claims) < LATER_LIVES:
            return False
        self._hear_own(consumer.hear_own(source, claims), effects)
        return True

    def _tell_and_ask(self, consumer: Consumer, effects: Effects) -> None:
        """What counts as delivered here and never was is told; a life of which only others know is asked for.

        Who has begun it will say so, or has. A server that has not is told by this that a copy of its store
        went further, and begins anew: those who met the copy may be gone, and no other could tell it.
        """
        skipped, consumer.skipped = consumer.skipped, []
        for place, first, last in skipped:
            effects.append(Missed(f"{self._at(consumer, place)}>{self.me}", first, last, OVER))
        doubts, consumer.doubts = consumer.doubts, {}
        size = consumer.clock.size
        for place, count in doubts.items():
            known = [0] * size**2
            known[place * size + consumer.clock.me] = count
            self._pass_to(self._at(consumer, place), self._word(consumer, 0, 0, tuple(known)), effects)

    def _at(self, consumer: Consumer, place: int) -> NodeId:
        [peer] = [each for each in self.members if (consumer, place) in self._shared_with(each)]
        return peer

    def _save_links(self) -> State:
        return {
            "last": self.last,
            "neighbours": sorted(self.neighbours),
            "unsent": [
                [peer, [plain(packet) for packet in packets]] for peer, packets in self.unsent.items()
            ],
        }

    def _restore_links(self, state: State) -> None:
        self.last = state["last"]
        self.neighbours = set(state["neighbours"])
        for peer, packets in state["unsent"]:
            self.unsent[peer] = [restored(fields, self.packet_type) for fields in packets]


def pair(source: NodeId, to: NodeId, count: int) -> MessageId:
    """How `explain` names a message of which only its place is known: the `count`-th from `source` to
    `to`."""
    return MessageId(f"{source}>{to}", count)
