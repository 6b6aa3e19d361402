"""What is behind: streams of which some peer has more, and how the rest is had, or given up.

    R10   whatever is not delivered although it came, or is known to exist, marks its stream behind
    R13   behind for `pull_us` without progress: WANT it from the next peer that can supply it
    R14   nobody who is connected can supply it, and one has cut it off: after `jump_us` ask for its floor,
          and jump

The whole backlog is asked of one peer, the main feed, up to what it had when it was asked; streams are pulled
one by one only where that does not help. That the feed gives something is no help: what is new comes over it
all the time, be there a hole before it or not. Only what brings its goal nearer counts.
"""

from __future__ import annotations

from typing import Any

from whence.core.effects import Effects, Send
from whence.protocols.log.exchange import PULLS_MAX, Exchange
from whence.protocols.log.session import PeerSession
from whence.protocols.log.wire import HAVE, MAIN, PART, WANT, Item, LogPacket


class Behind:
    """One stream that is behind."""

    __slots__ = ("asked", "had", "since_us", "stuck_us", "target")

    def __init__(self, target: int, had: int, now_us: int) -> None:
        self.target = target  # some peer has that much
        self.had = had  # D when progress was last seen
        self.since_us = now_us  # when that was, or when it was last asked for
        self.stuck_us = now_us  # since when no peer can supply it
        self.asked = ""  # the peer that was asked last


class Repair:
    """The streams that are behind, and the main feed."""

    def __init__(self, exchange: Exchange, pull_us: int, jump_us: int) -> None:
        self.exchange = exchange
        self.pull_us = pull_us
        self.jump_us = jump_us
        self.behind: dict[int, Behind] = {}
        self.main: PeerSession | None = None
        self._goal: dict[int, int] = {}  # what the main feed is still to bring: stream -> number
        self._had = 0  # of those streams, when it was last seen to
        self._moved_us = 0  # when that was

    # rule 001 R10: what is refused or dropped marks its stream behind
    def mark(self, stream: int, target: int, now_us: int) -> None:
        """Some peer has `target` of a stream, and this node has less."""
        had = self.exchange.ledger.newest[stream]
        known = self.behind.get(stream)
        if known is None:
            if target > had:
                self.behind[stream] = Behind(target, had, now_us)
        elif target > known.target:
            known.target = target

    def mark_all(self, entry: Item, stride: int, now_us: int) -> None:
        """A message is known and not delivered: it, and what it follows, must be had."""
        self.mark(entry[0], entry[1], now_us)
        after = entry[3]
        for at in range(0, len(after), stride):
            if after[at] != self.exchange.own:
                self.mark(after[at], after[at + 1], now_us)

    def compare(self, session: PeerSession, now_us: int) -> bool:
        """Mark all that the peer has and we have not; returns whether there is anything."""
        newest = self.exchange.ledger.newest
        if session.have == newest:
            return False
        found = False
        for stream, have in enumerate(session.have):
            if have > newest[stream] and stream != self.exchange.own:
                self.mark(stream, have, now_us)
                found = True
        return found

    def name_main(self, session: PeerSession, now_us: int, effects: Effects) -> None:
        """Take the backlog from this peer, unless another gives it; tell it what we have meanwhile."""
        if self.main is not None and self.main is not session and self._goes_on(now_us):
            return
        newest = self.exchange.ledger.newest
        pairs = [(at, newest[at]) for at in self.behind if newest[at]]
        if pairs:
            self.exchange.tell(session, HAVE, pairs, effects, first=(PART,))
        self.main = session
        self._goal = {at: session.have[at] for at in self.behind if session.have[at] > newest[at]}
        self._had, self._moved_us = sum(newest[at] for at in self._goal), now_us
        effects.append(Send((session.peer,), LogPacket(MAIN)))

    def _helps(self, session: PeerSession) -> bool:
        newest = self.exchange.ledger.newest
        return any(session.have[stream] > newest[stream] for stream in self.behind)

    def _goes_on(self, now_us: int) -> bool:
        """Whether the main feed has something left to bring, and has brought some of it lately."""
        newest = self.exchange.ledger.newest
        self._goal = {at: number for at, number in self._goal.items() if number > newest[at]}
        had = sum(newest[at] for at in self._goal)
        if had != self._had:
            self._had, self._moved_us = had, now_us
        return bool(self._goal) and now_us - self._moved_us < self.pull_us

    def ended(self, session: PeerSession, now_us: int, effects: Effects) -> None:
        """A session is over: another must be the main feed."""
        if self.main is session:
            self.main = None
            if self.behind:
                for other in self.exchange.synced():
                    if self._helps(other):
                        self.name_main(other, now_us, effects)
                        return

    def tick(self, now_us: int, effects: Effects) -> bool:
        """Pull what made no progress; returns whether something is still behind."""
        behind = self.behind
        if not behind:
            return False
        newest = self.exchange.ledger.newest
        if self.main is not None and self._goes_on(now_us):
            for stream in [each for each, known in behind.items() if newest[each] >= known.target]:
                del behind[stream]
            return bool(behind)
        self.main = None
        wants: dict[str, list[tuple[int, int]]] = {}
        pulled = 0
        for stream, known in list(behind.items()):
            have = newest[stream]
            if have >= known.target:
                del behind[stream]
            elif have != known.had:
                known.had, known.since_us, known.stuck_us = have, now_us, now_us
            elif now_us - known.since_us >= self.pull_us and pulled < PULLS_MAX:
                pulled += self._pull(stream, known, have, wants, now_us, effects)
        for peer, pairs in wants.items():
            self.exchange.tell(self.exchange.of[peer], WANT, pairs, effects)
        return bool(behind)

    # rule 001 R13: pull from the next peer that can supply it
    # rule 001 R14: where nobody can, and one has cut it off, ask for its floor
    def _pull(
        self,
        stream: int,
        known: Behind,
        have: int,
        wants: dict[str, list[tuple[int, int]]],
        now_us: int,
        effects: Effects,
    ) -> int:
        sessions = [each for each in self.exchange.synced() if each.have[stream] > have]
        suppliers = [each for each in sessions if each.floor.get(stream, 0) <= have]
        if suppliers and self.exchange.drawn is not None:
            return 0  # its turn comes
        if suppliers:
            chosen = next((each for each in suppliers if each.peer > known.asked), suppliers[0])
            known.asked, known.since_us, known.stuck_us = chosen.peer, now_us, now_us
            chosen.stopped.discard(stream)
            wants.setdefault(chosen.peer, []).append((stream, have + 1))
            return 1
        if not sessions:
            if all(each.have[stream] <= have for each in self.exchange.of.values()):
                del self.behind[stream]  # no peer that is here has it; one that comes with it says so
            return 0
        if now_us - known.stuck_us >= self.jump_us and not any(each.asked_floor for each in sessions):
            self.exchange.ask_floor(sessions[0], effects)
            return 1
        return 0

    def hear_have(self, session: PeerSession, flat: tuple[int, ...], now_us: int) -> bool:
        """The peer has more than it said before; returns whether that can be."""
        pairs = self.exchange.mine(session, flat)
        newest = self.exchange.ledger.newest
        for stream, count in pairs or ():
            if count > session.have[stream]:
                session.have[stream] = count
                session.sent[stream] = max(count, session.sent[stream])
                if count > newest[stream] and stream != self.exchange.own:
                    self.mark(stream, count, now_us)
        return pairs is not None

    def hear_floor(self, session: PeerSession, flat: tuple[int, ...], now_us: int) -> dict[int, int] | None:
        """The peer has cut that off; None if that cannot be."""
        pairs = self.exchange.mine(session, flat)
        if pairs is None:
            return None
        for stream, floor in pairs:
            session.floor[stream] = max(session.floor.get(stream, 0), floor)
            if floor > self.exchange.ledger.newest[stream] and stream != self.exchange.own:
                session.have[stream] = max(session.have[stream], floor)
                self.mark(stream, floor, now_us)
        return dict(pairs)

    def must_jump(self, cut: dict[int, int]) -> bool:
        """Whether a floor passes something that no connected peer can supply."""
        newest = self.exchange.ledger.newest
        for stream, floor in cut.items():
            if floor > newest[stream] and not any(
                each.have[stream] > newest[stream] and each.floor.get(stream, 0) <= newest[stream]
                for each in self.exchange.synced()
            ):
                return True
        return False

    def save(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "main": None if self.main is None else self.main.peer,
            "goal": [list(pair) for pair in self._goal.items()],
            "moved": [self._had, self._moved_us],
            "behind": [
                [stream, each.target, each.had, each.since_us, each.stuck_us, each.asked]
                for stream, each in self.behind.items()
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `save` described; the sessions are restored before."""
        self.main = None if state["main"] is None else self.exchange.of[state["main"]]
        self._goal = dict(state["goal"])
        self._had, self._moved_us = state["moved"]
        for stream, target, had, since_us, stuck_us, asked in state["behind"]:
            known = Behind(target, had, since_us)
            known.stuck_us, known.asked = stuck_us, asked
            self.behind[stream] = known
