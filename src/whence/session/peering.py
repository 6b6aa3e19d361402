"""The life of a node's links: what follows from a HELLO, from a fault, from a good-bye, from silence.

One `Peering` looks after all links of a node; who is let in is the judgement of its `Admission`. What follows
for the node itself (for its core, its queues, those that wait) is said to its `LinkOwner`, in order, in the
middle of the step. Clocks are given, connections are `Channel`s: there is no I/O here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from whence.core.message import NodeId
from whence.errors import HandshakeError, PeerError, PeerTooSlowError, WhenceError
from whence.session.admission import Accept, Admission, Refuse
from whence.session.handshake import (
    GoneError,
    RefusedForNowError,
    RetiredError,
    error_code,
    for_stranger,
    refused,
)
from whence.session.journal import Journal
from whence.session.limits import Limits
from whence.session.links import Channel, Link, LinkState
from whence.session.wire import (
    BYE_FRAME,
    PING_FRAME,
    ClockNews,
    Hello,
    Known,
    MembersNews,
    Refusal,
    RoomNews,
    error_frame,
)

CUT_OFF_S = 0.5  # without a connection for this long, others are asked for the peer's messages


class LinkOwner(Protocol):
    """The node, as its links see it."""

    def link_up(self, link: Link) -> None:
        """A connection has become `link`, where links do not last."""

    def link_gone(self, link: Link) -> None:
        """The link has ended permanently."""

    def link_renewed(self, link: Link) -> None:
        """The peer is another process than the one that the link knew."""

    def link_restarted(self, link: Link, welcomes: bool) -> None:
        """The numbering of a link begins anew; with `welcomes` its peer begins where this node is."""

    def link_met(self, link: Link) -> None:
        """The peer's session is known, and our HELLO has left."""

    def has_heard_of(self, peer: NodeId) -> bool:
        """Whether others have told this node, when it came back, of an earlier life of a peer."""

    def introduced(self, link: Link, known: Known) -> None:
        """The peer has said where it listens, and where others do."""

    def link_cut_off(self, link: Link) -> None:
        """There has been no connection for a while."""

    def link_back(self, link: Link) -> None:
        """There is a connection again."""

    def retired_by(self, link: Link) -> None:
        """The peer says that this life of the node was retired."""

    def members_told(self, link: Link, news: MembersNews) -> None:
        """The peer tells of members that are out of the group, or of reach."""

    def clock_told(self, link: Link, news: ClockNews) -> None:
        """The peer tells what time it is there."""

    def room_told(self, link: Link, news: RoomNews) -> None:
        """The peer tells of destinations that take no message now."""

    def changed(self) -> None:
        """A link was made, lost or acknowledged."""

    def acknowledged(self) -> None:
        """A peer has acknowledged packets."""

    def wake(self) -> None:
        """Something may be written."""


class Stranger(Protocol):
    """A connection that has not passed its handshake."""

    source: str
    channel: Channel
    has_spoken: bool  # something has come over it


class Peering:
    """All links of one node."""

    def __init__(
        self,
        admission: Admission,
        links: Mapping[NodeId, Link],
        limits: Limits,
        journal: Journal,
        owner: LinkOwner,
        now_s: Callable[[], float],
        draw: Callable[[], int],  # a session or a life that no one can guess
    ) -> None:
        self.admission = admission
        self.identity = admission.identity
        self.limits = limits
        self.owner = owner
        self.now_s = now_s
        self.parting = False  # all is flushed, and every peer receives a good-bye
        self.lost_frames = 0
        self.bytes_received = 0
        # Accepted, and still before the end of their handshake, in order of age.
        self.strangers: dict[Stranger, None] = {}
        self.draw = draw
        self._links = links
        self._journal = journal

    # Strangers

    def admit(self, session: Stranger) -> None:
        """Hold one more unknown connection; if they are too many, the oldest is closed."""
        if len(self.strangers) >= self.admission.strangers_max:
            # The oldest that has said nothing goes: a member speaks at once, and needs a moment for the rest.
            silent = (each for each in self.strangers if not each.has_spoken)
            oldest = next(silent, next(iter(self.strangers)))
            error = HandshakeError("connection", "too many connections have not said HELLO", "Wait")
            self._journal.fault("refused", oldest.source, error)
            del self.strangers[oldest]
            oldest.channel.abort()
        self.strangers[session] = None

    def settled(self, session: Stranger) -> None:
        """A connection has passed its handshake, or ended."""
        self.strangers.pop(session, None)

    def abort_strangers(self) -> None:
        """Close the connections that never became a link."""
        for session in list(self.strangers):
            session.channel.abort()

    # Handshake

    def check(self, hello: Hello) -> None:
        """Refuse a stranger that has no business here, before it is asked for a sign of life."""
        try:
            self.identity.check(hello)
        except PeerError as error:
            self._remember(hello, error)
            raise

    def greeted(
        self, channel: Channel, dialled: Link | None, hello: Hello, reply: Callable[[Link, bool], None]
    ) -> Link | None:
        """Carry out the verdict about a HELLO; returns the link that `channel` now serves, if it does.

        `reply` sends our HELLO, which says whether the peer is another life than we knew. Raises the error
        with which the connection is refused: it ends this connection, and nothing else.
        """
        if self._is_known_by_others(hello):
            self._links[hello.node].forget_peer()  # it is told where this node is
            if dialled is not None:  # our HELLO has said that we do not know it
                channel.close()
                return None
        verdict = self.admission.judge(hello, dialled, self.now_s(), parting=self.parting)
        try:
            if isinstance(verdict, Accept):
                if dialled is not None and verdict.redraws:
                    self._call_again(verdict, channel)
                    return None
                self._accept(verdict, channel, hello, reply if dialled is None else None)
                return verdict.link
            if isinstance(verdict, Refuse):
                raise verdict.error
        except PeerError as error:
            self._remember(hello, error)
            raise
        reply(verdict.link, False)
        channel.close(BYE_FRAME)
        return None

    def _is_known_by_others(self, hello: Hello) -> bool:
        """Whether neither has met the other, and this node has heard of an earlier life of it all the same.

        Then both are later lives, and no node may be left that has met that one.
        """
        link = self._links.get(hello.node)
        if link is None or link.peer_session or hello.returns:
            return False
        has_met = hello.peer_session not in (0, self.identity.session_to(link))
        return not has_met and self.owner.has_heard_of(link.peer)

    def _call_again(self, verdict: Accept, channel: Channel) -> None:
        """Our HELLO has said where we wanted to go on, and we cannot: the next one begins anew."""
        verdict.link.session = self.draw()
        if verdict.welcomes:
            verdict.link.forget_peer()
        channel.close()

    def _remember(self, hello: Hello, error: PeerError) -> None:
        if hello.node in self._links:
            self._links[hello.node].last_error = error

    def _accept(
        self, verdict: Accept, channel: Channel, hello: Hello, reply: Callable[[Link, bool], None] | None
    ) -> None:
        link = verdict.link
        restarts = verdict.renewed and not link.renews
        if verdict.renewed and link.renews:
            self._renew(link)
        if verdict.ends is not None:
            self._end_replaced(verdict.ends)
        self.admission.calls.pop(hello.node, None)  # its answer will find that no one waits for it
        if link.channel is not None:  # the peer has noticed before us that the old one is dead
            self.drop(link, "it was replaced by a newer connection")
        link.peer = hello.node  # a contact's name is not known before
        # It speaks to, or has met, another life of this node than the present one.
        link.knows_other = hello.returns or hello.peer_session not in (0, self.identity.session_to(link))
        if restarts:
            link.restarting += 1
            if verdict.redraws:
                link.session = self.draw()
        link.peer_life = hello.life
        link.attach(channel, hello.session, 0 if verdict.renewed else hello.received)
        if reply is not None:
            reply(link, verdict.welcomes)
        if restarts:
            link.begin()
        link.heard_s = link.wrote_s = self.now_s()
        link.last_error = None
        self._journal.recovered(link.peer)
        self._journal.note("connected", link.peer, f"connected to {link.peer}", logging.DEBUG)
        if not self.admission.lasting:
            self.owner.link_up(link)
        elif self.parting:
            self.say_goodbye(link)
        if restarts:
            self.owner.link_restarted(link, verdict.welcomes)
        self.owner.link_met(link)
        if link.is_cut_off:
            link.is_cut_off = False
            self.owner.link_back(link)
        self.owner.changed()

    def _renew(self, link: Link) -> None:
        self._journal.note("renewed", link.peer, f"{link.peer} has come back", logging.INFO)
        self.owner.link_renewed(link)

    def _end_replaced(self, link: Link) -> None:
        if link.alive:
            self._lose(link, "it has dialled again")
        else:
            self.owner.link_gone(link)

    def refused_by_peer(self, link: Link | None, source: str, refusal: Refusal) -> None:
        """A peer sent an ERROR frame, and will close the connection."""
        error = refused(source, refusal)
        self._note_refusal("refused", source, error)
        if link is None:
            return
        link.last_error = error
        if not self.admission.lasting:
            if self._links.get(link.peer) is link:
                self._lose(link, str(error))
            return
        self._lose_connection(link)
        if isinstance(error, RetiredError):
            self.owner.retired_by(link)

    def _note_refusal(self, kind: str, source: str, error: WhenceError) -> None:
        if not self.admission.lasting and isinstance(error, RefusedForNowError | GoneError):
            # Part of the game: links are opened from both ends.
            self._journal.note("refused", source, str(error), logging.DEBUG)
        else:
            self._journal.fault(kind, source, error)

    # Faults and ends

    def fault(
        self,
        channel: Channel,
        source: str,
        link: Link | None,
        error: PeerError,
        *,
        established: bool,
        certified: bool = False,
    ) -> None:
        """A peer broke the rules: count it, tell it, close. A link that lasts loses nothing, and resumes."""
        self._note_refusal("fault", source, error)
        told = error if established or certified else for_stranger(error)
        channel.close(error_frame(error_code(told), told))
        if link is None:
            return
        link.last_error = error
        if established and self.admission.lasting:
            link.fault(self.now_s(), self.limits.backoff_first_s, self.limits.backoff_max_s)
            self._lose_connection(link)
        elif established:
            link.channel = None  # it closes in order, so that the peer learns why
            self._lose(link, str(error), level=logging.INFO)

    def disconnected(self, link: Link) -> None:
        """The connection of a link has ended by itself."""
        if self.admission.lasting:
            detail = f"lost the connection to {link.peer}"
            self._journal.note("disconnected", link.peer, detail, logging.DEBUG)
            self._lose_connection(link)
        else:
            self._lose(link, "the connection is gone")

    def drop(self, link: Link, why: str) -> None:
        """End the connection of a link here and now; the link resumes on the next one."""
        self._journal.note("disconnected", link.peer, f"closed the connection to {link.peer}: {why}")
        if link.channel is not None:
            link.channel.abort()
        self._lose_connection(link)

    def _lose_connection(self, link: Link) -> None:
        if link.channel is not None:
            link.channel = None
            link.lost_s = self.now_s()
        self.owner.changed()

    def say_goodbye(self, link: Link) -> None:
        """Tell the peer that nothing follows any more; it replies in kind."""
        if link.channel is not None:
            link.flush(1 << 30, may_ack=True, ack_now=True)
            link.channel.write(BYE_FRAME)

    def peer_leaves(self, link: Link, channel: Channel) -> None:
        """The peer has said good-bye, or answered ours."""
        channel.close(b"" if self.parting or self.admission.keeps else BYE_FRAME)
        if not self.admission.lasting:
            link.channel = None
            self._lose(link, "it left the group", left=True)
            return
        self._lose_connection(link)
        if not self.admission.keeps:
            self._end(link, LinkState.LEFT, "it left the group", logging.INFO)

    def give_up(self, link: Link, error: PeerError) -> None:
        """The peer is out of the group as far as this node is concerned; never silently."""
        self._journal.fault("refused" if self.admission.keeps else "given up", link.peer, error)
        if not self.admission.lasting:
            self._lose(link, str(error), level=logging.WARNING)
            return
        if link.channel is not None:
            link.channel.abort()
        self._lose_connection(link)
        link.last_error = error
        if not self.admission.keeps:  # otherwise what is for it stays
            link.forget_peer()  # it comes back where the others are, and is told what it missed
            self._end(link, LinkState.GIVEN_UP, f"given up: {error}", logging.WARNING)

    def retire(self, name: NodeId, life: int) -> bool:
        """A member is out of the group, for all; returns whether that is news."""
        link = self._links.get(name)
        if link is None or self.admission.retired.get(name) == life:
            return False
        if link.peer_life not in (0, life) and life not in (0, link.peer_life) and link.channel is not None:
            return False  # it has come back meanwhile, as another life
        self.admission.retired[name] = life
        if link.channel is not None:
            error = RetiredError(f"node {name!r}", "it was retired", "It comes back as another life")
            link.channel.close(error_frame(error_code(error), error))
        self._lose_connection(link)
        link.forget_peer()
        self._end(link, LinkState.RETIRED, "it was retired", logging.WARNING)
        return True

    def give_up_slow(self, link: Link) -> None:
        """The peer has more unacknowledged than the hard limit allows."""
        messages, queue_bytes = link.out.messages, link.out.unacknowledged_bytes()
        error = PeerTooSlowError(
            f"node {link.peer!r}",
            f"{messages} messages ({queue_bytes} bytes) are unacknowledged, above the hard limit",
            "Make it read faster, or raise queue_messages, queue_bytes or hard_factor",
        )
        self.give_up(link, error)

    def count_on(self, link: Link, counts: bool) -> None:
        """The protocol goes on with the peer, or without it."""
        lost = link.count_on(counts)
        self.lost_frames += lost
        what = "in" if counts else "out of"
        self._journal.note("member", link.peer, f"{link.peer} is {what} the group; {lost} messages are void")
        self.owner.changed()

    def close(self, link: Link, why: str) -> None:
        """End a link that does not last; the owner follows it up itself."""
        link.end(LinkState.GIVEN_UP)
        if link.channel is not None:
            link.channel.close()
            link.channel = None
        self._journal.note("closed", link.peer, why)

    def _end(self, link: Link, state: LinkState, why: str, level: int) -> None:
        link.end(state)
        lost = link.out.clear() if not self.parting else 0
        self.lost_frames += lost
        rest = f"; {lost} messages for it were not acknowledged" if lost else ""
        self._journal.note(state.value, link.peer, why + rest, level)
        if not self.parting:
            self.owner.link_gone(link)
        self.owner.changed()

    def _lose(self, link: Link, why: str, *, left: bool = False, level: int = logging.DEBUG) -> None:
        """A link that does not last is over, and with it what was in flight."""
        if not link.alive:
            return
        link.end(LinkState.LEFT if left else LinkState.GIVEN_UP)
        if link.channel is not None:
            link.channel.abort()
            link.channel = None
        self.lost_frames += link.out.clear()
        self._journal.note("left" if left else "disconnected", link.peer, f"{link.peer}: {why}", level)
        self.owner.link_gone(link)
        self.owner.changed()

    # Now and then

    def look_after(self, link: Link) -> None:
        """A heartbeat where nothing else was said; the end of what has been silent or away for too long."""
        limits, channel, now_s = self.limits, link.channel, self.now_s()
        if channel is None:
            away_s = now_s - link.lost_s
            if link.alive and not link.is_cut_off and away_s > CUT_OFF_S and self.admission.lasting:
                link.is_cut_off = True
                self.owner.link_cut_off(link)
        elif now_s - link.heard_s > limits.silence_s:
            why = f"nothing was heard for {limits.silence_s:g} s"
            if self.admission.lasting:
                self.drop(link, why)
            else:
                self._lose(link, why, level=logging.INFO)
        elif now_s - link.wrote_s >= limits.heartbeat_s and channel.writable:
            channel.write(PING_FRAME)
            link.wrote_s = now_s
