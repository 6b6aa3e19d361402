"""The state of a TDCA or ODCA node: what it keeps, refuses, explains, checks, saves.

`deadline.py` has the rules. Every time in here is the node's own clock. A message counts as late
`clock_error_us` before its deadline, so that what is delivered is in time by every clock of the group.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from heapq import heapify
from operator import le
from typing import NamedTuple, TypeAlias, cast

from whence.core.effects import Reason
from whence.core.message import MessageId, NodeId, Waiting
from whence.core.protocol import State
from whence.errors import ParameterError
from whence.protocols.deadline_base import (
    AHEAD_MAX_US,
    LIFETIME_MAX_US,
    DeadlineBase,
    check_number,
    plain_message,
    read_message,
)
from whence.protocols.deadline_wire import DeadlineMessage
from whence.protocols.flooding import NUMBER_MAX

Key: TypeAlias = tuple[int, int]  # (origin, number) of a message

HOLES_MAX = 4096  # of each origin, how many messages that never came are remembered as such
NAMED_MAX = 64  # missing messages of one origin that are named at once, in `explain` and to a peer
BUFFER_BYTES = 128 << 20  # section 5: "Every process has a 128MB buffer space"


class Options(NamedTuple):
    """The parameters that TDCA and ODCA share; docs/deadline.md says what each costs."""

    lifetime_us: int = 1_000_000  # of a message that is broadcast without one
    deadlines: bool = True  # messages carry their predecessors' deadlines
    copies: int = 1  # of each packet of a broadcast
    margin_us: int = 5_000  # deliver out of turn this long before the deadline: a host's timers are late
    clock_error_us: int = 0  # the largest difference between two members' clocks
    buffer_bytes: int = BUFFER_BYTES


class Entry:
    """A message that waits for its turn."""

    __slots__ = ("blocker", "message", "since_us")

    def __init__(self, message: DeadlineMessage, since_us: int) -> None:
        self.message = message
        self.since_us = since_us
        self.blocker = 0  # a member whose frontier held it back when it was last looked at


class DeadlineState(DeadlineBase):
    """Everything that a node of the corrected algorithm knows."""

    def __init__(self, me: NodeId, members: Iterable[NodeId], options: Options) -> None:
        super().__init__(me, members)
        check_options(options)
        self.options = options
        size = len(self.members)
        self.greatest_stamp = 0
        self.accepted = [0] * size  # V: the newest message of each member in the past of what is delivered
        self.frontier = [0] * size  # W >= V: up to here nothing of the member is to be waited for
        # Beyond V, what nobody waits for: True if it came (and was late), False if only its time is known.
        self.resolved: list[dict[int, bool]] = [{} for _ in range(size)]
        self.holes: list[set[int]] = [set() for _ in range(size)]  # up to V, what never came
        self.ends_us = [0] * size  # the deadline of message V[i] of member i; 0: not known
        self.queue: dict[Key, Entry] = {}  # Q
        self.order: list[tuple[int, int, int]] = []  # Q by (stamp, origin, number)
        # Each waiting message stands under one member that holds it back: nothing else can free it.
        self.held_by: list[list[Key]] = [[] for _ in range(size)]
        self.moved: list[int] = []  # members whose frontier has moved since the queue was looked at
        self.store: list[dict[int, DeadlineMessage]] = [{} for _ in range(size)]  # number -> own or delivered
        self.stored: list[tuple[int, int, int]] = []  # heap of (deadline_us, origin, number)
        self.used_bytes = 0  # payloads in queue and store
        # Heap of (when, what, origin, number); what no longer counts is dropped when it comes to the top.
        self.due: list[tuple[int, int, int, int]] = []
        self.armed_us: int | None = None  # what the host's one timer is set to

    # The queue

    def _enqueue(self, entry: Entry) -> None:
        message = entry.message
        self.queue[message.origin, message.number] = entry
        insort(self.order, (message.stamp, message.origin, message.number))
        self.held_by[entry.blocker].append(message[:2])
        self.used_bytes += len(message.payload)

    def _dequeue(self, entry: Entry) -> None:
        message = entry.message
        del self.queue[message.origin, message.number]
        del self.order[bisect_left(self.order, (message.stamp, message.origin, message.number))]
        self.used_bytes -= len(message.payload)

    def _ready(self, entry: Entry) -> bool:
        """Whether nothing before it is to be waited for; else remembers one member that holds it back."""
        after, frontier = entry.message.after, self.frontier
        if after[entry.blocker] > frontier[entry.blocker]:
            return False
        if all(map(le, after, frontier)):
            return True
        entry.blocker = next(at for at, number in enumerate(after) if number > frontier[at])
        return False

    def _missing(self, after: tuple[int, ...]) -> list[Key]:
        """What a message with that past waits for and has not come, the newest `NAMED_MAX` of each member."""
        frontier, resolved, queue = self.frontier, self.resolved, self.queue
        return [
            (member, number)
            for member, newest in enumerate(after)
            if newest > frontier[member]
            for number in range(max(frontier[member], newest - NAMED_MAX) + 1, newest + 1)
            if number not in resolved[member] and (member, number) not in queue
        ]

    def _is_missing(self, member: int, number: int) -> bool:
        """Whether message `number` of the member may still come and be of use."""
        return (
            number > self.frontier[member]
            and (member, number) not in self.queue
            and number not in self.resolved[member]
        )

    # What a peer may not send

    def _refuse(self, message: DeadlineMessage, now_us: int) -> Reason | None:
        origin, _, stamp, deadline_us, after, left, _ = message
        if not 0 <= origin < len(self.members):
            return Reason.UNKNOWN_ORIGIN
        if not self._is_well_formed(message):
            return Reason.MALFORMED
        if origin == self.my_index:
            return Reason.FORGED
        if after[self.my_index] > self.last:
            return Reason.IMPOSSIBLE  # it follows a message that we never broadcast
        limit_us = max(now_us, 0) + AHEAD_MAX_US
        if stamp > limit_us or deadline_us > limit_us or (left and max(left) > AHEAD_MAX_US):
            return Reason.TOO_FAR_AHEAD
        return None

    def _is_old_copy(self, origin: int, number: int) -> bool:
        """Whether it is a further copy of what has come to its end here."""
        known = 0 <= origin < len(self.accepted) and 0 < number <= self.accepted[origin]
        return known and number not in self.holes[origin]

    def _is_well_formed(self, message: DeadlineMessage) -> bool:
        origin, number, stamp, _, after, left, _ = message
        size = len(self.members)
        if not 0 < number < NUMBER_MAX or stamp < 1 or len(after) != size or after[origin] != number - 1:
            return False
        return (
            min(after) >= 0
            and max(after) < NUMBER_MAX
            and (not left or (len(left) == size and min(left) >= 0))
        )

    # The contract: what waits, what must hold

    @property
    def waiting(self) -> int:
        """The host cannot count: a solicitation carries no message, and its arrival may end a wait."""
        return len(self.queue)

    def explain(self) -> list[Waiting]:
        waiting = []
        for origin, number in sorted(self.queue):
            entry = self.queue[origin, number]
            missing = self._missing(entry.message.after)
            if not missing:  # all that it waits for is here and waits itself: name what holds it back
                missing = [
                    (member, newest)
                    for member, newest in enumerate(entry.message.after)
                    if newest > self.frontier[member]
                ]
            ids = tuple(MessageId(self.members[member], count) for member, count in missing)
            waiting.append(Waiting(MessageId(self.members[origin], number), entry.since_us, ids))
        return waiting

    def check(self) -> None:
        mine = self.my_index
        self._require(self.accepted[mine] == self.frontier[mine] == self.last, "own messages are delivered")
        for member, frontier in enumerate(self.frontier):
            accepted, resolved = self.accepted[member], self.resolved[member]
            self._require(accepted <= frontier, f"member {member}: V <= W")
            self._require(frontier + 1 not in resolved, f"member {member}: W stops at what may still come")
            self._require(not resolved or min(resolved) > accepted, f"member {member}: resolved is beyond V")
            holes = self.holes[member]
            self._require(not holes or max(holes) <= accepted, f"member {member}: holes are up to V")
        self._require(len(self.order) == len(self.queue), "the order of the queue has each message once")
        self._require(self.order == sorted(self.order), "the queue is in stamp order")
        for stamp, origin, number in self.order:
            entry = self.queue[origin, number]
            self._require(entry.message.stamp == stamp, f"{(origin, number)} stands at its stamp")
            self._require(number > self.accepted[origin], f"{(origin, number)} is not stale")
            self._require(not self._ready(entry), f"{(origin, number)} waits for something")
            held = self.held_by[entry.blocker].count((origin, number))
            self._require(held == 1, f"{(origin, number)} stands under what holds it back")
        self._require(not self.moved, "the queue has been looked at")
        in_store = sorted(message[:2] for held in self.store for message in held.values())
        self._require(in_store == sorted(key[1:] for key in self.stored), "the store is indexed by deadline")
        used_bytes = sum(len(entry.message.payload) for entry in self.queue.values())
        used_bytes += sum(len(message.payload) for held in self.store for message in held.values())
        self._require(self.used_bytes == used_bytes <= self.options.buffer_bytes, "the buffer has its limit")

    # The contract: state through plain data

    def save(self) -> State:
        return {
            "last": self.last,
            "lifetime": self.last_lifetime_us,
            "neighbours": list(self.neighbours),
            "stamp": self.greatest_stamp,
            "accepted": list(self.accepted),
            "frontier": list(self.frontier),
            "resolved": [[list(pair) for pair in sorted(each.items())] for each in self.resolved],
            "holes": [sorted(each) for each in self.holes],
            "ends": list(self.ends_us),
            "queue": [
                [*plain_message(entry.message), entry.since_us]
                for entry in (self.queue[key[1:]] for key in self.order)
            ],
            "store": [plain_message(held[number]) for held in self.store for number in sorted(held)],
            "due": [list(each) for each in sorted(self.due)],
            "armed": self.armed_us,
        }

    def restore(self, state: State) -> None:
        self.last = state["last"]
        self.last_lifetime_us = state["lifetime"]
        self.neighbours = tuple(state["neighbours"])
        self.greatest_stamp = state["stamp"]
        self.accepted = list(state["accepted"])
        self.frontier = list(state["frontier"])
        self.resolved = [dict(pairs) for pairs in state["resolved"]]
        self.holes = [set(numbers) for numbers in state["holes"]]
        self.ends_us = list(state["ends"])
        for *plain, since_us in state["queue"]:
            entry = Entry(read_message(plain), since_us)
            self._ready(entry)  # finds what holds it back
            self._enqueue(entry)
        for plain in state["store"]:
            message = read_message(plain)
            self.store[message.origin][message.number] = message
            self.stored.append((message.deadline_us, message.origin, message.number))
            self.used_bytes += len(message.payload)
        heapify(self.stored)
        self.due = [cast("tuple[int, int, int, int]", tuple(each)) for each in state["due"]]
        self.armed_us = state["armed"]

    # The contract: what it costs

    def entries(self) -> int:
        size = len(self.members)
        held = sum(1 + len(entry.message.after) for entry in self.queue.values())
        kept = sum(1 + len(message.after) for store in self.store for message in store.values())
        return 3 * size + held + kept + sum(map(len, self.resolved)) + sum(map(len, self.holes))


def check_options(options: Options) -> None:
    """Refuse what cannot be meant."""
    if not isinstance(options.deadlines, bool):
        raise ParameterError("deadlines", f"{options.deadlines!r} is not a boolean", "Use true or false")
    check_number("lifetime_us", options.lifetime_us, 1, LIFETIME_MAX_US)
    check_number("copies", options.copies, 1, 16)
    check_number("margin_us", options.margin_us, 0, LIFETIME_MAX_US)
    check_number("clock_error_us", options.clock_error_us, 0, LIFETIME_MAX_US)
    check_number("buffer_bytes", options.buffer_bytes, 0, NUMBER_MAX)
