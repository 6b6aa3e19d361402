"""ODCA: TDCA whose members ask each other for what is missing (paper 002, section 4).

Guarantee and assumptions are those of `tdca.py`; more messages are delivered, for more packets.

`pull` says how a member asks:

    "window"    Figure 8 with its flaws fixed: a node that has to hold a message asks the message's sender,
                once, for all between its own vector and the message's (MVector_rcvr, MVector_upper).
    "exact"     it names the messages that are missing and have not been asked for; `retry_us` later it asks
                another node for what has not come: first the missing message's own origin, which certainly
                has it, then other members in turn, `pulls` times in all. A node that is asked also replies
                with what it has received and not delivered.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappush
from typing import Any, ClassVar

from whence.core.effects import Discard, Effects, Reason, Send
from whence.core.group import NUMBER_MAX
from whence.core.message import NodeId
from whence.core.parameters import Parameters, choice, whole
from whence.core.protocol import State
from whence.protocols.deadline.tdca import (
    LIFETIME_MAX_US,
    RETRY,
    Key,
    QueuedMessage,
    Tdca,
    deadline_parameters,
)
from whence.protocols.deadline.wire import SOLICITATION, DeadlineMessage, DeadlinePacket, reply_packets

WANTS_MAX = 1024  # messages asked for in one packet


class Odca(Tdca):
    """TDCA whose members ask for what is missing."""

    name: ClassVar[str] = "odca"
    keeps: ClassVar[bool] = True
    parameters: ClassVar[Parameters] = Parameters(
        choice("pull", "exact", ("window", "exact")),
        whole("retry_us", 50_000, 0, LIFETIME_MAX_US),
        whole("pulls", 3, 1, 1_000),
        whole("reply_bytes", 16_384, 0, NUMBER_MAX),
        *deadline_parameters(copies=2),
    )

    def __init__(
        self,
        me: NodeId,
        members: Iterable[NodeId],
        **given: Any,
    ) -> None:
        super().__init__(me, members, **given)
        options = self.parameters.read(self.name, given)
        self.pull: str = options["pull"]
        self.retry_us: int = options["retry_us"]
        self.pulls: int = options["pulls"] if self.retry_us else 1
        self.reply_bytes: int = options["reply_bytes"]
        self.asked: list[dict[int, int]] = [{} for _ in self.members]  # number -> how often it was asked for
        self.again: dict[NodeId, list[Key]] = {}  # what is to be asked of whom in this step

    # Asking

    # rule 002 B-RECV: the last line, ask for what is missing
    def _wait(self, entry: QueuedMessage, now_us: int, effects: Effects) -> None:
        """Ask the sender of a message that has to wait for what it follows (B-RECV, last line)."""
        origin, after = entry.message.origin, entry.message.after
        sender = self.members[origin]
        if self.pull == "window":
            if sender in self.neighbours:
                packet = DeadlinePacket(SOLICITATION, (), tuple(self.accepted), after, ())
                effects.append(Send((sender,), packet))
            return
        for member, number in self._missing(after):
            if number not in self.asked[member]:
                self._ask(sender, member, number, 1, now_us)
        self._send_questions(effects)

    def _ask(self, peer: NodeId, member: int, number: int, times: int, now_us: int) -> None:
        self.asked[member][number] = times
        self.again.setdefault(peer, []).append((member, number))
        if times < self.pulls:
            heappush(self.due, (now_us + self.retry_us, RETRY, member, number))

    def _retry(self, member: int, number: int, now_us: int) -> None:
        times = self.asked[member].get(number)
        if times is None:
            return
        if times == 1:
            peer = self.members[member]
        else:  # others in turn, from the missing message's origin on, so that not all ask the same one
            peer = self.members[(member + times - 1) % len(self.members)]
            if peer == self.me:
                peer = self.members[member]
        self._ask(peer, member, number, times + 1, now_us)

    def _send_questions(self, effects: Effects) -> None:
        for peer, keys in self.again.items():
            if peer in self.neighbours:
                for first in range(0, len(keys), WANTS_MAX):
                    wants = tuple(part for key in keys[first : first + WANTS_MAX] for part in key)
                    effects.append(Send((peer,), DeadlinePacket(SOLICITATION, (), (), (), wants)))
        self.again.clear()

    def _pass_time(self, now_us: int, effects: Effects) -> None:
        super()._pass_time(now_us, effects)
        if self.again:
            self._send_questions(effects)

    def _advance(self, member: int, newest: int = 0) -> None:
        super()._advance(member, newest)
        asked = self.asked[member]
        if asked:
            frontier = self.frontier[member]
            for number in [number for number in asked if number <= frontier]:
                del asked[number]

    # Answering (SOLICIT-RECV, with the condition that flaw 2 asks for)

    # rule 002 SOLICIT-RECV: reply to a solicitation
    # rule 002 flaw 2: reply with all between the two vectors
    def _solicited(self, peer: NodeId, packet: DeadlinePacket, now_us: int, effects: Effects) -> None:
        _, _, have, upper, wants = packet
        size = len(self.members)
        if wants and not have and not upper and len(wants) % 2 == 0 and len(wants) <= 2 * WANTS_MAX:
            pairs = iter(wants)
            found = [self._find(member, number) for member, number in zip(pairs, pairs, strict=True)]
        elif len(have) == len(upper) == size and not wants:
            found = [
                message
                for member, held in enumerate(self.store)
                for message in held.values()
                if have[member] < message.number <= upper[member]
            ]
        else:
            effects.append(Discard(None, peer, Reason.MALFORMED))
            return
        answer = [message for message in found if message and not self._is_late(message, now_us)]
        answer.sort(key=_in_stamp_order)
        effects += [Send((peer,), reply) for reply in reply_packets(answer, self.reply_bytes)]

    def _find(self, member: int, number: int) -> DeadlineMessage | None:
        if not 0 <= member < len(self.members):
            return None
        waiting = self.queue.get((member, number))
        return waiting.message if waiting is not None else self.store[member].get(number)

    # The contract

    def check(self) -> None:
        super().check()
        for member, asked in enumerate(self.asked):
            lowest = min(asked, default=self.frontier[member] + 1)
            self._require(
                lowest > self.frontier[member], f"member {member}: what is resolved is not asked for"
            )
        self._require(not self.again, "every question has been sent")

    def save(self) -> State:
        return {
            **super().save(),
            "asked": [[list(pair) for pair in sorted(each.items())] for each in self.asked],
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self.asked = [dict(pairs) for pairs in state["asked"]]

    def entries(self) -> int:
        return super().entries() + sum(map(len, self.asked))


def _in_stamp_order(message: DeadlineMessage) -> tuple[int, int, int]:
    return message.stamp, message.origin, message.number
