"""Passing on, which the baselines share: flooding, or what an origin could not give by need, or nothing.

    relay = True     a node passes the first copy of a message on to every neighbour but the one that it came
                     from, so that a message reaches every node over any connected graph of links, even if its
                     origin crashes after the first send
    relay = "need"   only the origin sends, and a node with a message keeps it until all neighbours have it:
                     it is passed on when its origin is gone, and to a neighbour that has lost its link to
                     the origin. The survivors agree as with flooding, where every two nodes are linked
    relay = False    only the origin sends: right where every node is linked to every other and origins do not
                     crash in the middle of a broadcast. A copy from another node is forged

`Relaying` is the links and the passing on, for any group. In a group whose members are known, a subclass of
`Flooding` says when a first copy may be delivered (`_accept`) and what a packet looks like; `lives.py` has
what it says and hears about members that come back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from whence.core.effects import Discard, Effects, Missed, Reason, Send, close_run
from whence.core.group import base_beyond, check_peer, group_of, id_of, is_base
from whence.core.lives import BACK, BEFORE, BEGIN, CUT_OFF, OVER, WELCOME
from whence.core.message import MessageId, NodeId, Packet, Unread
from whence.core.parameters import Parameter, Parameters, flag
from whence.core.protocol import Protocol, State
from whence.protocols.baselines.lives import KeptForNeed, Lives, Word, read_word

FLOOD = flag("relay", default=True)
NEED = "need"
TOLD_EVERY = 4096  # this many first copies are kept before neighbours are told what is here
RELAY = Parameter(
    "relay",
    True,
    f"true, false or {NEED!r}",
    lambda value: isinstance(value, bool) or value == NEED,
)


class Relaying(Protocol):
    """A node, its neighbours, and how a first copy is passed on; nothing about who is in the group."""

    def __init__(self, me: NodeId, *, relay: bool) -> None:
        self.me = me
        self.relay = relay
        self.last = 0
        self.neighbours: tuple[NodeId, ...] = ()
        # For each neighbour all the others, made when first needed: a full mesh has n^2 of them.
        self._without: dict[NodeId, tuple[NodeId, ...] | None] = {}

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        check_peer(self.me, peer)
        self._set_neighbours({*self.neighbours, peer})
        return []

    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        self._set_neighbours(set(self.neighbours) - {peer})
        return []

    def _set_neighbours(self, peers: set[NodeId]) -> None:
        self.neighbours = tuple(sorted(peers))
        self._without = dict.fromkeys(self.neighbours)

    def _pass_on(self, peer: NodeId, packet: Packet, effects: Effects) -> None:
        """Flood: send a first copy to every neighbour but the one that it came from."""
        others = self._without[peer]
        if others is None:
            others = self._without[peer] = tuple(other for other in self.neighbours if other != peer)
        if others:
            effects.append(Send(others, packet))


class Flooding(Relaying):
    """A known group, and the guard against duplicates."""

    parameters: ClassVar[Parameters] = Parameters(RELAY)
    returns: ClassVar[bool] = True

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        self.members, self.index, self.my_index = group_of(me, members)
        relay = self.parameters.read(self.name, given)["relay"]
        super().__init__(me, relay=relay is True)
        self.lives = Lives()
        # What is kept for others; None where all is flooded, or nothing.
        self.kept = KeptForNeed(len(self.members)) if relay == NEED else None
        self.keeps_packets = self.kept is not None
        self._wanted_by = {} if self.kept is None else self.kept.wanted_by  # for the fast path
        self._direct = relay is False  # whatever does not come from its origin is forged

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        if peer not in self._without:
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        if packet[1] <= 0:
            return self._hear(peer, packet, now_us)
        refused = self._refuse(packet)
        effects: Effects = []
        if refused is not None:
            if packet[0] in self.lives.overtaken:
                self._tell_overtaken(packet[0], packet[1], effects)
            effects.append(Discard(self.message_of(packet), peer, refused))
            return effects
        if self._direct and self.members[packet[0]] != peer:
            return [Discard(self.message_of(packet), peer, Reason.FORGED)]
        if self.relay:
            self._pass_on(peer, packet, effects)
        elif self.kept is not None:
            self._keep(packet, effects)
        self._accept(packet, now_us, effects)
        if self.lives.marks:
            self._begin_lives(effects)
        return effects

    # Packets that arrive together: a subclass delivers what goes straight through in runs

    def receive_many(self, peer: NodeId, packets: list[Packet], now_us: int) -> Effects:
        """As `receive` for each; where only origins send, what goes straight through becomes one run."""
        only, kept = self.index.get(peer, self.my_index), self.kept
        if self.relay or only == self.my_index or peer not in self._without:
            return super().receive_many(peer, packets, now_us)
        at, stop = 0, len(packets)
        if kept is None or kept.untold + stop < TOLD_EVERY:
            return self._receive_runs(peer, only, packets, 0, stop, now_us)
        effects: Effects = []
        while at < stop:
            until = min(stop, at + TOLD_EVERY - 1 - kept.untold)
            if until > at:
                effects += self._receive_runs(peer, only, packets, at, until, now_us)
            else:  # neighbours are told before it is delivered
                until = at + 1
                effects += self.receive(peer, packets[at], now_us)
            at = until
        return effects

    def _receive_runs(
        self, peer: NodeId, only: int, packets: list[Packet], first: int, stop: int, now_us: int
    ) -> Effects:
        """As `receive_many` for some of them; only messages of the origin `only` may go straight through.

        Neighbours need not be told what is here because of them.
        """
        return super().receive_many(peer, packets[first:stop], now_us)

    def _take_alone(
        self, peer: NodeId, packet: Packet, now_us: int, run: list[Unread], effects: Effects
    ) -> list[Unread]:
        """Receive a packet that does not go straight through, after a run; returns the run that goes on."""
        others = self.receive(peer, packet, now_us)
        if others:
            run = close_run(run, effects)
            effects += others
        return run

    @abstractmethod
    def _refuse(self, packet: Packet) -> Reason | None:
        """Why the packet ends here (malformed, forged, seen before), or None for a first copy."""

    @abstractmethod
    def _accept(self, packet: Packet, now_us: int, effects: Effects) -> None:
        """Deliver a first copy and whatever it was the last obstacle for, or hold it."""

    @abstractmethod
    def _counts(self) -> list[int]:
        """Of each member, how many messages are accounted for here, without a hole."""

    @abstractmethod
    def _skip_to(self, member: int, number: int, effects: Effects) -> None:
        """What `member` broadcast up to `number` is accounted for: what is held of that ends."""

    @abstractmethod
    def _control(self, number: int, payload: bytes) -> Packet:
        """A packet of this node that is no message."""

    def message_of(self, packet: Packet) -> MessageId | None:
        return id_of(self.members, packet[0], packet[1])

    def is_mark(self, packet: Packet) -> bool:
        return bool(packet[1] <= 0)

    def detail_of(self, packet: Packet) -> str | None:
        """Of what is no message, what it says."""
        return None if packet[1] > 0 else f"{packet[1]} {packet[-1].hex()}"

    def _save_lives(self) -> State:
        """What a subclass adds to its state: nothing in a group whose members never went away."""
        saved: State = {}
        if self.lives.save() != Lives().save():
            saved["lives"] = self.lives.save()
        if self.kept is not None and not self.kept.is_empty:
            saved["kept"] = self.kept.save()
        return saved

    def _restore_lives(self, state: State) -> None:
        if "lives" in state:
            self.lives.restore(state["lives"])
        if "kept" in state and self.kept is not None:
            self.kept.restore(state["kept"], self.packet_type)

    # Passing on by need

    def _keep(self, packet: Packet, effects: Effects) -> None:
        """Keep a first copy; give it to the neighbours that cannot hear its origin."""
        assert self.kept is not None
        self.kept.add(packet)
        if packet[0] in self._wanted_by:
            effects.append(Send(self._wanted_by[packet[0]], packet))
        if self.kept.untold >= TOLD_EVERY:
            self._tell_neighbours(effects)

    def _tell_neighbours(self, effects: Effects) -> None:
        """Say what is here and whom this node cannot hear; forget what all neighbours have."""
        kept = self.kept
        assert kept is not None
        if self.neighbours:
            word = Word.HAVE.body(self._counts(), sorted(kept.unheard))
            effects.append(Send(self.neighbours, self._control(0, word)))
        kept.untold = 0
        kept.prune([self.index[peer] for peer in self.neighbours])

    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        effects = super().link_down(peer, now_us)
        kept, at = self.kept, self.index.get(peer)
        if kept is not None and at is not None:
            kept.unheard.discard(at)
            kept.wants(peer, ())
            self._give_kept(at, self.neighbours, effects)
        return effects

    def _give_kept(self, origin: int, to: Iterable[NodeId], effects: Effects) -> None:
        """Give what is kept of an origin to those that are not known to have it."""
        assert self.kept is not None
        for peer in to:
            at = self.index[peer]
            if at != origin:
                for packet in self.kept.lacking(origin, at):
                    effects.append(Send((peer,), packet))

    # Lives

    def command(self, verb: str, names: tuple[NodeId, ...], now_us: int) -> Effects:
        """What the host knows of links and lives: `lives.py` has the verbs."""
        effects: Effects = []
        if verb == BEGIN:
            self._begin_life(int(names[0]), effects)
        elif verb == WELCOME:
            effects.append(Send((names[0],), self._control(0, Word.CUT.body(self._counts()))))
            if self.kept is not None:  # the life before may not have given everything to all
                self._give_kept(self.index[names[0]], self.neighbours, effects)
        elif verb in (CUT_OFF, BACK) and self.kept is not None:
            at = self.index[names[0]]
            if verb == CUT_OFF:
                self.kept.unheard.add(at)
                self._give_kept(at, self.neighbours, effects)
            else:
                self.kept.unheard.discard(at)
            self._tell_neighbours(effects)
        elif verb not in (CUT_OFF, BACK):
            return super().command(verb, names, now_us)
        return effects

    def _begin_life(self, base: int, effects: Effects) -> None:
        """This node's numbers go on after `base`: a node with all of its earlier lives follows it there."""
        lives = self.lives
        # A life that has said nothing leaves nothing to wait for: those who did not hear of it never will.
        lives.before = self.last if is_base(lives.seen) else max(self.last, lives.seen)
        lives.base = self.last = base
        self._skip_to(self.my_index, base, effects)
        if self.neighbours:
            effects.append(Send(self.neighbours, self._control(-base, Word.LIFE.body([lives.before]))))

    def _hear(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        """A packet that is no message."""
        origin, number, word = packet[0], packet[1], read_word(packet[-1], len(self.members))
        effects: Effects = []
        if word is None or not 0 <= origin < len(self.members) or (number == 0) == (word.kind is Word.LIFE):
            return [Discard(None, peer, Reason.MALFORMED)]
        if number == 0 and self.members[origin] != peer:
            return [Discard(None, peer, Reason.FORGED)]
        if word.kind is Word.CUT:
            self._jump(word.counts, effects)
        elif word.kind is Word.HAVE:
            self._hear_have(peer, origin, word.counts, word.unheard, effects)
        else:
            self._hear_life(peer, packet, origin, -number, word.counts[0], effects)
        return effects

    def _hear_have(
        self, peer: NodeId, at: int, counts: tuple[int, ...], unheard: tuple[int, ...], effects: Effects
    ) -> None:
        if self.kept is None:
            return
        self.kept.have[at] = counts
        for origin in self.kept.wants(peer, unheard):
            self._give_kept(origin, (peer,), effects)

    def _jump(self, counts: tuple[int, ...], effects: Effects) -> None:
        """Begin at a neighbour's cut: what it has and this node lacks is not given here any more."""
        lives = self.lives
        for member, count in enumerate(counts):
            known = self._counts()[member]
            if member == self.my_index:
                effects += lives.hear_own(count, self.last)
                if count > self.last and lives.base:
                    # Another copy of the store has gone further: where it is, two would use one number.
                    self._begin_life(base_beyond(count), effects)
                elif count > self.last:  # it has not begun a later life yet, and this is one
                    self.last = count
                    self._skip_to(member, count, effects)
            elif count > known:
                first = known + 1
                effects.append(Missed(self.members[member], first, count, BEFORE))
                self.lives.hearsay.add(member)
                self._skip_to(member, count, effects)
            else:
                self._tell_overtaken(member, count, effects)
        self._begin_lives(effects)

    def has_heard_of(self, peer: NodeId) -> bool:
        return self.index.get(peer) in self.lives.hearsay

    def _tell_overtaken(self, origin: int, number: int, effects: Effects) -> None:
        """A member has said so much in a life that another one has overtaken here: it is not given here."""
        lost = self.lives.overtaken_to(origin, number)
        if lost is not None:
            effects.append(Missed(self.members[origin], *lost, OVER))

    def _hear_life(
        self, peer: NodeId, packet: Packet, origin: int, base: int, before: int, effects: Effects
    ) -> None:
        """A member begins a later life, after `before`: here once that is accounted for."""
        lives = self.lives
        marks = lives.marks.get(origin, [])
        is_known = base <= self._counts()[origin] or any(base == each for each, _ in marks)
        if origin == self.my_index or is_known:
            effects.append(Discard(None, peer, Reason.DUPLICATE))
            return
        if self._direct and self.members[origin] != peer:
            effects.append(Discard(None, peer, Reason.FORGED))
            return
        if self.relay:
            self._pass_on(peer, packet, effects)
        elif self.kept is not None:
            self._keep(packet, effects)
        lives.marks[origin] = sorted([*marks, (base, before)])
        self._begin_lives(effects)

    def _begin_lives(self, effects: Effects) -> None:
        """Follow the members whose earlier lives are accounted for."""
        lives = self.lives
        for origin, marks in sorted(lives.marks.items()):
            while marks and ((known := self._counts()[origin]) >= marks[0][1] or self._direct):
                base, before = marks.pop(0)
                if known < base:
                    self._tell_overtaken(origin, before, effects)
                    if known < before:
                        effects.append(Missed(self.members[origin], known + 1, before, OVER))
                    lives.overtaken[origin] = (max(known, before), base)
                    self._skip_to(origin, base, effects)
            if not marks:
                del lives.marks[origin]
