"""A durable server: the host of a core whose inputs are records of a log, so that no crash loses anything.

Guarantee     whatever was on disk when it stopped, it goes on as if it had not: every message that was
              accepted is reacted to exactly once, in causal order, and no link loses or repeats a packet.
Assumptions   a disk that keeps what was synced, and of the rest at most a prefix; a record is synced before
              it is applied; links are in order, and resume where both ends are. Agents' reactions have no
              effects but their state and their outputs.
Source        paper 004, sections 3 and 5 (figure 7); DESIGN section 2, rule 6; docs/durability.md.

    paper                               here
    LocalQueue, clock                   `core`
    QueueIN                             `hand` (given to the application) and `inbox` behind it
    MessageQueueOUT                     `Link.out` of each peer
    Send(ACK)                           `Link.incoming`, which counts packets when `Arrived` is applied
    atomic reaction of an agent         one `Reacted`: out of QueueIN, outputs into MessageQueueOUT, the
                                        agent's new state

The order that the paper needs is: save, acknowledge, {merge the clock, dequeue, push or stamp and enqueue} in
one step, {reaction, outputs, dequeue} in one step. A record is the input itself, complete, and its
consequences are computed from it (cores are deterministic), so the parts of a step cannot come apart, and all
that leaves follows from records that are on disk. The same records, applied in the same order, give the same
core, the same frames in the links' queues, the same inbox and the same rows of the trace: that is a recovery.

No I/O: `live/durable.py` brings a disk, sockets and a clock, and so does tests/simulation/crash_trial.py,
where this very class is crashed at every step, in the right order and in each wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from whence.core.lives import BACK, BEGIN, CUT_OFF, SHAPE
from whence.core.message import Message, MessageId, NodeId, Packet
from whence.core.protocol import Protocol
from whence.errors import FrameError, InvariantError, MisuseError
from whence.session.host import Host, HostOwner, Timers
from whence.session.links import FORGOTTEN, Link, LinkIn, LinkState
from whence.session.records import (
    Arrived,
    Buried,
    Commanded,
    Done,
    Dropped,
    Fired,
    Linked,
    Met,
    Output,
    Passed,
    Reacted,
    Record,
    Restarted,
    Retired,
    Revived,
    Said,
    Submitted,
    Taken,
)
from whence.session.wire import HEADER, Unopened, packets_frame

# (state, message) -> (new state, what it sends)
Agent: TypeAlias = Callable[[bytes, Message], tuple[bytes, list[Output]]]

_ALL = 1 << 60  # packets
STEP_RECORDS = 256  # of a recovery, before anything else may go on
KEYS_KEPT = 65_536  # the newest: a message that is tried again with one of these keys is the same message


class DeadLetter(NamedTuple):
    """A message at which the agent failed as often as it was allowed to."""

    message: Message
    since_us: int
    attempts: int
    reason: str


class DurableServer(Host):
    """The host of a durable core: what it becomes follows from its records alone."""

    def __init__(
        self,
        core: Protocol,
        links: Mapping[NodeId, Link],
        timers: Timers,
        owner: HostOwner,
        now_us: Callable[[], int],
    ) -> None:
        super().__init__(core, links, timers, owner, now_us)
        self.linked: set[NodeId] = set()
        # Given to the application, which is not done with them, in the order of giving.
        self.hand: dict[MessageId, Message] = {}
        self.lent: Message | None = None  # what a loop has, older than all in `hand`
        self.passed = 0  # messages that loops have passed, which the disk does not know yet
        self._in_order = True  # the inbox is in the order of delivery
        self._order: dict[MessageId, None] = {}  # if it is not: that order, of what was handed out before
        self.keys: dict[bytes, MessageId] = {}  # in order of age
        self.done = 0  # messages that the application is done with
        self.agent_states: dict[str, bytes] = {}  # by name; where there is one agent, its name is empty
        self.reactions = 0
        self.dead: dict[MessageId, DeadLetter] = {}  # in order of burial
        self.sessions: dict[NodeId, int] = {}
        self.peer_lives: dict[NodeId, int] = {}
        self.own_sessions: dict[NodeId, int] = {}  # towards peers with which a link began anew
        self.retired: dict[NodeId, int] = {}
        self.due: dict[str, int] = {}  # timers of the core
        self.unheard = None  # every opening of a store begins a later life, before anything is sent
        self._unreadable: set[NodeId] = set()  # what followed on its connection has not arrived either
        self._last_us = 0
        self._recovering = False

    def now_us(self) -> int:
        """The time now; it never goes back, not even where a restart finds the clock set back."""
        self._last_us = max(self._last_us, self._now_us())
        return self._last_us

    @property
    def in_hand(self) -> int:
        return len(self.hand) + (self.lent is not None) + self.passed

    def undone(self) -> Iterator[Message]:
        """What no loop has passed, and no record calls done: oldest first."""
        lent = () if self.lent is None else (self.lent,)
        found = chain(lent, self.hand.values(), (Message(*fields) for fields in self.inbox))
        if not self._order:
            return found
        places = {id_: at for at, id_ in enumerate(self._order)}
        return iter(sorted(found, key=lambda message: places.get(message.id, len(places))))

    @property
    def agent_state(self) -> bytes:
        """What the agent returned last, where there is one; empty before its first reaction."""
        return self.agent_states.get("", b"")

    # Inputs, as records to be written

    def arrival(self, link: Link, packets: Sequence[Packet] | Unopened) -> Arrived:
        """Packets have arrived on the present connection of a link."""
        kept = packets if isinstance(packets, Unopened) else tuple(packets)
        record = Arrived(self.now_us(), link.peer, link.arrived + 1, kept)
        link.arrived += len(kept)
        return record

    def links_up(self) -> list[Linked]:
        """The links that the log does not know yet come up."""
        return [Linked(self.now_us(), peer, True) for peer in self._links if peer not in self.linked]

    # Records that are on disk

    def apply(self, record: Record, data_bytes: int = 0) -> MessageId | None:
        """Carry out an input that is on disk; returns the id of a message that was submitted.

        `data_bytes` is how many arrived with it. `MisuseError` if the core refuses it, `FrameError` if its
        packets cannot be decoded: then nothing has happened, and nothing happens in a recovery.
        """
        if not isinstance(record, Taken | Met | Done | Passed):
            self._last_us = max(self._last_us, record.now_us)
        if isinstance(record, Arrived):
            self._arrive(record, data_bytes)
        elif isinstance(record, Submitted):
            return self._submit(record)
        elif isinstance(record, Said):
            self.say(record)
        elif isinstance(record, Passed | Done | Taken):
            self._be_done(record)
        elif isinstance(record, Reacted):
            self._react(record)
        elif isinstance(record, Buried | Revived | Dropped):
            self._tend_dead(record)
        elif isinstance(record, Fired):
            self._fire(record)
        elif isinstance(record, Linked):
            self._link(record)
        else:
            self._apply_life(record)
        return None

    def _apply_life(self, record: Met | Commanded | Restarted | Retired) -> None:
        """What is known of the lives of this node and its peers."""
        if isinstance(record, Met):
            self.sessions[record.peer] = record.session
            self.peer_lives[record.peer] = record.life
        elif isinstance(record, Commanded):
            if record.verb == BEGIN:
                self.begin_life(int(record.names[0]), record.now_us)
            else:
                self.command(record.verb, *record.names, now_us=record.now_us)
            if record.verb == SHAPE:
                self._forget_strangers()
            elif self._recovering and record.verb in (CUT_OFF, BACK):
                self._links[record.names[0]].is_cut_off = record.verb == CUT_OFF
        elif isinstance(record, Restarted):
            self._links[record.peer].session = self.own_sessions[record.peer] = record.session
            self.restart_link(
                record.peer, record.acknowledged, welcomes=record.welcomes, now_us=record.now_us
            )
        else:
            self.retired[record.peer] = record.life
            self.sessions[record.peer] = FORGOTTEN
            link = self._links[record.peer]
            link.end(LinkState.RETIRED)  # as it is already, but in a recovery
            link.out.clear()
            self.link_down(record.peer, record.now_us)

    def _forget_strangers(self) -> None:
        """Who is no neighbour any more comes back as another life, if it ever does."""
        for peer in self.linked - (self.core.linked or self.linked):
            self.linked.discard(peer)
            self.sessions[peer] = FORGOTTEN
            self.peer_lives.pop(peer, None)
            self._links[peer].out.clear()
            self._links[peer].incoming = LinkIn()

    def _arrive(self, record: Arrived, data_bytes: int) -> None:
        peer, incoming = record.peer, self._links[record.peer].incoming
        here = incoming.received + 1 - record.seq  # a connection that was cut brings some again
        if here < 0:
            if peer in self._unreadable:
                return  # it comes again, after what could not be read
            raise self._broken(f"packets of {peer} are missing in its log")
        if here < len(record.packets):
            packets = self._opened(record)[here:] if here else self._opened(record)
            incoming.take(len(packets), data_bytes)
            self.receive(peer, packets, record.now_us)
        incoming.told = min(incoming.told, record.seq - 1)  # that peer has not heard of them

    def _opened(self, record: Arrived) -> list[Packet]:
        """The packets of a record; where they cannot be decoded, they have not arrived."""
        packets = record.packets
        if not isinstance(packets, Unopened):
            return list(packets)
        try:
            opened = packets.open()
        except FrameError:
            self._unreadable.add(record.peer)
            raise
        self._unreadable.discard(record.peer)
        return opened

    def _submit(self, record: Submitted) -> MessageId:
        key = record.key
        if key is not None and key in self.keys:
            return self.keys[key]
        id_ = self._give(Output(record.to, record.payload), record.lifetime_us, record.now_us)
        if key is not None:
            self.keys[key] = id_
            if len(self.keys) > KEYS_KEPT:
                del self.keys[next(iter(self.keys))]
        return id_

    def say(self, record: Said) -> list[MessageId | MisuseError]:
        """Broadcast what is on the disk; returns the id of each message, or why the core refuses it."""
        self._last_us = max(self._last_us, record.now_us)
        return self.broadcast_many(record.payloads, record.now_us)

    def _give(self, output: Output, lifetime_us: int | None, now_us: int) -> MessageId:
        if output.to is None:
            return self.broadcast(output.payload, lifetime_us, now_us)[0]
        return self.send(output.to, output.payload, now_us)[0]

    def _react(self, record: Reacted) -> None:
        """Out of QueueIN, the agent's new state, its outputs: one step (paper 004, section 3)."""
        self._finish_first()
        self.reactions += 1
        self.agent_states[record.agent] = record.state
        for output in record.outputs:
            self._give(Output(*output), None, record.now_us)

    def _tend_dead(self, record: Buried | Revived | Dropped) -> None:
        if isinstance(record, Buried):
            message = self._finish_first()
            self.dead[message.id] = DeadLetter(message, record.now_us, record.attempts, record.reason)
            return
        letter = self.dead.pop(record.id, None)
        if letter is None:
            raise MisuseError(f"dead letter {record.id}", "there is none of that id", "List them first")
        if isinstance(record, Revived):
            self.done -= 1
            self.inbox.append(letter.message)
            self.unread_bytes += len(letter.message.payload)

    def _be_done(self, record: Passed | Done | Taken) -> None:
        """The application is done with messages; in a recovery they wait in the inbox."""
        if isinstance(record, Done):
            for id_ in record.ids:
                self._finish(id_)
            return
        if isinstance(record, Taken):
            count = record.messages - self.done
        else:
            passed = min(self.passed, record.messages)
            self.passed -= passed
            self.done += passed
            count = record.messages - passed
        for _ in range(count):
            self._finish_first()

    def _finish_first(self) -> Message:
        """The application is done with the oldest message, which is returned."""
        if not self.hand and not self.inbox:
            raise self._broken("its log takes a message that was not delivered")
        if not self.hand:
            self.hand_out()
        message = next(iter(self.hand.values()))
        self._finish(message.id)
        return message

    def _finish(self, id_: MessageId) -> None:
        """The application is done with a message; in a recovery it has not been handed out again."""
        skipped = []
        while id_ not in self.hand:
            if not self.inbox:
                raise self._broken("its log takes a message that was not delivered")
            skipped.append(self.hand_out())
        del self.hand[id_]
        self._order.pop(id_, None)
        self.done += 1
        for message in reversed(skipped):
            if message.id != id_:
                self._wait_again(self.hand.pop(message.id))

    def _fire(self, record: Fired) -> None:
        if self.due.get(record.key, record.now_us + 1) <= record.now_us:  # else it was cancelled meanwhile
            del self.due[record.key]
            self.timer(record.key, record.now_us)

    def _link(self, record: Linked) -> None:
        if record.is_up:
            self.linked.add(record.peer)
            self.link_up(record.peer, record.now_us)
        else:
            self.linked.discard(record.peer)
            self.link_down(record.peer, record.now_us)

    # The application

    def hand_out(self) -> Message:
        """Return the next message of the inbox; the application has it until it is done with it."""
        message = Message(*self.inbox.popleft())  # `tells_outcomes` is never set here
        self.unread_bytes -= len(message.payload)
        self.hand[message.id] = message
        return message

    def lend(self) -> Message:
        """As `hand_out`, to a loop: it need not be named if it is the oldest of all, and all is in order."""
        is_oldest = not self.hand and self.lent is None
        if is_oldest and len(self.inbox) == 1:
            self._be_in_order()
        message = self.hand_out()
        if is_oldest and self._in_order:
            self.lent = self.hand.pop(message.id)
        return message

    def has_handed_out(self, id_: MessageId) -> bool:
        """Whether a reader has the message; what a loop has is named in `hand` from now on."""
        if self.lent is not None:
            self.hand = {self.lent.id: self.lent, **self.hand}
            self.lent = None
        return id_ in self.hand

    def take_back(self, id_: MessageId) -> None:
        """A message that was handed out waits again, before all others."""
        if len(self.hand) > 1 or not self._in_order:
            self._in_order = False
            for each in self.hand:
                self._order.setdefault(each)
        self._wait_again(self.hand.pop(id_))

    def sort_inbox(self) -> None:
        """Let what waits be in the order of delivery again: reactions are logged without naming messages."""
        if not self._in_order and not self.hand:
            found = list(self.undone())
            self.inbox.clear()  # readers have this very queue
            self.inbox.extend(found)
            self._be_in_order()

    def _be_in_order(self) -> None:
        self._in_order = True
        self._order.clear()

    def _wait_again(self, message: Message) -> None:
        self.unread_bytes += len(message.payload)
        self.inbox.appendleft(message)

    def take_all_back(self) -> None:
        """What was handed out waits again: a reaction to it could not be written."""
        for id_ in reversed(list(self.hand)):
            self._wait_again(self.hand.pop(id_))

    # Timers: what is due is state

    def _set_timer(self, key: str, at_us: int) -> None:
        self.due.pop(key, None)  # the newest last, as in the stores of earlier releases
        self.due[key] = at_us
        if not self._recovering:
            super()._set_timer(key, at_us)

    def _cancel_timer(self, key: str) -> None:
        self.due.pop(key, None)
        super()._cancel_timer(key)

    def set_timers(self, not_before_us: int = 0) -> None:
        """Set every timer that is due: after a recovery, or after a write that failed."""
        for key, at_us in self.due.items():
            if key not in self._timers:
                self._timers.set(key, max(at_us, not_before_us))

    # Recovery

    def recover(self, state: dict[str, Any] | None, records: Iterable[Record]) -> None:
        """Become what the disk says: the state of a snapshot, if there is one, and the records after it.

        Only on a server that has had no input. No timer is set: `set_timers` does that.
        """
        for _ in self.recover_in_steps(state, records):
            pass

    def recover_in_steps(self, state: dict[str, Any] | None, records: Iterable[Record]) -> Iterator[None]:
        """As `recover`; yields now and then, so that a long log does not hold up everything else."""
        self._recovering = True
        if state is not None:
            self._restore(state)
        for number, record in enumerate(records, 1):
            with suppress(MisuseError, FrameError):  # so it was the first time: the caller was told
                self.apply(record)
            if number % STEP_RECORDS == 0:
                yield
        self._recovering = False
        for link in self._links.values():
            link.out.take(_ALL)  # all of it may have been sent: the peer's HELLO says what it has
            link.peer_session = self.sessions.get(link.peer, 0)
            link.peer_life = self.peer_lives.get(link.peer, 0)
            link.session = self.own_sessions.get(link.peer, 0)
            if self.retired.get(link.peer) is not None and self.sessions.get(link.peer) == FORGOTTEN:
                link.end(LinkState.RETIRED)

    def save(self) -> dict[str, Any]:
        """Return the whole state as plain data: what a snapshot keeps in place of the records before it.

        What loops have passed is done there: once it is written, `kept` must be told how much that was.
        """
        return {
            "core": self.core.save(),
            "linked": sorted(self.linked),
            "links": [
                [peer, link.incoming.received, link.out.acknowledged, _frames(link)]
                for peer, link in self._links.items()
            ],
            "inbox": list(map(list, self.undone())),
            "done": self.done + self.passed,
            "agent_state": self.agent_state,
            **({"agent_states": named} if (named := self._named_states()) else {}),
            "reactions": self.reactions,
            "dead": [[*letter.message, *letter[1:]] for letter in self.dead.values()],
            "sessions": self.sessions,
            "lives": [self.peer_lives, self.own_sessions, self.retired],
            **({"cut_off": cut_off} if (cut_off := self._cut_off()) else {}),
            **({"unreadable": sorted(self._unreadable)} if self._unreadable else {}),
            "due": self.due,
            "last_us": self._last_us,
            "keys": [[key, *id_] for key, id_ in self.keys.items()],
            "counts": [self.broadcasts, self.deliveries, self.held, self.largest_frame_bytes],
        }

    def _cut_off(self) -> list[NodeId]:
        """The peers of which the core was told that there is no connection to them."""
        return [peer for peer, link in self._links.items() if link.is_cut_off]

    def kept(self, passed: int) -> None:
        """A snapshot is on the disk in which that many messages are done that were only passed before."""
        self.passed -= passed
        self.done += passed

    def _named_states(self) -> dict[str, bytes]:
        return {name: state for name, state in self.agent_states.items() if name}

    def _restore(self, state: dict[str, Any]) -> None:
        self.core.restore(state["core"])
        self.linked = set(state["linked"])
        for peer, received, acknowledged, frames in state["links"]:
            self._links[peer].incoming.received = received
            self._links[peer].out.restore(acknowledged, [frame[HEADER.size :] for frame in frames])
            if self.core.returns:
                self._find_marks(self._links[peer])
        messages = [Message(*fields) for fields in state["inbox"]]
        self.inbox.extend(messages)
        self.unread_bytes = sum(len(message.payload) for message in messages)
        self.done = state["done"]
        self.agent_states = {"": state["agent_state"], **state.get("agent_states", {})}
        self.reactions = state["reactions"]
        for origin, number, payload, *about in state.get("dead", []):  # stores of earlier releases have none
            message = Message(origin, number, payload)
            self.dead[message.id] = DeadLetter(message, *about)
        self.sessions = state["sessions"]
        self.peer_lives, self.own_sessions, self.retired = state.get("lives", [{}, {}, {}])
        for peer in state.get("cut_off", []):
            self._links[peer].is_cut_off = True
        self._unreadable = set(state.get("unreadable", []))
        self.due = state["due"]
        self._last_us = state["last_us"]
        self.keys = {key: MessageId(origin, number) for key, origin, number in state.get("keys", [])}
        self.broadcasts, self.deliveries, _, self.largest_frame_bytes = state["counts"]

    def check(self) -> None:
        """Raise `InvariantError` if the state breaks an invariant."""
        self.core.check()
        if self.deliveries != self.done + self.in_hand + len(self.inbox):
            raise self._broken("a message that was delivered is neither done with nor in QueueIN")
        for peer, link in self._links.items():
            if link.incoming.told > link.incoming.received:
                raise self._broken(f"it has acknowledged packets of {peer} that it has not received")

    def _broken(self, rule: str) -> InvariantError:
        return InvariantError(f"node {self.core.me}", rule)


def _frames(link: Link) -> list[bytes]:
    """What a snapshot keeps of a link's queue: a DATA frame for each packet, as in every release."""
    return [packets_frame(packet) for packet in link.out.unacknowledged_packets()]
