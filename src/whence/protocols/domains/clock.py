"""Matrix clocks of one domain, and the two ways to send them: whole, or as Updates (paper 004, appendix A).

    paper                       here
    n servers, S_i              size, me
    Mat[k, l].value             value[k * size + l]: messages from k to l that this server knows of
    stamp                       the count of (i, j), and the rest of the stamp
    State, Node[j].state        state, sent_state[j]
    Mat[k, l].state, .node      changed_at[...], changed_by[...]

For l = me, `value[k, me]` is the number of messages from k that have been delivered here. The delivery test
is not in our copy of the appendix; it is that of matrix clocks (Raynal, Schiper and Toueg 1991): a message
from i may be delivered at j when its count of (i, j) is mine + 1 and its counts of (k, j), k /= i, are not
above mine.

Three things in the printed Updates algorithm do not work, and are fixed here (tests/paper/test_004_flaws.py
puts each of them back): `Node[j].state` is set before the set is computed, which leaves it empty; `Mat[i,
j].node = j` excludes the entry (i, j), which the receiver needs most (here it travels as `count`, always);
`State` starts at 0, so that what was learned before the first send is never passed on. Deltas need FIFO order
for each pair of servers: the count gives it.

`work` counts the entries of a matrix that are looked at or written by stamping, testing and merging: what the
paper calls the cost of a clock. Refusing bad stamps (`problem`) is ours and not counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from math import isqrt
from typing import ClassVar, TypeAlias

from whence.core.effects import Reason
from whence.core.group import WINDOW_MAX, is_too_far
from whence.core.parameters import choice
from whence.core.protocol import State

Stamp: TypeAlias = tuple[int, ...]

PAPER_ENTRY_BYTES = 4  # what the paper's account spends on an entry, on the wire and on disk


class MatrixClock(ABC):
    """The matrix of one server; a subclass says how it travels."""

    name: ClassVar[str]

    def __init__(self, size: int, me: int) -> None:
        self.size = size
        self.me = me
        self.value = [0] * (size * size)
        self.work = 0
        self.gone: set[int] = set()  # servers that are out of the group: what they sent is not waited for
        self.changes = 0  # steps after which a server that crashes must find this clock as it is now

    def delivered(self, source: int) -> int:
        """How many messages of `source` have been delivered here."""
        return self.value[source * self.size + self.me]

    # rule 004 flaw 2: the entry (i, j) always travels, as the count
    # rule 004 flaw 4: the count gives the order of a pair
    def next_stamp(self, to: int) -> tuple[int, Stamp]:
        """Count a message to `to`, and return its count and the rest of its stamp."""
        entry = self.me * self.size + to
        self.value[entry] += 1
        self.changes += 1
        return self.value[entry], self._stamp(to, entry)

    @abstractmethod
    def _stamp(self, to: int, entry: int) -> Stamp:
        """Return the stamp of a message to `to` but for its count, which stands at `entry`."""

    @abstractmethod
    def problem(self, source: int, count: int, stamp: Stamp) -> Reason | None:
        """Return why no right server sends this stamp now; None if one may."""

    @abstractmethod
    def claims(self, stamp: Stamp) -> Iterable[tuple[int, int]]:
        """Return what a stamp says of this server's own messages: to whom, and how many."""

    @abstractmethod
    def obstacle(self, source: int, count: int, stamp: Stamp) -> tuple[int, int] | None:
        """Return the first (k, c) that the message waits for, the c-th from k; None: deliver it."""

    @abstractmethod
    def merge(self, source: int, count: int, stamp: Stamp) -> None:
        """The message is delivered: know what its sender knew."""

    def learn(self, entry: int, said: int, source: int) -> None:
        """Know what `source` says of one pair of servers."""
        self.value[entry] = max(self.value[entry], said)

    def owe_whole(self, to: int, *, is_cut_off: bool) -> None:
        """The server at `to` may be another life: it has not what earlier messages to it told."""
        return  # where every stamp is whole

    def back(self, to: int) -> None:
        """The server at `to` is the one that it was, and gets all that was sent to it."""
        return

    def cut_for(self, to: int, queued: int) -> int:
        """How many messages to `to` another life of it does not get; the newest `queued` are on their way."""
        return self.value[self.me * self.size + to] - queued

    def grow(self, size: int) -> None:
        """The domain has more places: the old ones keep theirs."""
        old, self.size = self.size, size
        self.value = _widened(self.value, old, size, 0)

    def begin_life(self, base: int) -> None:
        """Count this server's messages on after `base`, wherever they go."""
        for to in range(self.size):
            self.learn(self.me * self.size + to, base, self.me)
        self.changes += 1

    @staticmethod
    @abstractmethod
    def stamp_entries(stamp: Stamp) -> int:
        """Return how many entries of the matrix a stamp carries, its count included."""

    @abstractmethod
    def memory_entries(self) -> int:
        """Return the entries of control information."""

    @property
    def image_bytes(self) -> int:
        """What the persistent image of this clock takes in the paper's account (section 3)."""
        return PAPER_ENTRY_BYTES * len(self.value)

    def save(self) -> State:
        return {"value": list(self.value), "work": self.work, "changes": self.changes}

    def restore(self, state: State) -> None:
        self.value = list(state["value"])
        self.work, self.changes = state["work"], state["changes"]


class FullClock(MatrixClock):
    """The whole matrix in every stamp: its size^2 entries, row by row."""

    name: ClassVar[str] = "full"

    def _stamp(self, to: int, entry: int) -> Stamp:
        self.work += len(self.value)
        return tuple(self.value)

    def _read(self, stamp: Stamp) -> Stamp:
        """A whole matrix of now; one that was stamped before the domain grew lacks the new places."""
        return stamp if len(stamp) == len(self.value) else matrix_of(stamp, self.size)

    def problem(self, source: int, count: int, stamp: Stamp) -> Reason | None:
        size, me, value = self.size, self.me, self.value
        stamp = self._read(stamp)
        if len(stamp) != size * size or stamp[source * size + me] != count or min(stamp) < 0:
            return Reason.MALFORMED
        for to in range(size):
            if stamp[me * size + to] > value[me * size + to]:
                return Reason.IMPOSSIBLE  # it knows of messages that this server has not sent
        if max(stamp) <= WINDOW_MAX:  # not too far from anything: one look for the most common case
            return None
        return Reason.TOO_FAR_AHEAD if any(map(is_too_far, stamp, value)) else None

    def claims(self, stamp: Stamp) -> Iterable[tuple[int, int]]:
        first = self.me * self.size
        return enumerate(self._read(stamp)[first : first + self.size])

    # rule 004 flaw 5: the delivery test
    def obstacle(self, source: int, count: int, stamp: Stamp) -> tuple[int, int] | None:
        if count > self.delivered(source) + 1:
            return source, count - 1
        size, me, value = self.size, self.me, self.value
        stamp = self._read(stamp)
        self.work += size
        for k in range(size):
            if k != source and k not in self.gone and stamp[k * size + me] > value[k * size + me]:
                return k, stamp[k * size + me]
        return None

    def merge(self, source: int, count: int, stamp: Stamp) -> None:
        stamp = self._read(stamp)
        self.work += len(stamp)
        self.changes += 1
        self.value = [said if said > known else known for known, said in zip(self.value, stamp, strict=True)]

    @staticmethod
    def stamp_entries(stamp: Stamp) -> int:
        return len(stamp)

    def memory_entries(self) -> int:
        return len(self.value)


class UpdatesClock(MatrixClock):
    """Only what changed since the last message to the same server; a subclass finds the set.

    A stamp is flat triples (k, l, count), ascending in (k, l), without the entry (i, j) that `count` tells.
    """

    # rule 004 flaw 3: State starts at 1
    def __init__(self, size: int, me: int) -> None:
        super().__init__(size, me)
        self.state = 1  # not 0: what is learned before the first send must be newer than "never sent"
        self.changed_at = [0] * (size * size)
        self.changed_by = [me] * (size * size)
        self.sent_state = [0] * size
        # A set of updates means what it says only after those before it. A server that comes back as another
        # life has none of them, so the first message after it was cut off, or came back, tells all that it
        # follows; of the messages that wait for it, those before that one are of no use to another life.
        self.owed: set[int] = set()  # servers whose next stamp is such a whole one
        self.whole_from: dict[int, int] = {}  # servers that are cut off -> the count of that message, or 0

    # rule 004 flaw 1: compute the set, then note what was sent
    def _stamp(self, to: int, entry: int) -> Stamp:
        self._change(entry, self.me)
        flat: list[int] = []
        updates = self._updates(to, entry)
        if to in self.owed:
            updates = self._with_column(to, updates)
        for index in updates:
            flat += (*divmod(index, self.size), self.value[index])
        self.sent_state[to] = self.state
        self.state += 1
        return tuple(flat)

    def _with_column(self, to: int, updates: list[int]) -> list[int]:
        """A stamp with all that was sent to `to`, as far as it is known here."""
        self.owed.discard(to)
        if self.whole_from.get(to) == 0:
            self.whole_from[to] = self.value[self.me * self.size + to]
        column = {k * self.size + to for k in range(self.size) if k not in (self.me, to)}
        return sorted({*updates, *(entry for entry in column if self.value[entry])})

    def owe_whole(self, to: int, *, is_cut_off: bool) -> None:
        self.owed.add(to)
        if is_cut_off:
            self.whole_from.setdefault(to, 0)
        else:
            self.whole_from.pop(to, None)

    def back(self, to: int) -> None:
        self.whole_from.pop(to, None)

    def begin_life(self, base: int) -> None:
        super().begin_life(base)
        for to in self.whole_from:  # counts jump: what was sent before is of no use to another life of it
            self.whole_from[to] = 0
            self.owed.add(to)

    def cut_for(self, to: int, queued: int) -> int:
        first = self.whole_from.get(to, 0)
        return super().cut_for(to, min(queued, super().cut_for(to, first - 1) if first else 0))

    def grow(self, size: int) -> None:
        old = self.size
        super().grow(size)
        self.changed_at = _widened(self.changed_at, old, size, 0)
        self.changed_by = _widened(self.changed_by, old, size, self.me)
        self.sent_state += [0] * (size - old)

    def _change(self, entry: int, by: int) -> None:
        self.changed_at[entry] = self.state
        self.changed_by[entry] = by

    @abstractmethod
    def _updates(self, to: int, own: int) -> list[int]:
        """Return the entries to send to `to`: newer than the last message there, not learned from there."""

    def problem(self, source: int, count: int, stamp: Stamp) -> Reason | None:
        size, me, value = self.size, self.me, self.value
        if len(stamp) % 3:
            return Reason.MALFORMED
        if is_too_far(count, self.delivered(source)):
            return Reason.TOO_FAR_AHEAD
        previous, own = -1, source * size + me
        for k, to, said in _triples(stamp):
            entry = k * size + to
            if not (0 <= k < size and 0 <= to < size and previous < entry and said > 0 and entry != own):
                return Reason.MALFORMED
            if k == me and said > value[entry]:
                return Reason.IMPOSSIBLE
            if is_too_far(said, value[entry]):
                return Reason.TOO_FAR_AHEAD
            previous = entry
        return None

    def claims(self, stamp: Stamp) -> Iterable[tuple[int, int]]:
        return (
            (to, said)
            for k, to, said in zip(stamp[::3], stamp[1::3], stamp[2::3], strict=True)
            if k == self.me
        )

    # rule 004 flaw 5: the delivery test
    def obstacle(self, source: int, count: int, stamp: Stamp) -> tuple[int, int] | None:
        if count > self.delivered(source) + 1:
            return source, count - 1
        size, me, value = self.size, self.me, self.value
        self.work += 1 + len(stamp) // 3
        for k, to, said in _triples(stamp):
            # What the sender's earlier messages to this server required has been met: they were delivered.
            if to == me and said > value[k * size + me] and k not in self.gone:
                return k, said
        return None

    def merge(self, source: int, count: int, stamp: Stamp) -> None:
        self.work += 1 + len(stamp) // 3
        self.changes += 1
        self.learn(source * self.size + self.me, count, source)
        size, value = self.size, self.value
        for k, to, said in _triples(stamp):
            entry = k * size + to
            if said > value[entry]:
                value[entry] = said
                self._change(entry, source)

    def learn(self, entry: int, said: int, source: int) -> None:
        if said > self.value[entry]:
            self.value[entry] = said
            self._change(entry, source)

    @staticmethod
    def stamp_entries(stamp: Stamp) -> int:
        return 1 + len(stamp) // 3

    def memory_entries(self) -> int:
        return 3 * len(self.value) + self.size

    def save(self) -> State:
        more = {
            "state": self.state,
            "changed_at": list(self.changed_at),
            "changed_by": list(self.changed_by),
            "sent_state": list(self.sent_state),
        }
        if self.owed or self.whole_from:
            more["owed"] = [sorted(self.owed), sorted(self.whole_from.items())]
        return super().save() | more

    def restore(self, state: State) -> None:
        super().restore(state)
        self.state = state["state"]
        self.changed_at = list(state["changed_at"])
        self.changed_by = list(state["changed_by"])
        self.sent_state = list(state["sent_state"])
        owed, whole_from = state.get("owed", [[], []])
        self.owed, self.whole_from = set(owed), dict(whole_from)


class ScannedClock(UpdatesClock):
    """Updates found by scanning the matrix."""

    name: ClassVar[str] = "updates-scan"

    def _updates(self, to: int, own: int) -> list[int]:
        since = self.sent_state[to]
        changed_at, changed_by = self.changed_at, self.changed_by
        self.work += len(changed_at)
        return [
            entry
            for entry in range(len(changed_at))
            if changed_at[entry] > since and changed_by[entry] != to and entry != own
        ]


class ListedClock(UpdatesClock):
    """Updates with a list of entries in the order of their last change: finding the set costs the set."""

    name: ClassVar[str] = "updates"

    def __init__(self, size: int, me: int) -> None:
        super().__init__(size, me)
        self.recent: dict[int, None] = {}  # entries that ever changed, the last one changed last

    def grow(self, size: int) -> None:
        old = self.size
        super().grow(size)
        self.recent = {entry // old * size + entry % old: None for entry in self.recent}

    def _change(self, entry: int, by: int) -> None:
        super()._change(entry, by)
        self.recent.pop(entry, None)
        self.recent[entry] = None

    # rule 004 work: finding the set costs the set
    def _updates(self, to: int, own: int) -> list[int]:
        since = self.sent_state[to]
        found = []
        for entry in reversed(self.recent):
            self.work += 1
            if self.changed_at[entry] <= since:
                break  # so is everything that changed before it
            if self.changed_by[entry] != to and entry != own:
                found.append(entry)
        return sorted(found)

    def memory_entries(self) -> int:
        return super().memory_entries() + len(self.recent)

    def save(self) -> State:
        return super().save() | {"recent": list(self.recent)}

    def restore(self, state: State) -> None:
        super().restore(state)
        self.recent = dict.fromkeys(state["recent"])


def _triples(stamp: Stamp) -> Iterator[tuple[int, int, int]]:
    """The entries of a flat stamp: k, l and how many k has sent to l."""
    each = iter(stamp)
    return zip(each, each, each, strict=True)


def _widened(entries: Sequence[int], old: int, size: int, new: int) -> list[int]:
    """A matrix of `old` rows as one of `size`."""
    rows = (entries[at : at + old] for at in range(0, old * old, old))
    return [each for row in rows for each in (*row, *[new] * (size - old))] + [new] * (size * (size - old))


def matrix_of(stamp: Stamp, size: int) -> Stamp:
    """A whole matrix as one of `size` rows, if it has fewer; otherwise as it is."""
    old = isqrt(len(stamp))
    return tuple(_widened(stamp, old, size, 0)) if 0 < old * old == len(stamp) and old < size else stamp


_KINDS: tuple[type[MatrixClock], ...] = (FullClock, ScannedClock, ListedClock)
CLOCKS = {clock.name: clock for clock in _KINDS}
STAMPS = choice("stamps", "updates", tuple(CLOCKS))  # the parameter
