"""Many states one move further at once.

What a node does by itself depends on its own part and on the world's, what a packet does on these and on its
link (`explore/parts.py`). So the rules are asked once for each combination that occurs, on a state of which
nothing else is filled in, and the result is kept as a table entry: new parts, and packets to append to links.
The rest is look-ups by numpy. Moves that concern several nodes (cuts, joins, new lives) go through the
rules, state by state.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whence.explore.machine import DOWN, STOPPED, UP, Machine, Make, SameDigest
from whence.explore.parts import LINK_BITS, WORLD_BITS, Column, Flags, Layout, Rows
from whence.explore.state import ELSEWHERE, NEVER, TICKS, Flaw, Move, NotLocal, Rules, State, WorldPart
from whence.explore.symmetry import NotSymmetric, Renamed, Symmetry
from whence.explore.world import World

Places: TypeAlias = NDArray[np.intp]
_LINK, _NODE = np.uint64(WORLD_BITS), np.uint64(WORLD_BITS + LINK_BITS)


class NotCommuting(Exception):
    """A step of one node changes what another may do: it closes a link."""


class NotStale(Exception):
    """A step of a node makes a packet count that would have done nothing before it."""


class Stale:
    """Packets that are known to do nothing, and the local steps that were compared.

    A packet is stale for a node if its receipt changes nothing: no state, nothing sent, nothing ended.
    Once no fault is left to spend, such a receipt commutes with every other move (a copy of what a node
    has may be taken from its link at any moment), provided that a stale packet stays stale whatever its
    node does meanwhile. That is not assumed: every local step that a search takes is compared (each
    packet that is stale before it has to be stale after it), and the search goes without where that
    fails.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.found: dict[tuple[int, int, int, int], int] = {}  # (local, sender, packet, now_us) -> node
        self.steps: dict[tuple[int, int], int] = {}  # (local, after) -> node
        self._found_at: dict[int, list[tuple[int, int, int]]] = {}  # by local state
        self._after: dict[int, list[int]] = {}

    def is_stale(self, node: int, local: int, sender: int, packet: int, now_us: int) -> bool:
        """Whether the receipt of a packet changes nothing."""
        if (local, sender, packet, now_us) in self.found:
            return True
        if not self._changes_nothing(node, local, sender, packet, now_us):
            return False
        self.add(node, local, sender, packet, now_us)
        return True

    def _changes_nothing(self, node: int, local: int, sender: int, packet: int, now_us: int) -> bool:
        step = self._machine.step(node, local, ("receive", sender, packet, now_us))
        return step == (local, (), (), (), None, None)

    def add(self, node: int, local: int, sender: int, packet: int, now_us: int) -> None:
        """A packet is stale in a local state, so it has to be so in every later one."""
        pending = [local]
        while pending:
            local = pending.pop()
            if (local, sender, packet, now_us) in self.found or self._machine.status(local) != UP:
                continue
            if not self._changes_nothing(node, local, sender, packet, now_us):
                raise NotStale
            self.found[local, sender, packet, now_us] = node
            self._found_at.setdefault(local, []).append((sender, packet, now_us))
            pending += self._after.get(local, ())

    def stepped(self, node: int, local: int, after: int) -> None:
        """A node has gone from one local state to another."""
        if local == after or (local, after) in self.steps:
            return
        self.steps[local, after] = node
        self._after.setdefault(local, []).append(after)
        for sender, packet, now_us in self._found_at.get(local, ()):
            self.add(node, after, sender, packet, now_us)


class Survey(NamedTuple):
    """What can happen in each of some states."""

    own: Places  # state x node: the table entry of what it does by itself
    arrivals: dict[tuple[int, int], tuple[Places, Places]]  # by link: the states with packets; their entries
    finals: Flags


class Successors(NamedTuple):
    """States one move away."""

    parents: Places
    rows: Rows
    bad: int | None  # the first state with a move that is a finding


class How(NamedTuple):
    """How states are told apart and what counts: what all processes of one search must agree upon."""

    symmetry: bool = True
    order: bool = True
    stale: bool = True
    kinds: frozenset[str] | None = None  # the findings that count; None: all
    salt: int = 0  # of the digests


# What a search may meet that its way to search does not allow, and how it begins anew then.
RETRIED: dict[type[Exception], dict[str, Any]] = {
    NotSymmetric: {"symmetry": False},
    NotCommuting: {"order": False, "stale": False},
    NotStale: {"stale": False},
    SameDigest: {},
}


def instead(how: How, error: type[Exception]) -> How:
    """How to search after an exception of `RETRIED`."""
    return how._replace(salt=how.salt + (error is SameDigest), **RETRIED[error])


class Expander:
    """The rules of a world, the parts of its states, and the tables of what was worked out of them."""

    def __init__(self, world: World, how: How, make: Make | None = None) -> None:
        self.rules = rules = Rules(world, make, how.salt)
        symmetry = Symmetry(rules) if how.symmetry and not world.run_on_ticks else None
        self.symmetry = symmetry if symmetry is not None and len(symmetry.names) > 1 else None
        nobody = Renamed(tuple(range(world.nodes)), {}, rules.any_order)
        self.layout = layout = Layout(rules, self.symmetry.names if self.symmetry else [nobody])
        self.order = how.order and world.links == "fifo"
        self.stale = Stale(rules.machine) if how.stale else None
        self._kinds = how.kinds
        self._blank = rules.first()[0]
        nodes = rules.nodes
        self._entries: dict[tuple[int, int] | None, dict[int, int]] = {None: {}}  # by link; None: own moves
        self._entries |= {pair: {} for pair in layout.pairs}
        self._first, self._count = Column(np.int64), Column(np.int64)  # by entry: its outcomes
        self._must, self._next_us = Column(np.bool_), Column(np.int64)
        self._slow: dict[int, list[Move]] = {}  # by entry: moves that turned out to concern others
        self._is_slow = Column(np.bool_)
        self._left = Column(np.uint32)  # by entry: its link without packets that do nothing
        self._after = Column(np.uint32, 3)  # by outcome: the node, the world, the link of the packet
        self._sends = Column(np.uint32, nodes)  # by outcome: what is appended to each link of the node
        self._flawed = Column(np.bool_)
        self._appended: dict[int, int] = {}
        self._ticked: dict[tuple[int, int], int] = {}
        self._judged: dict[tuple[int, int, tuple[int, int]], bool] = {}
        self._nodes_up = Column(np.int8)  # by part: its status
        self._world_flags = Column(np.bool_, 3)  # by part: quiet, ticks, wide
        self._world_next_us = Column(np.int64)
        self._world_shut = Column(np.bool_, len(layout.pairs))
        self._sets = [set(each) for size in range(1, nodes) for each in combinations(range(nodes), size)]

    @property
    def is_reduced(self) -> bool:
        """Whether moves were left out: there may be shorter schedules than those that were met."""
        return self.order or self.drops

    @property
    def drops(self) -> bool:
        """Whether packets that do nothing were taken from their links."""
        return self.stale is not None and bool(self.stale.found)

    def counted(self, found: list[Flaw]) -> list[Flaw]:
        """The findings that count."""
        return found if self._kinds is None else [each for each in found if each.kind in self._kinds]

    def first(self) -> tuple[Rows, list[Flaw]]:
        """The row of the first state, and what is wrong with how it begins."""
        state, flaws = self.rules.first()
        if self.symmetry is not None:
            self.symmetry.begin(state, state)
        return self._without_copies(np.array([self.layout.row(state)], np.uint32)), self.counted(flaws)

    # What can happen

    def survey(self, rows: Rows) -> Survey:
        """Look up what can happen in each state."""
        layout, nodes = self.layout, self.rules.nodes
        worlds = rows[:, 0].astype(np.uint64)
        must = np.zeros(len(rows), np.bool_)
        own = np.empty((len(rows), nodes), np.intp)
        parts = [rows[:, 1 + node].astype(np.uint64) << _NODE for node in range(nodes)]
        for node in range(nodes):
            own[:, node] = self._looked_up(None, parts[node] | worlds)
            must |= self._must.now[own[:, node]]
        arrivals = {}
        for pair, column in layout.link_column.items():
            links = rows[:, column]
            some = np.flatnonzero(links)
            keys = parts[pair[1]][some] | links[some].astype(np.uint64) << _LINK | worlds[some]
            entries = self._looked_up(pair, keys)
            must[some] |= self._must.now[entries]
            arrivals[pair] = (some, entries)
        self._learn_parts()
        if self.rules.world.change:
            must |= self._must_change(rows)
        return Survey(own, arrivals, ~must)

    def _must_change(self, rows: Rows) -> Flags:
        """Where the next change is possible."""
        heads, inverse = np.unique(rows[:, : 1 + self.rules.nodes], axis=0, return_inverse=True)
        idle = [0] * (self.layout.width - heads.shape[1])
        must = []
        for head in heads.tolist():
            moves = self.rules.wide_moves(self.layout.state([*head, *idle]))
            must.append(not all(map(self.rules.is_optional, moves)))
        return np.array(must, np.bool_)[inverse.reshape(-1)]

    def _looked_up(self, link: tuple[int, int] | None, keys: NDArray[np.uint64]) -> Places:
        """The entries of keys, which are worked out where they are new."""
        table = self._entries[link]
        distinct, inverse = np.unique(keys, return_inverse=True)
        found = [table.get(key, -1) for key in distinct.tolist()]
        for at, entry in enumerate(found):
            if entry < 0:
                key = int(distinct[at])
                found[at] = table[key] = self._worked_out(link, key)
        return np.array(found, np.intp)[inverse]

    def _worked_out(self, link: tuple[int, int] | None, key: int) -> int:
        """A new entry: the moves of a node with these parts, and what each of them does."""
        rules = self.rules
        world = key & (1 << WORLD_BITS) - 1
        packets = key >> WORLD_BITS & (1 << LINK_BITS) - 1
        state, node = self._alone(key >> WORLD_BITS + LINK_BITS, world, link, packets)
        moves = rules.own_moves(state, node) if link is None else rules.link_moves(state, node, link[0])
        self._first.append(self._after.size)
        quiet = self.stale is not None and self._is_quiet(world)
        slow = []
        for move in moves:
            try:
                after, flaws = self.apply(state, move)
            except NotLocal:
                if self.order or quiet:
                    raise NotCommuting from None
                slow.append(move)
                continue
            self._add_outcome(after, node, link, flaws)
            if quiet and self.stale is not None:
                self.stale.stepped(node, state.locals[node], after.locals[node])
        self._left.append(
            self._without_stale(state, node, link[0], packets) if quiet and link is not None else packets
        )
        entry = self._must.size
        self._count.append(self._after.size - self._first.now[-1])
        self._must.append(not all(map(rules.is_optional, moves)))
        self._next_us.append(rules.next_timer_us(state, node) if link is None else NEVER)
        self._is_slow.append(bool(slow))
        if slow:
            self._slow[entry] = slow
        return entry

    def _without_stale(self, state: State, node: int, sender: int, packets: int) -> int:
        """The number of a link's packets but for those that do nothing."""
        left = list(self.layout.links.content[packets])
        for _, _, _, packet in self._stale_moves(state, node, sender):
            left.remove(packet)
        return self.layout.links.number(tuple(left))

    def _stale_moves(self, state: State, node: int, sender: int) -> list[Move]:
        """The receipts on a link that change nothing; on a FIFO link, of its first packets."""
        moves: list[Move] = []
        local = state.locals[node]
        if self.stale is None or self.rules.machine.status(local) != UP:
            return moves
        now_us = self.rules.clock_us(state, node)
        for packet in state.flight[sender * self.rules.nodes + node]:
            if self.stale.is_stale(node, local, sender, packet, now_us):
                moves.append(("receive", node, sender, packet))
            elif not self.rules.any_order:
                break
        return moves

    def settled(self, state: State) -> tuple[list[Move], State]:
        """The receipts that change nothing, and the state without their packets."""
        moves: list[Move] = []
        if self.stale is not None and self._is_quiet(self.layout.world_of(state)):
            for sender, node in self.layout.pairs:
                for move in self._stale_moves(state, node, sender):
                    state, _ = self.apply(state, move)
                    moves.append(move)
        return moves, state

    def _without_copies(self, rows: Rows) -> Rows:
        """The same states without packets that do nothing."""
        if self.stale is None:
            return rows
        worlds = rows[:, 0].astype(np.uint64)
        for pair, column in self.layout.link_column.items():
            links = rows[:, column]
            some = np.flatnonzero(links)
            keys = rows[some, 1 + pair[1]].astype(np.uint64) << _NODE | links[some].astype(np.uint64) << _LINK
            entries = self._looked_up(pair, keys | worlds[some])
            rows[some, column] = self._left.now[entries]
        return rows

    def _alone(self, part: int, world: int, link: tuple[int, int] | None, packets: int) -> tuple[State, int]:
        """A state in which there is one node only, and the packets of one link; and that node."""
        count = self.rules.nodes
        links, changed, absent, now_us, left, pasts, dead_us, ids = self.layout.worlds.content[world]
        node, local, said, ended, given_up, known, stable, ahead = self.layout.nodes.content[part]
        flight: list[tuple[int, ...]] = [()] * (count * count)
        if link is not None:
            flight[link[0] * count + link[1]] = self.layout.links.content[packets]

        def only(value: int, other: int = 0) -> tuple[int, ...]:
            return tuple([value if each == node else other for each in range(count)])

        ahead_us = only(ahead) if self.rules.has_jumps else ()
        state = State(
            only(local, ELSEWHERE), tuple(flight), links, only(said), changed, absent, now_us, ahead_us, left,
            pasts, dead_us, ids, only(ended), only(given_up), only(known), only(stable),
        )  # fmt: skip
        return state, node

    def apply(self, state: State, move: Move) -> tuple[State, list[Flaw]]:
        """What a move does; its steps are compared under all names."""
        after, flaws = self.rules.apply(state, move)
        if self.symmetry is not None:
            for taken in self.rules.taken:
                self.symmetry.learn(*taken)
        return after, self.counted(flaws)

    def _add_outcome(self, after: State, node: int, link: tuple[int, int] | None, flaws: list[Flaw]) -> None:
        layout, count = self.layout, self.rules.nodes
        left = 0 if link is None else layout.links.number(after.flight[link[0] * count + link[1]])
        self._after.append((layout.node_of(after, node), layout.world_of(after), left))
        sends = after.flight[node * count : node * count + count]
        self._sends.append([layout.links.number(each) for each in sends])
        self._flawed.append(bool(flaws))

    def _learn_parts(self) -> None:
        rules, layout = self.rules, self.layout
        for part in layout.nodes.content[self._nodes_up.size :]:
            self._nodes_up.append(rules.machine.status(part[1]))
        for world in layout.worlds.content[self._world_next_us.size :]:
            links, _, _, now_us, left, _, dead_us, _ = world
            wide = self._is_wide_world(world)
            self._world_flags.append((not (any(left) or wide), left[TICKS] > 0, wide))
            self._world_next_us.append(rules.next_death_us(now_us, dead_us))
            self._world_shut.append([not links >> (a * rules.nodes + b) & 1 for a, b in layout.pairs])

    def _is_wide_world(self, world: WorldPart) -> bool:
        links, changed, absent, _, left, *_ = world
        state = self._blank._replace(links=links, changed=changed, absent=absent, left=left)
        return self.rules.has_wide_moves(state)

    def _is_quiet(self, number: int) -> bool:
        """Whether there is no fault left to spend, nor a move that concerns several nodes."""
        world = self.layout.worlds.content[number]
        return not any(world[4]) and not self._is_wide_world(world)

    # What need not be looked at

    def needed(self, rows: Rows, survey: Survey) -> Flags:
        """By state and node: whether the moves of these nodes are needed (`explore/search.py` says why)."""
        if not self.order:
            return np.ones((len(rows), self.rules.nodes), np.bool_)
        count, column = self.rules.nodes, self.layout.link_column
        worlds = rows[:, 0]
        quiet = self._world_flags.now[worlds, 0]
        status = self._nodes_up.now[rows[:, 1 : 1 + count]]
        shut = self._world_shut.now[worlds]
        busy = (self._count.now[survey.own] > 0) & (status == UP)
        for (_, to), (some, _) in survey.arrivals.items():
            busy[some, to] |= status[some, to] == UP
        nothing_new = {
            pair: (rows[:, column[pair]] != 0) | shut[:, at] | (status[:, pair[0]] == STOPPED)
            for at, pair in enumerate(self.layout.pairs)
        }
        needed = np.ones((len(rows), count), np.bool_)
        open_ = np.flatnonzero(quiet)
        for chosen in self._sets:
            them = sorted(chosen)
            fits = busy[open_][:, them].any(axis=1) & (status[open_][:, them] != DOWN).all(axis=1)
            for pair, fine in nothing_new.items():
                if pair[1] in chosen and pair[0] not in chosen:
                    fits &= fine[open_]
            settled = open_[fits]
            needed[settled] = [node in chosen for node in range(count)]
            open_ = open_[~fits]
        return needed

    def put_off(self, parents: Places, is_new: Flags, needed: Flags) -> Flags:
        """The nodes that were left out in states with no new successor: a cycle could put them off."""
        stale: Flags = np.logical_not(needed.all(axis=1))
        stale[parents[is_new]] = False
        rest: Flags = ~needed & stale[:, None]
        return rest

    # What happens

    def successors(self, rows: Rows, survey: Survey, needed: Flags) -> Successors:
        """Every state one move away, by moves of the nodes that are `needed`; all of them: by any move."""
        found: list[tuple[Places, Rows]] = []
        whole = np.flatnonzero(needed.all(axis=1))
        for node in range(self.rules.nodes):
            here = np.flatnonzero(needed[:, node])
            bad = self._local(rows, node, here, survey.own[here, node], None, found)
            if bad is not None:
                return Successors(here[:0], rows[:0], bad)
        for pair, (some, entries) in survey.arrivals.items():
            wanted = needed[some, pair[1]]
            bad = self._local(rows, pair[1], some[wanted], entries[wanted], pair, found)
            if bad is not None:
                return Successors(some[:0], rows[:0], bad)
        found.append(self._ticks(rows, survey, whole))
        bad = self._wide(rows, survey, whole, found)
        parents = np.concatenate([each for each, _ in found])
        return Successors(parents, self._without_copies(np.concatenate([each for _, each in found])), bad)

    def _local(
        self,
        rows: Rows,
        node: int,
        here: Places,
        entries: Places,
        link: tuple[int, int] | None,
        found: list[tuple[Places, Rows]],
    ) -> int | None:
        """The outcomes of a table, applied to rows."""
        counts = self._count.now[entries]
        parents = np.repeat(here, counts)
        begins = np.cumsum(counts) - counts
        outcomes = np.repeat(self._first.now[entries] - begins, counts) + np.arange(len(parents))
        flawed = self._flawed.now[outcomes]
        if flawed.any():
            return int(parents[np.argmax(flawed)])
        after, sends = self._after.now[outcomes], self._sends.now[outcomes]
        made = rows[parents]
        made[:, 1 + node], made[:, 0] = after[:, 0], after[:, 1]
        if link is not None:
            made[:, self.layout.link_column[link]] = after[:, 2]
        for to in range(self.rules.nodes):
            some = np.flatnonzero(sends[:, to])
            if len(some):
                column = self.layout.link_column[node, to]
                made[some, column] = self._append(made[some, column], sends[some, to])
        found.append((parents, made))
        return None

    def _append(self, links: NDArray[np.uint32], packets: NDArray[np.uint32]) -> NDArray[np.uint32]:
        parts, known = self.layout.links, self._appended
        keys = links.astype(np.uint64) << np.uint64(32) | packets
        distinct, inverse = np.unique(keys, return_inverse=True)
        result = []
        for key in distinct.tolist():
            after = known.get(key)
            if after is None:
                together = parts.content[key >> 32] + parts.content[key & 0xFFFFFFFF]
                ordered = tuple(sorted(together)) if self.rules.any_order else together
                after = known[key] = parts.number(ordered)
            result.append(after)
        return np.array(result, np.uint32)[inverse]

    def _ticks(self, rows: Rows, survey: Survey, whole: Places) -> tuple[Places, Rows]:
        here = whole[self._world_flags.now[rows[whole, 0], 1]]
        next_us = self._world_next_us.now[rows[here, 0]]
        for node in range(self.rules.nodes):
            next_us = np.minimum(next_us, self._next_us.now[survey.own[here, node]])
        here, next_us = here[next_us < NEVER], next_us[next_us < NEVER]
        made = rows[here]
        made[:, 0] = [
            self._at_time(world, then_us)
            for world, then_us in zip(made[:, 0].tolist(), next_us.tolist(), strict=True)
        ]
        return here, made

    def _at_time(self, world: int, now_us: int) -> int:
        found = self._ticked.get((world, now_us))
        if found is None:
            links, changed, absent, _, left, pasts, dead_us, ids = self.layout.worlds.content[world]
            left = tuple(has - (which == TICKS) for which, has in enumerate(left))
            found = self.layout.worlds.number((links, changed, absent, now_us, left, pasts, dead_us, ids))
            self._ticked[world, now_us] = found
        return found

    def _wide(
        self, rows: Rows, survey: Survey, whole: Places, found: list[tuple[Places, Rows]]
    ) -> int | None:
        """The moves that concern several nodes, state by state."""
        parents: list[int] = []
        made: list[list[int]] = []
        bad = None
        for at, moves in self._wide_moves(rows, survey, whole):
            state = self.layout.state(rows[at].tolist())
            for move in (*moves, *(self.rules.wide_moves(state) if self._is_wide(rows[at, 0]) else ())):
                after, flaws = self.apply(state, move)
                if flaws and bad is None:
                    bad = at
                parents.append(at)
                made.append(self.layout.row(after))
        if parents:
            found.append((np.array(parents, np.intp), np.array(made, np.uint32)))
        return bad

    def _is_wide(self, world: Any) -> bool:
        return bool(self._world_flags.now[world, 2])

    def _wide_moves(self, rows: Rows, survey: Survey, whole: Places) -> Iterator[tuple[int, list[Move]]]:
        """The states with such moves, and those of their nodes' own moves that turned out to be of them."""
        moves: dict[int, list[Move]] = {int(at): [] for at in whole[self._world_flags.now[rows[whole, 0], 2]]}
        if self._slow:
            told = [(whole, survey.own[whole, node]) for node in range(self.rules.nodes)]
            for some, entries in (*told, *survey.arrivals.values()):
                for each in np.flatnonzero(self._is_slow.now[entries]):
                    moves.setdefault(int(some[each]), []).extend(self._slow[int(entries[each])])
        yield from sorted(moves.items())

    # In the end

    def misjudged(self, rows: Rows, finals: Flags) -> int | None:
        """The first final state with which something is wrong."""
        for at in np.flatnonzero(finals).tolist():
            row = rows[at].tolist()
            state: State | None = None
            statuses = self._nodes_up.now[row[1 : 1 + self.rules.nodes]]
            company = self._company(row, statuses)
            for node, part in enumerate(row[1 : 1 + self.rules.nodes]):
                key = (part, row[0], company)
                wrong = self._judged.get(key)
                if wrong is None:
                    state = state or self.layout.state(row)
                    flaws = self.rules.judge_node(state, node, self.rules.owed(state))
                    wrong = self._judged[key] = bool(self.counted(flaws))
                if wrong:
                    return at
            if self.rules.world.run_on_ticks:
                state = state or self.layout.state(row)
                if self.counted(self.rules.judge_later(state)):
                    return at
        return None

    def _company(self, row: list[int], statuses: NDArray[Any]) -> tuple[int, int]:
        """What of the other nodes counts for a node: what they have, who is down, whether timers are set."""
        delivered, timers = 0, False
        locals_ = self.rules.machine.locals
        for part, status in zip(row[1 : 1 + self.rules.nodes], statuses, strict=True):
            if status == UP:
                delivered |= self.layout.nodes.content[part][3]
                timers |= bool(locals_[self.layout.nodes.content[part][1]].timers)
        lowest = 3 if DOWN in statuses else int(statuses.max(initial=0))
        shared = self.rules.shared(self.layout.state(row)) if self.rules.stabilises else -1
        return delivered << 3 | timers << 2 | lowest, shared
