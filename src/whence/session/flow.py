"""Back-pressure: when a broadcast must wait, and when acknowledgements are withheld.

Two queues are bounded. What a peer has not acknowledged: `broadcast` waits while any living peer's
queue is above the soft limit, and `send` while that of the link which it takes is. What the application
has not read, or of a durable node is not done with: acknowledgements are withheld while it is too much, so
that a slow reader slows its senders through their own queues; and this node's own broadcasts wait as well,
since they are delivered here too.

Nodes that reply to each other could wait for each other in a circle, so a task that reads the group
is treated with care when it broadcasts. It is never made to wait for its own reading; while too much
is unread here it may pass the soft limit, up to twice as much; and if it is still stuck after a moment,
this node acknowledges what it has received, so that another node in the circle can go on. That is not done
for peers that cannot be reached (they wait for no one), nor without any bound.

Where nodes route, the bounds are per destination and told to those who send (`rooms.py`): acknowledgements
are then withheld only at many times the limit, since they would stop what is for others, too.

Here are the bounds; the tasks that wait are `live/node.py`'s.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from whence.core.message import NodeId
from whence.errors import WhenceError
from whence.session.host import Host
from whence.session.limits import Limits
from whence.session.links import Link
from whence.session.rooms import Rooms


class Way(NamedTuple):
    """Where one message goes: `to` a node, over a link (None: it is for this node itself)."""

    to: NodeId
    link: Link | None


class Flow:
    """The two bounds."""

    def __init__(
        self, host: Host, links: Collection[Link], limits: Limits, rooms: Rooms | None = None
    ) -> None:
        self.rooms = rooms  # where nodes route
        self.room = 0  # broadcasts that may leave before the queues are looked at again
        self.room_bytes = 0
        self.free = 0  # what the fullest queue can take below the soft limit; negative above it
        self.free_bytes = 0
        self.full = False  # too much waits here, unread or held: withhold acknowledgements
        self.release = False  # acknowledge once, although `full`
        self.closed: WhenceError | None = None
        self._host = host
        self._links = links
        self._limits = limits
        self._overfull = False  # too much waits here even though everyone was told
        self._congested = False  # a peer's queue is above the soft limit, or was and has not emptied by half

    @property
    def may_ack(self) -> bool:
        """Acknowledgements may leave.

        Where nodes route, not before this one knows which life it is: what it sets aside until then is in
        none of the queues that say who has room, and whoever had it acknowledged would send more.
        """
        if self.rooms is None:
            return not self.full or self.release
        return not self._host.is_unsure and (not self._overfull or self.release)

    def refresh(self) -> None:
        """Look at the queues. Once per turn of the loop."""
        limits = self._limits
        free, free_bytes = limits.queue_messages, limits.queue_bytes
        for link in self._links:
            if link.alive:
                its, its_bytes = self._free_of(link)
                free, free_bytes = min(free, its), min(free_bytes, its_bytes)
        self.free, self.free_bytes = free, free_bytes
        if free <= 0 or free_bytes <= 0:
            self._congested = True
        elif 2 * free >= limits.queue_messages and 2 * free_bytes >= limits.queue_bytes:
            # Half the queue, so that a waiting broadcaster comes back with a batch and not one by one.
            self._congested = False
        if self.full:
            self.full = not self.half_read()
        else:
            host = self._host
            waiting = len(host.inbox) + host.held + host.in_hand
            self.full = waiting >= limits.unread_messages or host.unread_bytes >= limits.unread_bytes
        self._overfull = self.full and self._is_above(limits.hard_factor)
        if self.rooms is not None:
            self.rooms.refresh(reads_too_little=self.full)
        self.room = free if self.may_go(reading=False) and self.closed is None else 0
        self.room_bytes = free_bytes

    def _is_above(self, times: int) -> bool:
        host, limits = self._host, self._limits
        waiting = len(host.inbox) + host.held + host.in_hand
        return waiting >= times * limits.unread_messages or host.unread_bytes >= times * limits.unread_bytes

    def half_read(self) -> bool:
        """Whether so little waits here that acknowledgements need not be withheld any more."""
        host, limits = self._host, self._limits
        waiting = len(host.inbox) + host.held + host.in_hand
        return 2 * waiting <= limits.unread_messages and 2 * host.unread_bytes <= limits.unread_bytes

    def may_go(self, way: Way | None = None, *, reading: bool, waited: bool = True) -> bool:
        """Whether the next message may leave, of a task that is `reading` the group or not.

        It goes to all, or one `way`: then only that link's queue counts, and a task that has `waited` goes on
        when half of it is empty, so that it comes back with a batch.
        """
        if not self._host.core.ready or self._host.is_unsure:
            return False
        limits = self._limits
        must_read = reading and self.full
        if self.rooms is not None and way is not None:
            if not self.rooms.may_go(way.to, must_read=must_read):
                return False
            if way.link is None:
                return True
        if way is None or way.link is None:
            free, free_bytes, congested = self.free, self.free_bytes, self._congested
        else:
            free, free_bytes = self._free_of(way.link)
            congested = free <= 0 or free_bytes <= 0
            if waited:
                congested = 2 * free < limits.queue_messages or 2 * free_bytes < limits.queue_bytes
        if not self.full or (self.rooms is not None and not reading):
            return not congested
        return reading and free > -limits.queue_messages and free_bytes > -limits.queue_bytes

    def _free_of(self, link: Link) -> tuple[int, int]:
        """What a link's queue can take below the soft limit: messages, bytes."""
        limits, out = self._limits, link.out
        if not link.alive:
            return limits.queue_messages, limits.queue_bytes
        free = limits.queue_messages - out.messages - link.promised
        return free, limits.queue_bytes - out.unacknowledged_bytes()

    def may_release(self) -> bool:
        """Whether to acknowledge for a task that reads and is stuck: its peers perhaps wait for that."""
        limits = self._limits
        bounded = len(self._host.inbox) < limits.unread_messages * limits.hard_factor
        return self.full and bounded and all(link.channel is not None for link in self._crowded())

    def _crowded(self) -> list[Link]:
        """The peers that a broadcast may be waiting for."""
        limits = self._limits
        return [
            link
            for link in self._links
            if link.alive
            and (
                2 * link.out.messages > limits.queue_messages
                or 2 * link.out.unacknowledged_bytes() > limits.queue_bytes
            )
        ]

    def why_waiting(self, way: Way | None = None) -> tuple[str, str]:
        """What a message to all, or over one link, waits for; and what helps."""
        link = None if way is None else way.link
        host = self._host
        if not host.core.ready:
            return "this node has not been let into the group yet", "Wait until a member lets it in"
        if host.is_unsure:
            return "this node has just started, and asks whether it had an earlier life", "Wait a moment"
        rooms = self.rooms
        if rooms is not None and way is not None and not rooms.may_go(way.to, must_read=False):
            return rooms.why(way.to)
        crowded = [each for each in self._crowded() if link is None or each is link]
        if crowded and (not self.full or rooms is not None):
            slow = [
                f"{each.peer} ({'connected' if each.channel else 'not connected'}, "
                f"{each.out.messages} messages unacknowledged)"
                for each in crowded
            ]
            away = [each.peer for each in crowded if each.channel is None]
            fix = f"Start {', '.join(away)} again, or retire it" if away else "Is it being read there?"
            return f"there is no room for {', '.join(slow)}", fix
        here = f"{len(host.inbox)} messages are unread here and {host.held} wait for others"
        if host.in_hand:
            return (
                f"{here}; {host.in_hand} were received and are not done",
                "Say group.done(message) of each, or iterate over the group",
            )
        return here, "Is anyone iterating over the group?"
