"""The host of a durable core: its inputs are records, and what it becomes follows from them alone.

The same records, applied in the same order, give the same core, the same frames in the links' queues, the
same inbox and the same rows of the trace: that is what a recovery does (DESIGN section 2, rule 6).
session/durable.py is the same machine without I/O; tests/live/test_durable.py replays a live log in it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from whence.core.message import Message, MessageId, NodeId
from whence.errors import InvariantError, StoreError
from whence.live.host import Host
from whence.session.records import Arrived, Fired, Linked, Met, Output, Reacted, Record, Sent, Taken
from whence.trace.schema import Kind

_RETRY_US = 500_000


class DurableHost(Host):
    """See the module. `log` (set by the node) takes the records of timers."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.linked: set[NodeId] = set()
        self.hand: deque[Message] = deque()  # given to the application, which is not done with them
        self.done = 0  # messages that the application is done with: the disk knows
        self.agent_state = b""
        self.reactions = 0
        self.sessions: dict[NodeId, int] = {}
        self.due: dict[str, int] = {}  # timers of the core: part of its state, unlike their handles
        self.replaying = False
        self.log: Any = None  # the node's CommitLog
        self._last_us = 0

    def now_us(self) -> int:
        """The time now; it never goes back, not even where a restart finds the clock set back."""
        self._last_us = max(self._last_us, self._clock.now_us())
        return self._last_us

    # Inputs

    def apply(self, record: Record, data_bytes: int = 0) -> MessageId | None:
        """Carry out an input that is on the disk."""
        if isinstance(record, Arrived):
            self._arrive(record, data_bytes)
        elif isinstance(record, Sent):
            self._last_us = max(self._last_us, record.now_us)
            return self._give(Output(record.to, record.payload), record.lifetime_us, record.now_us)
        elif isinstance(record, Reacted):
            self._react(record)
        elif isinstance(record, Taken):
            while self.done < record.messages:
                self._finish()
        elif isinstance(record, Fired):
            self._fire(record)
        elif isinstance(record, Linked):
            self._link(record)
        elif isinstance(record, Met):
            self.sessions[record.peer] = record.session
        else:
            raise InvariantError(f"node {self.core.me}", f"its log has a {type(record).__name__}")
        return None

    def _arrive(self, record: Arrived, data_bytes: int) -> None:
        incoming = self._links[record.peer].incoming
        here = incoming.received + 1 - record.seq  # a connection that was cut brings some again
        if here < 0:
            raise InvariantError(f"node {self.core.me}", f"packets of {record.peer} are missing in its log")
        packets = list(record.packets[here:])
        self._last_us = max(self._last_us, record.now_us)
        if packets:
            incoming.take(len(packets), data_bytes)
            self.receive(record.peer, packets, record.now_us)
        incoming.told = min(incoming.told, record.seq - 1)  # that peer has not heard of them

    def _give(self, output: Output, lifetime_us: int | None, now_us: int) -> MessageId:
        if output.to is None:
            return self.broadcast(output.payload, lifetime_us, now_us)[0]
        return self.send(output.to, output.payload, now_us)[0]

    def _react(self, record: Reacted) -> None:
        """Out of QueueIN, the agent's new state, its outputs: one step (paper 004, section 3)."""
        self._last_us = max(self._last_us, record.now_us)
        self._finish()
        self.reactions += 1
        self.agent_state = record.state
        for output in record.outputs:
            self._give(Output(*output), None, record.now_us)

    def _finish(self) -> None:
        """The application is done with the oldest message."""
        if self.hand:
            self.hand.popleft()
        elif self.inbox:
            self.unread_bytes -= len(self.inbox.popleft()[2])
        else:
            raise InvariantError(f"node {self.core.me}", "its log takes a message that was not delivered")
        self.done += 1

    def _fire(self, record: Fired) -> None:
        self._last_us = max(self._last_us, record.now_us)
        if self.due.get(record.key, record.now_us + 1) <= record.now_us:  # else it was cancelled meanwhile
            del self.due[record.key]
            now_us = record.now_us
            self._input(self.core.timer(record.key, now_us), now_us, Kind.TIMER, detail=record.key)

    def _link(self, record: Linked) -> None:
        self._last_us = max(self._last_us, record.now_us)
        if record.is_up:
            self.linked.add(record.peer)
            self.link_up(record.peer, record.now_us)
        else:
            self.linked.discard(record.peer)
            self.link_down(record.peer, record.now_us)

    # The application

    def hand_out(self) -> Message:
        """The next message of the inbox; the application has it until it is `_finish`ed."""
        message = self.inbox.popleft()
        self.unread_bytes -= len(message[2])
        assert isinstance(message, Message)  # `tells_outcomes` is never set here
        self.hand.append(message)
        return message

    def take_back(self) -> None:
        """What was handed out waits again: a reaction to it could not be written."""
        while self.hand:
            message = self.hand.pop()
            self.unread_bytes += len(message.payload)
            self.inbox.appendleft(message)

    # Timers: what is due is state, the handles are the event loop's

    def _set_timer(self, key: str, at_us: int) -> None:
        self.due[key] = at_us
        if not self.replaying:
            super()._set_timer(key, at_us)

    def _cancel(self, key: str) -> None:
        self.due.pop(key, None)
        super()._cancel(key)

    def _timer(self, key: str, at_us: int) -> None:
        now_us = self.now_us()
        if now_us < at_us:
            super()._set_timer(key, at_us)
            return
        self._timers.pop(key, None)
        if key in self.due:
            self.log.append(Fired(now_us, key))

    def set_timers(self, error: StoreError | None = None) -> None:
        """After a recovery, or after a write that failed: every timer that is due has a handle."""
        for key, at_us in self.due.items():
            if key not in self._timers:
                super()._set_timer(key, at_us if error is None else max(at_us, self.now_us() + _RETRY_US))

    # Snapshots

    def save(self) -> dict[str, Any]:
        """The whole state as plain data."""
        return {
            "core": self.core.save(),
            "linked": sorted(self.linked),
            "links": [
                [peer, link.incoming.received, link.out.acknowledged, link.out.unacknowledged_frames()]
                for peer, link in self._links.items()
            ],
            "inbox": [list(message) for message in (*self.hand, *self.inbox)],
            "done": self.done,
            "agent_state": self.agent_state,
            "reactions": self.reactions,
            "sessions": self.sessions,
            "due": self.due,
            "last_us": self._last_us,
            "counts": [self.broadcasts, self.deliveries, self.held, self.largest_frame_bytes],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Become the host that `save` described."""
        self.core.restore(state["core"])
        self.linked = set(state["linked"])
        for peer, received, acknowledged, frames in state["links"]:
            self._links[peer].incoming.received = received
            self._links[peer].out.restore(acknowledged, frames)
        self.inbox.extend(Message(*fields) for fields in state["inbox"])
        self.unread_bytes = sum(len(message[2]) for message in self.inbox)
        self.done = state["done"]
        self.agent_state = state["agent_state"]
        self.reactions = state["reactions"]
        self.sessions = state["sessions"]
        self.due = state["due"]
        self._last_us = state["last_us"]
        self.broadcasts, self.deliveries, self.held, self.largest_frame_bytes = state["counts"]
