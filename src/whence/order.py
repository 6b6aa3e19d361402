"""Causal order of rows that name their predecessors: held until those have been given out, for a time.

    order = CausalOrder("emit", remember_us=60_000_000)
    for ending in order.offer(Arrival("answer", now_us, 10_000_000, {"question": None}, row)): ...
    for ending in order.advance(now_us): ...  # no row came, but time passes: at `order.next_deadline_us`

One `CausalOrder` orders the rows of one key. It reads no clock (time is what the rows and the caller say) and
does no I/O: asyncio programs put it before a consumer (docs/order.md), Spark jobs into a stream or a table
(docs/stream.md). It needs neither Spark nor numpy nor pyarrow.

Guarantee: every row that is offered ends exactly once, as one `Ending`, and a row never gets a smaller
position than one of its predecessors, direct or not, as far as those were named by then.

| outcome | the row | position |
|---|---|---|
| in order | came after all its predecessors | yes |
| waited | came before a predecessor, and was held until all had been released | yes |
| predecessor expired | goes without some predecessors; `missing` names them | unless dropped |
| late | came after its deadline, or after a row that depends on it was given out | no |
| duplicate | has the id of a row that is waiting or has ended | no |

The rules, from the Δ-causal order of paper 001 with the repairs F5, F8 and F9 of its `safe` mode:

1. A row may wait until its deadline: its time plus its lifetime. It expires when a later time is seen.
2. A need (a predecessor that is awaited) may have a deadline too, stated by the row that names it. When it
   expires and the predecessor has not arrived, it never will: the rows that wait for it are released. A need
   without a stated deadline gets one: the time of the row that first names it, plus the largest lifetime.
3. Deadlines are handled in order of deadline, however far time jumps: dropping first all that is overdue by
   now would drop rows that an earlier release would have saved. At equal deadlines rows come before needs:
   a row that is released by a deadline would be given out after it.
4. A row at its deadline whose predecessors are neither here nor abandoned is overdue. Policy `emit`: all that
   waits in its past is given out before it, then the row. Policy `drop`: it gets no position.
5. A row that depends on a row without position inherits what that row still needed (F5): m1 -> m2 -> m3,
   where m2 is dropped, must not let m3 overtake m1.

So the endings are a function of the rows in order of time: where batches begin and end makes no difference,
as long as times do not run backwards from batch to batch. State is bounded by time: a row waits for its
lifetime at most, and an id is forgotten `remember_us` after its row's end and deadline.

The words are those of `core.holdback`, which knows no time. `protocols.barrier` in its `safe` mode has these
rules in a protocol core; both are held to the same deliveries by tests/equivalence/test_stream_barrier.py.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Literal, NamedTuple

import msgspec

from whence.errors import MisuseError

__all__ = [
    "DUPLICATE",
    "IN_ORDER",
    "LATE",
    "OUTCOMES",
    "POLICIES",
    "PREDECESSOR_EXPIRED",
    "WAITED",
    "Arrival",
    "CausalOrder",
    "Ending",
    "OnceReader",
    "Policy",
]

Policy = Literal["emit", "drop"]
POLICIES: tuple[Policy, ...] = ("emit", "drop")

IN_ORDER = "in order"
WAITED = "waited"
PREDECESSOR_EXPIRED = "predecessor expired"
LATE = "late"
DUPLICATE = "duplicate"
OUTCOMES = (IN_ORDER, WAITED, PREDECESSOR_EXPIRED, LATE, DUPLICATE)

_ROW, _NEED = 0, 1  # what a deadline is of; at equal times rows come first (rule 3)
_FORGET_EVERY = 4096  # rows between two looks whether to search for ids to forget
_FOREVER_US = 1 << 62


class Arrival(NamedTuple):
    """One row, as far as its order is concerned."""

    id: str | None  # None: no row can depend on it
    at_us: int  # when it arrived: the clock of the order
    lifetime_us: int  # how long after that it may wait
    needs: Mapping[str, int | None]  # predecessor -> its deadline, if the row states it
    payload: Any  # given back with its ending; plain data, if the order is to be saved


class Ending(NamedTuple):
    """How a row ended; `outcome` is one of OUTCOMES."""

    payload: Any
    outcome: str
    missing: list[str]  # predecessors that do not stand before it in the order
    position: int | None  # from 1, without holes; None: not part of the order
    epoch_us: int  # when the positions began: a key of which all was forgotten begins anew


class HeldRow(msgspec.Struct, array_like=True):
    """A row that waits, as it is saved."""

    id: str | None
    deadline_us: int
    needs: dict[str, None]  # what it still waits for, in the order in which it was named: an ordered set
    missing: dict[str, None]  # what it goes without, likewise
    payload: Any


class GoneRow(msgspec.Struct, array_like=True):
    """A row that arrived and got no position, and what it still needed."""

    forget_us: int
    needs: dict[str, int]


class OrderState(msgspec.Struct, array_like=True):
    """All that an order remembers between two batches; the fields in this order are what is saved."""

    now_us: int = 0
    position: int = 0
    arrivals: int = 0
    epoch_us: int | None = None  # the time of the first row
    forgotten_us: int = -1  # beyond this time no id is known
    horizon_us: int = 0
    waiting: dict[int, HeldRow] = {}  # by place of arrival
    needs: dict[str, int] = {}  # awaited and not here -> deadline
    placed: dict[str, int] = {}  # id -> when to forget it
    gone: dict[str, GoneRow] = {}
    missed: dict[str, int] = {}  # abandoned without having been seen -> when to forget it
    jumped: set[str] = set()  # those of `missed` without which a row was given out
    frontier: dict[str, int] = {}  # vector clocks only: origin -> newest number that no row waits for


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(OrderState)


class _WaitingNumbers:
    """The numbers of each origin whose rows wait, for vector clocks: a lost row asks for the one before."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[str, list[int]] = {}  # ascending

    def add(self, id_: str) -> None:
        """A row of this id waits from now on."""
        origin, number = _split(id_)
        insort(self._of.setdefault(origin, []), number)

    def remove(self, id_: str) -> None:
        """The row of this id does not wait any more."""
        origin, number = _split(id_)
        numbers = self._of[origin]
        del numbers[bisect_left(numbers, number)]
        if not numbers:
            del self._of[origin]

    def before(self, id_: str) -> str | None:
        """The newest earlier row of the same origin that waits."""
        origin, number = _split(id_)
        numbers = self._of.get(origin, [])
        at = bisect_left(numbers, number)
        return f"{origin}:{numbers[at - 1]}" if at else None


class IdMemory:
    """The ids whose rows do not wait, and what became of them.

    Time decides, not what happens to be still in memory: results must not depend on when `forget` is called.
    """

    __slots__ = ("_kept", "_placed_since", "_remember_us", "state", "vector")

    def __init__(self, remember_us: int | None, vector: bool, saved: Sequence[bytes]) -> None:
        self._remember_us = remember_us
        self.vector = vector
        self.state = _decoder.decode(saved[-1]) if saved else OrderState()
        if len(saved) > 1:
            self.state.placed = _placed_in(saved)
        self._placed_since: dict[str, int] = {}  # since it was made: what `changes` tells of `placed`
        self._kept = 0  # what the last search for ids to forget has left

    @property
    def remember_us(self) -> int:
        """How long after its end an id is known."""
        return self.state.horizon_us if self._remember_us is None else self._remember_us

    def has_ended(self, id_: str) -> bool:
        """Whether the row arrived and does not wait."""
        state = self.state
        return state.placed.get(id_, -1) >= state.now_us or (id_ in state.gone and self.gone(id_) is not None)

    def gone(self, id_: str) -> GoneRow | None:
        """The row, if it arrived and got no position."""
        gone = self.state.gone.get(id_)
        return gone if gone is not None and gone.forget_us >= self.state.now_us else None

    def is_missed(self, id_: str) -> bool:
        """Whether the row was abandoned without having been seen."""
        return self.state.missed.get(id_, -1) >= self.state.now_us

    def is_passed(self, id_: str) -> bool:
        """Whether the order has gone beyond an id that is neither waiting nor placed nor gone."""
        if self.state.missed.get(id_, -1) >= self.state.now_us:
            return True
        if not self.vector:
            return False
        origin, number = _split(id_)
        return number <= self.state.frontier.get(origin, 0)

    def stands(self, id_: str) -> bool:
        """Whether the row has a position, and nothing else is to be said of it: most predecessors."""
        state = self.state
        return state.placed.get(id_, -1) >= state.now_us and id_ not in state.missed and id_ not in state.gone

    def forget_us(self, deadline_us: int) -> int:
        """When to forget a row that ends now."""
        state = self.state
        us = state.now_us if state.now_us > deadline_us else deadline_us
        us += state.horizon_us if self._remember_us is None else self._remember_us
        state.forgotten_us = max(state.forgotten_us, us)
        return us

    def move_frontier(self, id_: str) -> None:
        """Note that no row needs to wait for this number of its origin any more: vector clocks only."""
        origin, number = _split(id_)
        self.state.frontier[origin] = max(self.state.frontier.get(origin, 0), number)

    def place(self, id_: str, deadline_us: int) -> None:
        """Remember a row that has got a position."""
        self.state.placed[id_] = self._placed_since[id_] = self.forget_us(deadline_us)
        if self.vector:
            self.move_frontier(id_)

    def leave(self, id_: str, deadline_us: int, needs: dict[str, int]) -> None:
        """Remember a row that arrived and got no position."""
        self.state.missed.pop(id_, None)
        self.state.gone[id_] = GoneRow(self.forget_us(deadline_us), needs)
        if self.vector:
            self.move_frontier(id_)

    def miss(self, id_: str, deadline_us: int, waiting: _WaitingNumbers) -> dict[str, int]:
        """Remember that a row did not arrive in time.

        Returns what is known of its past, with deadlines: the newest earlier row of its origin that waits.
        """
        self.state.missed[id_] = self.forget_us(deadline_us)
        if not self.vector:
            return {}
        self.move_frontier(id_)
        earlier = waiting.before(id_)
        return {} if earlier is None else {earlier: deadline_us}

    def _known(self) -> int:
        return len(self.state.placed) + len(self.state.missed) + len(self.state.gone)

    def forget(self) -> None:
        """Free the memory of what is forgotten."""
        state, now_us = self.state, self.state.now_us
        if state.placed:
            state.placed = {id_: us for id_, us in state.placed.items() if us >= now_us}
            self._placed_since = {id_: us for id_, us in self._placed_since.items() if us >= now_us}
        if state.missed:
            state.missed = {id_: us for id_, us in state.missed.items() if us >= now_us}
        if state.jumped:
            state.jumped.intersection_update(state.missed)
        if state.gone:
            state.gone = {id_: gone for id_, gone in state.gone.items() if gone.forget_us >= now_us}
        self._kept = self._known()

    def forget_some(self) -> None:
        """The same, once as much again is known as the last search left: what stays costs a row little."""
        if self._known() > 2 * self._kept:
            self.forget()

    def forget_all(self) -> None:
        """Free all memory, when nothing is known any more: what `forget` would find out id by id."""
        state = self.state
        state.placed, state.missed, state.gone, state.jumped, self._placed_since = {}, {}, {}, set(), {}
        self._kept = 0

    def save(self) -> bytes:
        """Return the state as bytes, to be given to `saved` later."""
        self.forget()
        return _encoder.encode(self.state)

    def changes(self) -> bytes:
        """Return the state without the ids that had a position before it was made."""
        self.forget()
        return _encoder.encode(msgspec.structs.replace(self.state, placed=self._placed_since))


def _placed_in(saved: Sequence[bytes]) -> dict[str, int]:
    """The ids with a position in a saved state and the changes after it."""
    placed: dict[str, int] = {}
    for each in saved:
        placed |= _decoder.decode(each).placed
    return placed


def _split(id_: str) -> tuple[str, int]:
    """The origin and number of a vector clock's event."""
    origin, _, number = id_.rpartition(":")
    return origin, int(number)


def _past_of(place: int, waiting: Mapping[int, HeldRow], place_of: Mapping[str, int]) -> list[int]:
    """The waiting rows before a row, and itself: predecessors first, without recursion."""
    if place in waiting and place_of.keys().isdisjoint(waiting[place].needs):
        return [place]
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


def _check_state(
    state: OrderState,
    place_of: Mapping[str, int],
    waiters: Mapping[str, set[int]],
    without: Mapping[str, set[int]],
) -> None:
    """Assert what must always hold between a state and its indexes."""
    found = {(id_, place) for place, row in state.waiting.items() for id_ in row.missing}
    assert found == {(id_, place) for id_, places in without.items() for place in places}, "a row is lost"
    for place, row in state.waiting.items():
        assert row.needs, "a row without needs waits"
        assert row.deadline_us >= state.now_us, "an overdue row waits"
        for need in row.needs:
            assert place in waiters[need], f"nothing wakes the row that waits for {need}"
            assert (need in place_of) != (need in state.needs), f"{need} is here and awaited"
    for need, places in waiters.items():
        assert places, f"no row waits for {need}"
        assert all(need in state.waiting[place].needs for place in places), f"{need} wakes a stranger"
    assert all(need in waiters for need in state.needs), "a need that no row awaits has a deadline"


class CausalOrder:
    """The order of one key's rows.

    `remember_us`: how long after its end the id of a row is known; None: the largest lifetime.
    `horizon_us`: the largest lifetime that any row may have; it grows when a larger one is seen.
    `vector`: ids are `origin:number` of vector clocks, where number k of an origin stands for all of its
    numbers up to k. `saved`: what `save` returned, or that and what `changes` returned after it, in order.
    """

    # There is one for each key, and many of them live for one row.
    __slots__ = (
        "_deadlines",
        "_memory",
        "_numbers",
        "_out",
        "_place_of",
        "_policy",
        "_ready",
        "_state",
        "_waiters",
        "_without",
    )  # fmt: skip

    def __init__(
        self,
        policy: Policy,
        *,
        remember_us: int | None = None,
        horizon_us: int = 0,
        vector: bool = False,
        saved: bytes | Sequence[bytes] = (),
    ) -> None:
        if policy not in POLICIES:
            raise MisuseError(f"policy {policy!r}", "no such policy", f"Choose from: {', '.join(POLICIES)}")
        self._policy = policy
        if isinstance(saved, bytes):
            saved = [saved] if saved else []
        self._memory = IdMemory(remember_us, vector, saved)
        self._state = state = self._memory.state
        state.horizon_us = max(state.horizon_us, horizon_us)
        self._out: list[Ending] = []
        self._ready: list[tuple[int, int]] = []  # (pass, place) of rows to be placed
        # What follows is derived from the state.
        self._place_of: dict[str, int] = {}
        self._waiters: dict[str, set[int]] = {}
        self._without: dict[str, set[int]] = {}  # id -> the waiting rows that are to go without it
        self._numbers = _WaitingNumbers()
        self._deadlines: list[tuple[int, int, Any]] = []
        if state.waiting:
            self._index(vector)

    def _index(self, vector: bool) -> None:
        """Find again what is derived from the state; only what waits has to be looked at."""
        state = self._state
        for place, row in state.waiting.items():
            for need in row.needs:
                self._waiters.setdefault(need, set()).add(place)
            for id_ in row.missing:
                self._without.setdefault(id_, set()).add(place)
            if row.id is not None:
                self._place_of[row.id] = place
                if vector:
                    self._numbers.add(row.id)
            self._deadlines.append((row.deadline_us, _ROW, place))
        self._deadlines += [(us, _NEED, need) for need, us in state.needs.items()]
        heapify(self._deadlines)

    # What the caller does: offers rows, tells the time, saves.

    def offer(self, row: Arrival) -> list[Ending]:
        """Take a row and return the endings that it brings about, in order.

        The clock moves to the row's time, never back.
        """
        state, memory = self._state, self._memory
        id_, at_us, lifetime_us, _, payload = row
        self._advance(at_us)
        if state.epoch_us is None:
            state.epoch_us, state.position = at_us, 0
        elif self.is_idle:
            state.epoch_us, state.position = at_us, 0
            memory.forget_all()
        state.arrivals += 1
        if state.arrivals % _FORGET_EVERY == 0:
            memory.forget_some()
        state.horizon_us = max(state.horizon_us, lifetime_us)
        if id_ is not None and (id_ in self._place_of or memory.has_ended(id_)):
            self._out.append(self._ending(payload, DUPLICATE))
        elif at_us + lifetime_us < state.now_us or (id_ is not None and memory.is_passed(id_)):
            self._refuse(row)
        else:
            self._take(row)
        return self._taken()

    def advance(self, now_us: int) -> list[Ending]:
        """Note that no row with an earlier time will arrive; returns the endings that this brings about."""
        self._advance(now_us)
        return self._taken()

    def end(self) -> list[Ending]:
        """Note that no row will arrive at all, and return the endings of all that wait."""
        self._expire(_FOREVER_US)
        return self._taken()

    def abandon(self, ids: Iterable[str]) -> None:
        """Note that rows with these ids will never arrive, before any row names them."""
        for each in ids:
            self._memory.miss(each, _FOREVER_US, _WaitingNumbers())

    @property
    def waiting(self) -> int:
        """How many rows wait."""
        return len(self._state.waiting)

    @property
    def next_deadline_us(self) -> int | None:
        """The clock must be moved beyond this time for something to happen; None: nothing waits."""
        heap, state = self._deadlines, self._state
        while heap:
            deadline_us, kind, what = heap[0]
            if what in state.waiting if kind == _ROW else state.needs.get(what) == deadline_us:
                return deadline_us
            heappop(heap)
        return None

    @property
    def now_us(self) -> int:
        """The newest time that was seen."""
        return self._state.now_us

    @property
    def horizon_us(self) -> int:
        """The largest lifetime so far."""
        return self._state.horizon_us

    @property
    def forgotten_us(self) -> int:
        """Beyond this time nothing is known any more, unless a row arrives or waits."""
        return self._state.forgotten_us

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and all is forgotten, so that the state may be deleted.

        Never with vector clocks: what has been seen of each origin is needed for as long as it lives.
        """
        state = self._state
        return state.now_us > state.forgotten_us and not (self._memory.vector or state.waiting)

    def save(self) -> bytes:
        """Return the state as bytes, to be given to `saved` later; payloads must be plain data."""
        return self._memory.save()

    def changes(self) -> bytes:
        """Return what has changed since the order was made of what was `saved`: to be kept after that.

        With many ids that are remembered this is far less than `save`.
        """
        return self._memory.changes()

    @property
    def remembered(self) -> int:
        """How many ids with a position are known."""
        return len(self._state.placed)

    def check(self) -> None:
        """Assert what must always hold."""
        _check_state(self._state, self._place_of, self._waiters, self._without)

    def _ending(
        self, payload: Any, outcome: str, missing: Iterable[str] = (), position: int | None = None
    ) -> Ending:
        return Ending(payload, outcome, list(missing), position, self._state.epoch_us or 0)

    def _taken(self) -> list[Ending]:
        taken, self._out = self._out, []
        return taken

    # Arrival

    def _take(self, row: Arrival) -> None:
        needs, missing = self._sift_row(row)
        held = HeldRow(row.id, row.at_us + row.lifetime_us, {}, dict.fromkeys(missing), row.payload)
        if not needs:
            self._place(held, IN_ORDER)
            self._settle(row.id, -1, 0)
            self._release()
        else:
            self._hold(held, needs)

    def _refuse(self, row: Arrival) -> None:
        """End a row that is too late: the rows that wait for it now wait for what it needed instead."""
        self._out.append(self._ending(row.payload, LATE))
        if row.id is None:
            return
        needs, missing = self._sift_row(row)
        if self._memory.is_missed(row.id) and row.id in self._state.jumped:
            # A row that depends on it was given out: so it went ahead of all that this one needs, too.
            self._state.jumped.update(missing)
            for need in needs:
                self._overtake(need)
            needs = {}
        self._memory.leave(row.id, row.at_us + row.lifetime_us, needs)
        for place in sorted(self._without.get(row.id, ())) if needs else ():
            # It was to go without this one, and now learns what was behind it.
            waiting_id = self._state.waiting[place].id
            self._wait_for(place, {need: us for need, us in needs.items() if need != waiting_id})
        self._settle(row.id, 0, -1, needs)
        self._release()

    def _sift_row(self, row: Arrival) -> tuple[dict[str, int], list[str]]:
        # Where no deadline is stated, the first row that names a predecessor sets it (rule 2). A later one
        # must not extend it: else a lost row would make all its successors wait in vain, each for the next.
        presumed_us, known = row.at_us + self._state.horizon_us, self._state.needs
        stands, id_ = self._memory.stands, row.id
        named = {
            need: known.get(need, presumed_us) if us is None else us
            for need, us in row.needs.items()
            if need != id_ and not stands(need)
        }
        return self._sift(named) if named else ({}, [])

    def _sift(self, named: Mapping[str, int]) -> tuple[dict[str, int], list[str]]:
        """Split needs into those to wait for and those that will never be seen.

        The needs of a row that is gone take its place (rule 5).
        """
        memory, state, now_us = self._memory, self._state, self._state.now_us
        needs: dict[str, int] = {}
        missing: list[str] = []
        todo, seen = list(named.items()), set(named)
        for need, deadline_us in todo:  # it grows while we walk through it
            inherited: Mapping[str, int] | None = None
            if need in self._place_of:
                needs[need] = deadline_us
            elif need in state.gone and (gone := memory.gone(need)) is not None:
                missing.append(need)
                inherited = gone.needs
            elif state.placed.get(need, -1) >= now_us or memory.is_passed(need):
                if memory.is_missed(need):
                    missing.append(need)
            elif deadline_us >= now_us or state.needs.get(need, 0) >= now_us:
                needs[need] = deadline_us
            elif deadline_us + memory.remember_us >= now_us:
                missing.append(need)
                inherited = memory.miss(need, deadline_us, self._numbers)
            # Else it expired so long ago that it may have been placed and forgotten.
            if inherited:
                todo += [each for each in inherited.items() if each[0] not in seen]
                seen.update(inherited)
        return needs, missing

    def _hold(self, row: HeldRow, needs: Mapping[str, int]) -> None:
        state = self._state
        place = state.arrivals
        state.waiting[place] = row
        for id_ in row.missing:
            self._without.setdefault(id_, set()).add(place)
        if row.id is not None:
            self._place_of[row.id] = place
            if self._memory.vector:
                self._numbers.add(row.id)
            state.needs.pop(row.id, None)  # it is here: from now on its own deadline counts
        heappush(self._deadlines, (row.deadline_us, _ROW, place))
        self._wait_for(place, needs)

    def _wait_for(self, place: int, needs: Mapping[str, int]) -> None:
        awaited, waiters, row_needs = self._state.needs, self._waiters, self._state.waiting[place].needs
        for need, deadline_us in needs.items():
            row_needs[need] = None
            if need in waiters:
                waiters[need].add(place)
            else:
                waiters[need] = {place}
            if need not in self._place_of and deadline_us > awaited.get(need, -1):
                awaited[need] = deadline_us
                heappush(self._deadlines, (deadline_us, _NEED, need))

    # Release. Rows that are released together are given out as Code 7 of the paper finds them: in passes over
    # the waiting rows in order of arrival.

    def _place(self, row: HeldRow, outcome: str) -> None:
        """Give a row the next position."""
        state = self._state
        state.position += 1
        if row.missing:
            outcome = PREDECESSOR_EXPIRED
            state.jumped.update(row.missing)
        missing = list(row.missing)
        self._out.append(Ending(row.payload, outcome, missing, state.position, state.epoch_us or 0))
        if row.id is not None:
            self._memory.place(row.id, row.deadline_us)

    def _settle(
        self, id_: str | None, turn: int, place: int, inherited: Mapping[str, int] | None = None
    ) -> None:
        """Let the rows that wait for `id_` go on: it has been placed or, with `inherited`, never will be."""
        if id_ is None:
            return
        self._state.needs.pop(id_, None)
        waiters = self._waiters.pop(id_, None)
        for waiter in sorted(waiters) if waiters else ():
            row = self._state.waiting[waiter]
            del row.needs[id_]
            if inherited is not None:
                needs, missing = self._sift(inherited)
                for each in (id_, *missing):
                    row.missing.setdefault(each)
                    self._without.setdefault(each, set()).add(waiter)
                self._wait_for(waiter, {need: us for need, us in needs.items() if need != row.id})
            if not row.needs:
                heappush(self._ready, (turn if waiter > place else turn + 1, waiter))

    def _release(self) -> None:
        while self._ready:
            turn, place = heappop(self._ready)
            if place in self._state.waiting:  # else it was forced in the meantime
                row = self._let_go(place)
                self._place(row, WAITED)
                self._settle(row.id, turn, place)

    # Deadlines

    def _advance(self, now_us: int) -> None:
        if self._deadlines and self._deadlines[0][0] < now_us:
            self._expire(now_us)
        self._state.now_us = max(self._state.now_us, now_us)

    def _expire(self, until_us: int) -> None:
        """Handle every deadline before `until_us`, in order (rule 3)."""
        heap, state = self._deadlines, self._state
        while heap and heap[0][0] < until_us:
            deadline_us = heap[0][0]
            due: tuple[list[Any], list[Any]] = ([], [])
            while heap and heap[0][0] == deadline_us:
                _, kind, what = heappop(heap)
                if what in state.waiting if kind == _ROW else state.needs.get(what) == deadline_us:
                    due[kind].append(what)
            if not (due[_ROW] or due[_NEED]):
                continue
            if deadline_us >= state.now_us:
                state.now_us = deadline_us + 1
            if self._policy == "drop":
                self._drop(due[_ROW])
            else:
                for place in due[_ROW]:
                    self._force(place)
            for need in due[_NEED]:
                if state.needs.get(need) == deadline_us:
                    self._abandon(need)
            self._release()

    def _abandon(self, need: str) -> None:
        """Note that a need has not arrived in time."""
        deadline_us = self._state.needs.pop(need, self._state.now_us)
        self._settle(need, 0, -1, self._memory.miss(need, deadline_us, self._numbers))

    def _overtake(self, need: str) -> None:
        """End a need as late, with all of its past: a row that stands behind it was given out."""
        place = self._place_of.get(need)
        if place is None:
            self._state.jumped.add(need)
            self._abandon(need)
            return
        for each in _past_of(place, self._state.waiting, self._place_of):
            absent = [id_ for id_ in self._state.waiting[each].needs if id_ not in self._place_of]
            row = self._let_go(each)
            self._out.append(self._ending(row.payload, LATE))
            self._state.jumped.update(row.missing)
            for id_ in absent:
                self._overtake(id_)
            if row.id is not None:
                self._memory.leave(row.id, row.deadline_us, {})
                self._settle(row.id, 0, -1, {})

    def _let_go(self, place: int) -> HeldRow:
        """Remove a row from the waiting ones, and return it."""
        row = self._state.waiting.pop(place)
        for need in row.needs:
            waiters = self._waiters[need]
            waiters.discard(place)
            if not waiters:
                del self._waiters[need]
                self._state.needs.pop(need, None)
        for id_ in row.missing:
            self._without[id_].discard(place)
            if not self._without[id_]:
                del self._without[id_]
        if row.id is not None:
            del self._place_of[row.id]
            if self._memory.vector:
                self._numbers.remove(row.id)
        return row

    def _drop(self, places: list[int]) -> None:
        """Rule 4, `drop`: rows that are overdue at one time go together, before any row is released by it."""
        state, dropped = self._state, []
        for place in places:
            row = state.waiting[place]
            needs = {need: state.needs.get(need, row.deadline_us) for need in row.needs}
            dropped.append((row.id, row.deadline_us, needs))
            missing = row.missing | row.needs
            self._out.append(self._ending(row.payload, PREDECESSOR_EXPIRED, missing))
            self._let_go(place)
        for id_, deadline_us, needs in dropped:
            if id_ is not None:
                self._memory.leave(id_, deadline_us, needs)
        for id_, _, needs in dropped:
            self._settle(id_, 0, -1, needs)

    def _force(self, place: int) -> None:
        """Rule 4, `emit`: give out what waits in the row's past, each after its own past, then the row."""
        for each in _past_of(place, self._state.waiting, self._place_of):
            if each not in self._state.waiting:
                continue
            row = self._let_go(each)
            row.missing |= row.needs
            self._place(row, PREDECESSOR_EXPIRED if row.missing else WAITED)
            for need in row.needs:
                if need in self._place_of:  # it waits: the two depend on each other
                    continue
                if need in self._waiters:
                    self._abandon(need)
                else:  # nobody else asks for it
                    self._memory.miss(need, self._state.now_us, self._numbers)
            self._settle(row.id, 0, -1)


class OnceReader:
    """Tells which records of an ordered topic are new: one that was written again has an id that was seen.

    An id is `batch.partition.number`; within a batch and partition of the stream numbers ascend, and a batch
    that is done again begins at its first. So the newest id of each partition is all that is remembered.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[Any, int], tuple[int, int]] = {}

    def is_new(self, id_: str, place: Any = None) -> bool:
        """Whether a record is read for the first time; `place`: the partition of the topic that it is in."""
        batch, partition, number = map(int, id_.split("."))
        if (batch, number) <= self._newest.get((place, partition), (-1, -1)):
            return False
        self._newest[place, partition] = (batch, number)
        return True
