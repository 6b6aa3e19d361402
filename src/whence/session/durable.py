"""A durable server: a core, its queues and its agent, such that no crash loses or repeats a message.

Guarantee     whatever was on disk when a server stopped, it goes on as if it had not: every message that was
              accepted (`send` on disk) is reacted to exactly once, in causal order.
Assumptions   a disk that keeps what was synced, and of the rest a prefix at the most; the host syncs a step's
              record before it carries out its releases, and transmits what `outstanding` names again until it
              is acknowledged. Agents' reactions have no effects but their state and their outputs.
Source        paper 004, sections 3 and 5 (figure 7); DESIGN section 2, rule 6.

    paper                                   here
    LocalQueue, clock, QueueIN              what replaying the records gives: `core`, `queue_in`
    MessageQueueOUT                         `out[peer]`, by number on the link
    Send(ACK)                               Acknowledge, released when `Received` is on disk
    atomic reaction of an agent             one `Reacted` record: out of QueueIN, outputs into
                                            MessageQueueOUT, the agent's new state

The order that the paper needs is: save, acknowledge, {merge the clock, dequeue, push or stamp and enqueue} in
one step, {reaction, outputs, dequeue} in one step. Here a record is the input itself and its consequences are
recomputed, so the first three cannot come apart. What a host can still get wrong is to release before the
sync; tests/simulation/test_domain_crashes.py crashes at every step, in the right order and in each wrong one.

No I/O: `live` and the tests bring their own disk. Any core will do; nothing here knows about clocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from whence.core.effects import Deliver, Effects, Send
from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import Protocol, State
from whence.errors import InvariantError, MisuseError
from whence.session.records import (
    Acknowledge,
    Acknowledged,
    Arrived,
    Fired,
    Linked,
    Met,
    Output,
    Reacted,
    Received,
    Record,
    Release,
    Sent,
    Step,
    Taken,
    Transmit,
)

# (state, message) -> (new state, what it sends)
Agent: TypeAlias = Callable[[bytes, Message], tuple[bytes, list[Output]]]


def no_agent(state: bytes, message: Message) -> tuple[bytes, list[Output]]:
    """An application that takes its messages and sends nothing in return."""
    return state, []


class DurableServer:
    """One server. Inputs return a `Step`; `replay` makes the same changes from a record, without releases."""

    def __init__(self, core: Protocol, agent: Agent = no_agent) -> None:
        self.core = core
        self.agent = agent
        self.agent_state = b""
        self.queue_in: deque[Message] = deque()
        self.out: dict[NodeId, dict[int, Packet]] = {}  # peer -> number on the link -> not yet acknowledged
        self.out_last: dict[NodeId, int] = {}  # peer -> number of the newest packet to it
        self.taken: dict[NodeId, int] = {}  # peer -> all packets up to this number have come
        self.taken_beyond: dict[NodeId, set[int]] = {}  # and these, out of order
        self.reactions = 0

    # Inputs

    def send(self, to: NodeId | None, payload: bytes, now_us: int) -> Step:
        """The application sends a message (None: to everybody): accepted when the step is on disk."""
        return self._step(Sent(now_us, to, payload))

    def receive(self, peer: NodeId, seq: int, packet: Packet, now_us: int) -> Step:
        """A packet has come. One that was here before is acknowledged again: the first answer may be lost."""
        if self._is_taken(peer, seq):
            return Step(None, [Acknowledge(peer, seq)], [])
        return self._step(Received(now_us, peer, seq, packet))

    def acknowledged(self, peer: NodeId, seq: int) -> Step:
        """A peer says that a packet is on its disk."""
        if seq not in self.out.get(peer, {}):
            return Step(None, [], [])
        return self._step(Acknowledged(peer, seq))

    def link(self, peer: NodeId, is_up: bool, now_us: int) -> Step:
        """A link came up or went down."""
        return self._step(Linked(now_us, peer, is_up))

    def react(self, now_us: int) -> Step | None:
        """Let the agent react to the next message of QueueIN; None if there is none."""
        if not self.queue_in:
            return None
        state, outputs = self.agent(self.agent_state, self.queue_in[0])
        return self._step(Reacted(now_us, state, tuple(outputs)))

    def timer(self, key: str, now_us: int) -> Step:
        """A timer of the core has come due."""
        return self._step(Fired(now_us, key))

    def outstanding(self) -> list[Transmit]:
        """What to transmit again: after a restart, and now and then while no acknowledgement comes."""
        return [
            Transmit(peer, seq, packet)
            for peer, packets in sorted(self.out.items())
            for seq, packet in sorted(packets.items())
        ]

    # Steps

    def _step(self, record: Record) -> Step:
        effects = self.apply(record)
        releases: list[Release] = []
        if isinstance(record, Received):
            releases.append(Acknowledge(record.peer, record.seq))
        elif isinstance(record, Arrived):
            last = record.seq + len(record.packets)
            releases += [Acknowledge(record.peer, seq) for seq in range(record.seq, last)]
        releases += self._enqueue(effects)
        return Step(record, releases, effects)

    def replay(self, records: Iterable[Record]) -> None:
        """After a crash: go through what is on disk since the snapshot."""
        for record in records:
            self._step(record)

    def apply(self, record: Record) -> Effects:  # noqa: PLR0911 - one line for each kind of record
        """What the core answers to a record; all that is not the core's is changed here."""
        if isinstance(record, Received):
            self._take(record.peer, record.seq)
            return self.core.receive(record.peer, record.packet, record.now_us)
        if isinstance(record, Arrived):
            return self._apply_arrivals(record)
        if isinstance(record, Reacted):
            return self._apply_reaction(record)
        if isinstance(record, Sent):
            return self._apply_send(record.to, record.payload, record.now_us, record.lifetime_us)
        if isinstance(record, Taken):
            while self.reactions < record.messages:
                self._leave_queue()
            return []
        if isinstance(record, Met):
            return []
        if isinstance(record, Acknowledged):
            self.out.get(record.peer, {}).pop(record.seq, None)
            return []
        if isinstance(record, Fired):
            return self.core.timer(record.key, record.now_us)
        change = self.core.link_up if record.is_up else self.core.link_down
        return change(record.peer, record.now_us)

    def _apply_send(
        self, to: NodeId | None, payload: bytes, now_us: int, lifetime_us: int | None = None
    ) -> Effects:
        if to is not None:
            return self.core.send(to, payload, now_us)
        if lifetime_us is not None:
            return self.core.broadcast_within(payload, lifetime_us, now_us)
        return self.core.broadcast(payload, now_us)

    def _apply_arrivals(self, record: Arrived) -> Effects:
        effects: Effects = []
        for seq, packet in enumerate(record.packets, record.seq):
            if not self._is_taken(record.peer, seq):  # a link that was cut brings some again
                self._take(record.peer, seq)
                effects += self.core.receive(record.peer, packet, record.now_us)
        return effects

    def _leave_queue(self) -> None:
        if not self.queue_in:
            raise MisuseError("a reaction", "QueueIN is empty", "Replay the records in their order")
        self.queue_in.popleft()
        self.reactions += 1

    def _apply_reaction(self, record: Reacted) -> Effects:
        self._leave_queue()
        self.agent_state = record.state
        effects: Effects = []
        for to, payload in record.outputs:
            effects += self._apply_send(to, payload, record.now_us)
        return effects

    def _enqueue(self, effects: Effects) -> list[Transmit]:
        """Deliveries to QueueIN, packets to MessageQueueOUT."""
        transmits = []
        for effect in effects:
            if isinstance(effect, Deliver):
                self.queue_in.append(effect.message)
            elif isinstance(effect, Send):
                for peer in effect.to:
                    seq = self.out_last[peer] = self.out_last.get(peer, 0) + 1
                    self.out.setdefault(peer, {})[seq] = effect.packet
                    transmits.append(Transmit(peer, seq, effect.packet))
        return transmits

    def _is_taken(self, peer: NodeId, seq: int) -> bool:
        return seq <= self.taken.get(peer, 0) or seq in self.taken_beyond.get(peer, ())

    def _take(self, peer: NodeId, seq: int) -> None:
        beyond = self.taken_beyond.setdefault(peer, set())
        beyond.add(seq)
        last = self.taken.get(peer, 0)
        while last + 1 in beyond:
            last += 1
            beyond.remove(last)
        self.taken[peer] = last

    # Snapshots

    def save(self) -> State:
        """The whole state as plain data: what a snapshot keeps in place of the records before it."""
        return {
            "core": self.core.save(),
            "agent_state": self.agent_state,
            "queue_in": [[*message] for message in self.queue_in],
            "out": [
                [
                    peer,
                    [
                        [seq, msgspec.to_builtins(packet, builtin_types=(bytes,))]
                        for seq, packet in sorted(packets.items())
                    ],
                ]
                for peer, packets in sorted(self.out.items())
            ],
            "out_last": [[*each] for each in sorted(self.out_last.items())],
            "taken": [[*each] for each in sorted(self.taken.items())],
            "taken_beyond": [[peer, sorted(beyond)] for peer, beyond in sorted(self.taken_beyond.items())],
            "reactions": self.reactions,
        }

    def restore(self, state: State) -> None:
        """Become the server that `save` described; only on one that has seen no input."""
        self.core.restore(state["core"])
        self.agent_state = state["agent_state"]
        self.queue_in = deque(Message(*fields) for fields in state["queue_in"])
        self.out = {
            peer: {seq: self._packet(fields) for seq, fields in packets} for peer, packets in state["out"]
        }
        self.out_last = dict(state["out_last"])
        self.taken = dict(state["taken"])
        self.taken_beyond = {peer: set(beyond) for peer, beyond in state["taken_beyond"]}
        self.reactions = state["reactions"]

    def _packet(self, fields: Iterable[object]) -> Packet:
        """A packet of the core's type, its arrays as tuples, whatever a codec made of them."""
        return msgspec.convert(list(fields), self.core.packet_type)

    def check(self) -> None:
        """Raise `InvariantError` if the state breaks an invariant."""
        self.core.check()
        for peer, packets in self.out.items():
            if packets and max(packets) > self.out_last[peer]:
                raise InvariantError(
                    f"server {self.core.me}", f"a packet to {peer} has a number of the future"
                )
        for peer, beyond in self.taken_beyond.items():
            if beyond and min(beyond) <= self.taken[peer] + 1:
                raise InvariantError(
                    f"server {self.core.me}", f"the packets of {peer} are not counted together"
                )
