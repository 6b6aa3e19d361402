"""Messages that wait until a member has admitted this node (R17): they are on the disk before they are sent.

A host hands them to its core when it may speak, in order, and drops each in the step that makes it a message:
with a store both are one write, so a crash leaves it here or in the log, never in both and never in neither.

A ticket is a place in the order and 40 random bits: in a copy of the store it is the same, and no other copy
draws it again. By it a copy knows what another one has sent (R24).
"""

from __future__ import annotations

from secrets import randbits
from typing import NamedTuple

from whence.errors import NoRoomError

POSTS_MAX = 10_000
_RANDOM_BITS = 40  # of a ticket


def tag_of(ticket: int) -> str:
    """What peers are told of a ticket."""
    return f"{ticket:x}"


class Post(NamedTuple):
    """One message that waits."""

    key: bytes | None
    until_us: int | None  # after which it need not be sent
    payload: bytes


class Outbox:
    """What waits, by ticket, the oldest first; and what has changed since the disk was told."""

    def __init__(self, posts: dict[int, Post] | None = None) -> None:
        self.posts = posts or {}
        self.added: list[tuple[int, Post]] = []
        self.dropped: list[int] = []

    def add(self, post: Post) -> int:
        """One more; returns its ticket. One with a key that waits already has that one's."""
        if post.key is not None:
            for ticket, each in self.posts.items():
                if each.key == post.key:
                    return ticket
        if len(self.posts) >= POSTS_MAX:
            raise NoRoomError(
                "broadcast",
                f"{POSTS_MAX} messages wait until a member admits this node",
                "Connect it to a member of its group",
            )
        ticket = ((max(self.posts, default=0) >> _RANDOM_BITS) + 1 << _RANDOM_BITS) + randbits(_RANDOM_BITS)
        self.posts[ticket] = post
        self.added.append((ticket, post))
        return ticket

    def drop(self, ticket: int) -> Post:
        """It has become a message, or has died."""
        self.dropped.append(ticket)
        return self.posts.pop(ticket)

    def take(self) -> tuple[list[tuple[int, Post]], list[int]]:
        """Hand over what has changed."""
        added, dropped, self.added, self.dropped = self.added, self.dropped, [], []
        return added, dropped
