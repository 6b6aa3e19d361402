"""The nouns of `ordering.py`: rows that arrive, wait and end, and what is remembered of them.

| outcome | the row | position |
|---|---|---|
| in order | came after all its predecessors | yes |
| waited | came before a predecessor, and was held back until all were there | yes |
| predecessor expired | goes without some predecessors; `missing` names them | unless dropped |
| late | came when its time was over, or after a row that depends on it was given out | no |
| duplicate | has the id of a row that is waiting or has ended | no |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

Policy = Literal["emit", "drop"]
POLICIES: tuple[Policy, ...] = ("emit", "drop")

IN_ORDER = "in order"
WAITED = "waited"
PREDECESSOR_EXPIRED = "predecessor expired"
LATE = "late"
DUPLICATE = "duplicate"
OUTCOMES = (IN_ORDER, WAITED, PREDECESSOR_EXPIRED, LATE, DUPLICATE)


class Arrival(NamedTuple):
    """One row, as far as its order is concerned."""

    id: str | None  # None: nobody can depend on it
    at_us: int
    lifetime_us: int
    needs: Mapping[str, int | None]  # predecessor -> its deadline, if the row tells it
    payload: Any


class Ending(NamedTuple):
    """How a row ended."""

    payload: Any
    outcome: str
    missing: list[str]  # predecessors that do not stand before it in the order
    position: int | None  # from 1, without holes; None: not part of the order
    epoch_us: int  # when the positions began: a key of which all was forgotten begins anew


class Waiting(msgspec.Struct, array_like=True):
    """A row that waits."""

    id: str | None
    deadline_us: int
    needs: list[str]  # what it still waits for, in the order in which it was named
    missing: list[str]
    payload: Any


class Gone(msgspec.Struct, array_like=True):
    """A row that came and got no position, and what it still needed."""

    forget_us: int
    needs: dict[str, int]


class State(msgspec.Struct, array_like=True):
    """All that an order remembers between two batches."""

    now_us: int = 0
    position: int = 0
    arrivals: int = 0
    epoch_us: int | None = None  # the time of the first row
    forgotten_us: int = -1  # beyond this time no id is known
    horizon_us: int = 0
    waiting: dict[int, Waiting] = {}  # by place of arrival
    needs: dict[str, int] = {}  # awaited and not here -> deadline
    placed: dict[str, int] = {}  # id -> when to forget it
    gone: dict[str, Gone] = {}
    missed: dict[str, int] = {}  # given up without having been seen -> when to forget it
    jumped: set[str] = set()  # those of `missed` without which a row was given out
    frontier: dict[str, int] = {}  # vector clocks only: origin -> newest number that nobody waits for


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(State)


class Memory:
    """What is known of ids whose rows do not wait.

    Time decides, not what happens to be still in memory: results must not depend on when `forget` is called.
    """

    def __init__(self, remember_us: int | None, vector: bool, saved: bytes) -> None:
        self._remember_us = remember_us
        self.vector = vector
        self.state = _decoder.decode(saved) if saved else State()

    @property
    def remember_us(self) -> int:
        """How long after its end an id is known."""
        return self.state.horizon_us if self._remember_us is None else self._remember_us

    def is_placed(self, id_: str) -> bool:
        """Whether the row has a position."""
        return self.state.placed.get(id_, -1) >= self.state.now_us

    def gone(self, id_: str) -> Gone | None:
        """The row, if it came and got no position."""
        gone = self.state.gone.get(id_)
        return gone if gone is not None and gone.forget_us >= self.state.now_us else None

    def is_missed(self, id_: str) -> bool:
        """Whether the row was given up without having been seen."""
        return self.state.missed.get(id_, -1) >= self.state.now_us

    def is_passed(self, id_: str) -> bool:
        """Whether the order has gone beyond an id that is neither waiting nor placed nor gone."""
        if self.is_missed(id_):
            return True
        if not self.vector:
            return False
        origin, number = split(id_)
        return number <= self.state.frontier.get(origin, 0)

    def forget_us(self, deadline_us: int) -> int:
        """When to forget a row that ends now."""
        us = max(self.state.now_us, deadline_us) + self.remember_us
        self.state.forgotten_us = max(self.state.forgotten_us, us)
        return us

    def pass_(self, id_: str) -> None:
        """Nobody needs to wait for this number of its origin any more."""
        if self.vector:
            origin, number = split(id_)
            self.state.frontier[origin] = max(self.state.frontier.get(origin, 0), number)

    def place(self, id_: str, deadline_us: int) -> None:
        """Remember a row that has got a position."""
        self.state.placed[id_] = self.forget_us(deadline_us)
        self.pass_(id_)

    def leave(self, id_: str, deadline_us: int, needs: dict[str, int]) -> None:
        """Remember a row that came and got no position."""
        self.state.missed.pop(id_, None)
        self.state.gone[id_] = Gone(self.forget_us(deadline_us), needs)
        self.pass_(id_)

    def miss(self, id_: str, deadline_us: int, waiting: Iterable[str]) -> dict[str, int]:
        """Remember that a row did not come in time.

        What is known of its past, with deadlines: the newest earlier row of its origin that waits.
        """
        self.state.missed[id_] = self.forget_us(deadline_us)
        if not self.vector:
            return {}
        self.pass_(id_)
        origin, number = split(id_)
        earlier = [each[1] for each in map(split, waiting) if each[0] == origin and each[1] < number]
        return {f"{origin}:{max(earlier)}": deadline_us} if earlier else {}

    def forget(self) -> None:
        """Free the memory of what is forgotten."""
        state, now_us = self.state, self.state.now_us
        state.placed = {id_: us for id_, us in state.placed.items() if us >= now_us}
        state.missed = {id_: us for id_, us in state.missed.items() if us >= now_us}
        state.jumped.intersection_update(state.missed)
        state.gone = {id_: gone for id_, gone in state.gone.items() if gone.forget_us >= now_us}

    def save(self) -> bytes:
        """The whole state, to be given to `saved` later."""
        self.forget()
        return _encoder.encode(self.state)


def split(id_: str) -> tuple[str, int]:
    """The origin and number of a vector clock's event."""
    origin, _, number = id_.rpartition(":")
    return origin, int(number)


def past_of(place: int, waiting: Mapping[int, Waiting], place_of: Mapping[str, int]) -> list[int]:
    """The waiting rows before a row, and itself: predecessors first, without recursion."""
    order: list[int] = []
    seen = {place}
    path = [(place, iter(tuple(waiting[place].needs)))] if place in waiting else []
    while path:
        here, needs = path[-1]
        for need in needs:
            before = place_of.get(need)
            if before is not None and before not in seen:
                seen.add(before)
                path.append((before, iter(tuple(waiting[before].needs))))
                break
        else:
            order.append(here)
            path.pop()
    return order


def check_state(state: State, place_of: Mapping[str, int], waiters: Mapping[str, set[int]]) -> None:
    """Assert what must always hold between a state and its indexes."""
    for place, row in state.waiting.items():
        assert row.needs, "a row without needs waits"
        assert row.deadline_us >= state.now_us, "an overdue row waits"
        for need in row.needs:
            assert place in waiters[need], f"nothing wakes the row that waits for {need}"
            assert (need in place_of) != (need in state.needs), f"{need} is here and awaited"
    for need, places in waiters.items():
        assert places, f"nobody waits for {need}"
        assert all(need in state.waiting[place].needs for place in places), f"{need} wakes a stranger"
    assert all(need in waiters for need in state.needs), "a deadline of what nobody awaits"
