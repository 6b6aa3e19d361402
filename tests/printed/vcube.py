"""Algorithms 1 and 2 of paper 000, line by line, with full vectors and sets that are searched.

Without flaws it is the corrected algorithm in the paper's own words: a second opinion on what
`whence.protocols.vcube.core` computes with levels and indices. Each flaw puts one line back as it is printed
(or as it can be misread), for tests/paper/test_000_flaws.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from support.net import Net
from support.vcube_worlds import NAMES
from whence.core.effects import Deliver, Effects
from whence.core.message import Message, MessageId

FLAWS = (
    "line 3 with 1 < s",
    "line 26 with >",
    "vector_max is the highest seen",
    "the whole set first",
    "deliver, then increment",
    "no guard",
)


class Sent(NamedTuple):
    """A message: source, vector clock."""

    s: int
    vc: tuple[int, ...]

    @property
    def id(self) -> MessageId:
        return MessageId(NAMES[self.s], self.vc[self.s])


def first_child(i: int, s: int) -> int:
    return i ^ 1 << (s - 1)


def cluster(i: int, j: int) -> int:
    return (i ^ j).bit_length()


class PrintedVCube:
    """Node i of 2^d nodes, as the paper has it: it sends and delivers in the middle of a procedure."""

    last_lifetime_us = None

    def __init__(self, i: int, d: int, flaws: frozenset[str], host: Callable[[], Net]) -> None:
        assert flaws <= set(FLAWS)
        self.i, self.d, self.flaws, self.host = i, d, flaws, host
        self.origin = NAMES[i]
        self.vector_clock = [0] * 2**d
        self.vector_max = [0] * 2**d
        self.pending: list[Sent] = []  # in order of arrival

    def children(self, r: int, h: int) -> list[int]:
        if self.i == r:
            lowest = 2 if "line 3 with 1 < s" in self.flaws else 1
            return [first_child(self.i, s) for s in range(lowest, h + 1)]
        return self.children(first_child(r, cluster(r, self.i)), cluster(r, self.i) - 1)

    def co_broadcast(self) -> None:
        self.vector_clock[self.i] += 1
        self.vector_max[self.i] = self.vector_clock[self.i]
        m = Sent(self.i, tuple(self.vector_clock))
        for k in self.children(self.i, self.d):
            self.send(k, [m])
        self.deliver(m)

    def co_receive(self, m_set: list[Sent], j: int) -> None:
        if "the whole set first" in self.flaws:
            self.pending += [m for m in m_set if not self.is_known(m)]
        for m in m_set:
            if "the whole set first" not in self.flaws:
                if self.is_known(m) and "no guard" not in self.flaws:
                    continue
                self.pending.append(m)  # 15
            self.advance_max()
            for k in self.children(self.i, cluster(self.i, j) - 1):
                agg = self.check_agg(k, m)
                if agg:
                    self.send(k, agg)  # 21
            self.check_delivery()

    def is_known(self, m: Sent) -> bool:
        return m in self.pending or m.vc[m.s] <= self.vector_clock[m.s]

    def advance_max(self) -> None:
        if "vector_max is the highest seen" in self.flaws:
            for m in self.pending:
                self.vector_max[m.s] = max(self.vector_max[m.s], m.vc[m.s])
            return
        while True:  # 16-17
            fits = [m for m in self.pending if m.vc[m.s] == self.vector_max[m.s] + 1]
            if not fits:
                return
            self.vector_max[fits[0].s] += 1

    def check_agg(self, k: int, m: Sent) -> list[Sent]:
        agg = []
        for other in self.pending:  # 25-27
            if k not in self.children(other.s, self.d):
                continue
            follows = other.vc[m.s] >= m.vc[m.s]
            if "line 26 with >" in self.flaws:
                follows = other.vc[m.s] > m.vc[m.s]
            missing = any(
                needed > self.vector_max[of] and k in self.children(of, self.d)
                for of, needed in enumerate(other.vc)
            )
            if follows and not missing:
                agg.append(other)
        return agg

    def check_delivery(self) -> None:
        while True:  # 29-33
            fits = [m for m in self.pending if self.is_deliverable(m)]
            if not fits:
                return
            m = fits[0]
            if "deliver, then increment" in self.flaws:
                self.deliver(m)
                self.vector_clock[m.s] += 1
                self.pending.remove(m)
            else:
                self.vector_clock[m.s] += 1
                self.pending.remove(m)
                self.deliver(m)

    def is_deliverable(self, m: Sent) -> bool:
        return all(
            needed == self.vector_clock[of] + 1 if of == m.s else needed <= self.vector_clock[of]
            for of, needed in enumerate(m.vc)
        )

    # What a host asks of a core. Nothing is left to carry out when a procedure returns.

    @property
    def last(self) -> int:
        return self.vector_clock[self.i]

    def link_up(self, peer: str, now_us: int) -> Effects:
        return []

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        self.co_broadcast()
        return []

    def receive(self, peer: str, packet: list[Sent], now_us: int) -> Effects:
        self.co_receive(packet, NAMES.index(peer))
        return []

    def message_of(self, packet: list[Sent]) -> MessageId:
        return packet[0].id

    def further_messages_of(self, packet: list[Sent]) -> list[MessageId]:
        return [m.id for m in packet[1:]]

    def send(self, k: int, messages: list[Sent]) -> None:
        self.host().put(NAMES[self.i], NAMES[k], list(messages))

    def deliver(self, m: Sent) -> None:
        message = Message(*m.id, b"")
        self.host().give(NAMES[self.i], message)
        self.host().after(NAMES[self.i], [Deliver(message)])  # the application answers inside the callback


def printed_cube(d: int, flaws: frozenset[str] = frozenset()) -> Net:
    """2^d such nodes."""

    def make(name: str, names: list[str]) -> PrintedVCube:
        return PrintedVCube(names.index(name), d, flaws, lambda: net)

    net = Net(make, NAMES[: 2**d], step_us=1)
    return net
