"""The contract of a protocol core: it receives what happened and returns what should be done.

The rules that every core keeps (and `tests/property` holds it to):

1. Deterministic: the same inputs give the same effects, in the same order, always.
2. A peer can never make a core raise: a bad packet becomes `Discard(reason)`. Our misuse raises.
3. Every end of a message is an effect: delivered, expired or discarded, with the reason. Nothing vanishes.
4. `explain` names, forevery message that waits, the ids that it waits for and since when.
5. `check` raises `InvariantError` when the state is not what the algorithm allows.
6. `save` and `restore` move the whole state through plain data.
7. `sizes` and `entries` state the cost: bytes on the wire, entries of control information in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from whence.core.effects import Effects, Spoken
from whence.core.message import MessageId, NodeId, Packet, Sizes, Waiting
from whence.core.message import State as State  # noqa: PLC0414 - cores take it from here
from whence.core.parameters import Parameters
from whence.errors import InvariantError, MisuseError, ParameterError

LEAVE = "leave"


class Protocol(ABC):
    """One node's part of a protocol. `now_us` is the host's clock, in microseconds, never decreasing."""

    name: ClassVar[str]
    packet_type: ClassVar[type[Packet]]  # the NamedTuple that this protocol sends and receives
    parameters: ClassVar[Parameters]  # the keywords of the constructor
    # Members come and go: a peer may come back in a new life, over a new link, and the timer LEAVE asks
    # the core to leave (a timer, so that the trace has it and a replay does the same).
    renews: ClassVar[bool] = False
    # A link is one connection: a crash ends it at both ends, and a restart makes a new one.
    sessions: ClassVar[bool] = False

    # It keeps packets for others, and would rather keep the bytes that they came in (`Together`).
    keeps_packets: bool = False

    # Its members may come back as later lives (the commands of core/lives.py).
    returns: ClassVar[bool] = False
    begins_at_once: ClassVar[bool] = False  # and no one needs to be asked whether this is a later life

    # Its nodes hand on what is for others.
    routes_for_others: ClassVar[bool] = False

    me: NodeId
    last: int  # number of the newest message that this node broadcast or sent
    last_lifetime_us: int | None = None  # of that message; None: it is good forever

    @property
    def origin(self) -> NodeId:
        """The origin of this node's own messages: its name, or the stream of its life."""
        return self.me

    @property
    def ready(self) -> bool:
        """Whether this node may broadcast now; it may not before it has joined, or after it has left."""
        return True

    @property
    def linked(self) -> frozenset[NodeId] | None:
        """The nodes to which this one needs links; None: all of them."""
        return None

    def next_hop(self, to: NodeId) -> NodeId:
        """The peer over whose link a message to `to` leaves, for point-to-point protocols."""
        return to

    def destinations_over(self, hop: NodeId) -> frozenset[NodeId]:
        """The destinations whose messages pass over the link to `hop`, itself included, where nodes route."""
        return frozenset((hop,))

    def agreement(self, peer: NodeId) -> dict[str, Any]:
        """What this node and `peer` must agree on besides the parameters, as plain data by name."""
        return {}

    @property
    @abstractmethod
    def waiting(self) -> int:
        """How many messages wait here: the length of `explain`, in constant time."""

    @abstractmethod
    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        """Broadcast `payload` as message number `last` (after the call) of this node."""

    def broadcast_many(self, payloads: Sequence[bytes], now_us: int) -> Spoken | None:
        """As `broadcast` for each of some payloads, of a core that can; None: nothing has happened."""
        return None

    def broadcast_within(self, payload: bytes, lifetime_us: int, now_us: int) -> Effects:
        """As `broadcast`, of a message that is worthless `lifetime_us` from now."""
        raise ParameterError(
            f"lifetime of a message under protocol {self.name!r}",
            "this protocol delivers everything, however late",
            "Leave it out, or choose a protocol with lifetimes: barrier, odca or tdca",
        )

    def send(self, to: NodeId, payload: bytes, now_us: int) -> Effects:
        """Send `payload` to one node, as message number `last`; for point-to-point protocols."""
        raise MisuseError(
            f"send to {to!r} under protocol {self.name!r}",
            "its messages go to everybody",
            "Use broadcast, or choose a point-to-point protocol: matrix or domains",
        )

    @abstractmethod
    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        """A packet of `packet_type` has arrived over the link from `peer`."""

    def receive_many(self, peer: NodeId, packets: list[Packet], now_us: int) -> Effects:
        """Packets have arrived together: returns the effects of `receive` for each, in this order.

        A core that can returns a run of `Deliver`s as one `Deliveries`; no other difference is allowed.
        """
        effects: Effects = []
        for packet in packets:
            effects += self.receive(peer, packet, now_us)
        return effects

    @abstractmethod
    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        """A reliable link to `peer` exists from now on."""

    @abstractmethod
    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        """The link to `peer` is gone permanently; what was in flight on it may be lost."""

    def timer(self, key: str, now_us: int) -> Effects:
        """A timer that this core set has expired."""
        return []

    def command(self, verb: str, names: tuple[NodeId, ...], now_us: int) -> Effects:
        """What the host's overlay has decided, for protocols over links that it opens and closes."""
        raise MisuseError(
            f"command {verb!r} for protocol {self.name!r}", "no overlay decides for it", "Leave it out"
        )

    @abstractmethod
    def explain(self) -> list[Waiting]:
        """Every message that waits, by id, with all that it waits for."""

    @abstractmethod
    def check(self) -> None:
        """Raise `InvariantError` if the state breaks an invariant."""

    def _require(self, holds: bool, rule: str) -> None:
        """Raise the `InvariantError` of `check` where a rule does not hold."""
        if not holds:
            raise InvariantError(f"{self.name} at {self.me}", rule)

    @abstractmethod
    def save(self) -> State:
        """The whole state but what the constructor is given (identity, members, parameters)."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Become the core that `save` described; only on a core that has seen no input."""

    def reopen(self, state: State, opening: int, life: str | None = None) -> None:
        """Come back after a crash, for the `opening`-th time, with what `save` had: as if nothing happened.

        Where every opening is a new life, only what was on disk comes back; `life` where a host has drawn it.
        """
        self.restore(state)

    @abstractmethod
    def message_of(self, packet: Packet) -> MessageId | None:
        """The message that a packet carries, for the trace; None for pure control packets."""

    def further_messages_of(self, packet: Packet) -> tuple[MessageId, ...]:
        """The messages that a packet carries besides that of `message_of`: the trace keeps them as detail."""
        return ()

    def detail_of(self, packet: Packet) -> str | None:
        """What the trace keeps of a packet besides its first message: it tells packets apart in a replay."""
        return " ".join(map(str, self.further_messages_of(packet))) or None

    def is_control(self, packet: Packet) -> bool:
        """Whether a packet takes the control path of a network that has one (solicitations, replies)."""
        return False

    def is_mark(self, packet: Packet) -> bool:
        """Whether a packet is no message: it takes no room in a queue, and its loss is not counted."""
        return self.message_of(packet) is None

    def has_heard_of(self, peer: NodeId) -> bool:
        """Whether the cut of another, at which this node began, told it of messages of `peer`."""
        return False

    @abstractmethod
    def sizes(self, packet: Packet) -> Sizes:
        """What the packet costs on the wire."""

    @abstractmethod
    def entries(self) -> int:
        """Entries of control information held in memory now (clock entries, held messages, ids)."""
