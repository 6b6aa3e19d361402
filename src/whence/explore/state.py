"""The global state of a world, the moves that are possible in it, and what a move does.

A state is a tuple of numbers: local states, packets in flight, time, budgets, and what the observer must
remember. The observer knows no protocol: it sees who said what when, and who delivered it, and keeps for
each message its causal past, which is what its node had said and delivered, with their pasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from whence.core.message import MessageId, NodeId, Waiting
from whence.explore.machine import DOWN, NUMBER_BITS, UP, Input, Machine, Make, Remarks, Step
from whence.explore.world import FaultBudget, World
from whence.protocols.registry import lookup

Move: TypeAlias = tuple[Any, ...]
NEVER = 1 << 62
ELSEWHERE = 0  # the local state of a node that a move at another node does not look at

FAULTS = FaultBudget.__struct_fields__
(LOSSES, DUPLICATES, CRASHES, AMNESIAS, CUTS, TICKS, CLOCK_STEPS, JOINS, LEAVES, RETIREMENTS) = range(
    len(FAULTS)
)
_HARMLESS = (DUPLICATES, CRASHES, TICKS, CLOCK_STEPS, RETIREMENTS)  # nothing is lost by them

_AT_A_NODE = (("crash", CRASHES), ("jump", CLOCK_STEPS))
OPTIONAL = frozenset(
    ("lose", "double", "crash", "forget", "jump", "cut", "restart", "mend", "tick", "join", "leave", "retire")
)


class State(NamedTuple):
    """One moment of a world."""

    locals: tuple[int, ...]  # by node
    flight: tuple[tuple[int, ...], ...]  # packets by link, sender x nodes + receiver; sorted where any order
    links: int  # which are up, a bit per pair sender x nodes + receiver
    said: tuple[int, ...]  # messages of each node so far
    changed: int  # changes so far
    absent: int  # who is not there yet, a mask
    now_us: int
    ahead_us: tuple[int, ...]  # how far each clock has jumped; () without such steps
    left: tuple[int, ...]  # of the budgets
    pasts: tuple[int, ...]  # causal past of each message, as a bit mask; -1: not said yet
    dead_us: tuple[int, ...]  # from when on each message is dead; () without lifetimes
    ids: tuple[int, ...]  # life and number of each message; 0: not said yet; () without lives
    ended: tuple[int, ...]  # by node: messages delivered, a mask
    given_up: tuple[int, ...]  # by node: messages that expired, a mask
    known: tuple[int, ...]  # by node: causal past of what it says next, a mask
    stable: tuple[int, ...]  # by node: messages that it has called stable, a mask


# The same by what it concerns: one node (itself, local, said, ended, given_up, known, stable, ahead_us), one
# link (packets), or all (links, changed, absent, now_us, left, pasts, dead_us, ids).
NodePart: TypeAlias = tuple[int, int, int, int, int, int, int, int]
LinkPart: TypeAlias = tuple[int, ...]
WorldPart: TypeAlias = tuple[
    int, int, int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]
]


class Flaw(NamedTuple):
    """What is wrong, and in words."""

    kind: str  # causal, duplicate, created, late, invariant, ... , incomplete, unexplained, stuck
    text: str


class Counterexample(NamedTuple):
    """What was found, and the moves that lead to it."""

    finding: Flaw
    moves: tuple[Move, ...]
    shortest: bool  # no schedule with fewer moves has a finding


class NotLocal(Exception):
    """A move that was taken for one node's own concerns another."""


class Rules:
    """The moves of a world and what they do. Holds no state of an exploration but the tables of steps."""

    def __init__(self, world: World, make: Make | None = None, salt: int = 0) -> None:
        self.world = world
        self.machine = Machine(world, make, salt)
        self.info = lookup(world.protocol)
        self.nodes = world.nodes
        self.any_order = world.links == "any"
        index = self.machine.index
        if world.edges is None:
            pairs = [(one, two) for one in range(self.nodes) for two in range(one)]
        else:
            pairs = [(index[one], index[two]) for one, two in world.edges]
        self.edges = {(min(pair), max(pair)) for pair in pairs}
        self.lines = [[at for at, line in enumerate(world.say) if line.node == name] for name in world.names]
        self.mortal = any(line.lifetime_us is not None for line in world.say) or bool(
            world.params.get("lifetime_us")
        )
        # Paper 003: once every copy has come, nothing of a message is kept.
        self.forgets = world.protocol in ("link_memory", "prc")
        self.stabilises = bool(self.info.lives and world.params.get("stability"))
        self.to = [None if line.to is None else index[line.to] for line in world.say]
        # Every node passes on what it delivers to all others: what one has, all will have.
        relays = world.params.get("relay", self.info.parameters.get("relay", self.forgets))
        self.spreads = bool(relays) and self.info.promises.complete and world.edges is None
        budget = world.budget
        self.budget = tuple(getattr(budget, each) for each in FAULTS)
        self.faulty = any(self.budget)
        self.has_jumps = bool(self.budget[CLOCK_STEPS])
        self.slack_us = budget.clock_steps * world.clock_step_us  # how far clocks can be apart
        self.after = [sum(1 << other for other in line.after) for line in world.say]
        # By message: the later ones of its node, to the same node where they go to one.
        self.later = [
            sum(
                1 << other
                for other in range(at + 1, len(world.say))
                if (world.say[other].node, world.say[other].to) == (line.node, line.to)
            )
            for at, line in enumerate(world.say)
        ]
        self.taken: list[tuple[int, int, Input, Step]] = []  # local steps of the last move
        self._begins_as_group = self.stabilises and all(
            self.machine.is_ready(node, local) for node, local in enumerate(self.first()[0].locals)
        )

    def first(self) -> tuple[State, list[Flaw]]:
        """The state in which all links are up (if it is a mesh) and nothing has been said."""
        nodes, machine = self.nodes, self.machine
        self.taken.clear()
        said = len(self.world.say)
        state = State(
            locals=tuple(machine.fresh(node) for node in range(nodes)),
            flight=((),) * (nodes * nodes),
            links=0,
            said=(0,) * nodes,
            changed=0,
            absent=sum(1 << machine.index[name] for name in self.world.late),
            now_us=0,
            ahead_us=(0,) * nodes if self.has_jumps else (),
            left=self.budget,
            pasts=(-1,) * said,
            dead_us=(NEVER,) * said if self.mortal else (),
            ids=(0,) * said if self.info.lives else (),
            ended=(0,) * nodes,
            given_up=(0,) * nodes,
            known=(0,) * nodes,
            stable=(0,) * nodes,
        )
        found: list[Flaw] = []
        pairs = [pair for pair in self.edges if not state.absent & (1 << pair[0] | 1 << pair[1])]
        both = sorted((*pairs, *((two, one) for one, two in pairs)))
        state = state._replace(links=sum(1 << (node * nodes + peer) for node, peer in both))
        for node, peer in both:
            state = self._tell(state, node, ("up", peer), found)
        for _ in range(self.world.settle_ticks):
            state = self._settled(state, found)
            now_us = self._next_us(state)
            state = state if now_us is None else state._replace(now_us=now_us)
        for at, line in enumerate(self.world.say[: self.world.said_first]):
            state = self._settled(self._say(state, machine.index[line.node], at, found), found)
        return (self._settled(state, found) if self.world.settle_ticks else state), found

    def _settled(self, state: State, found: list[Flaw]) -> State:
        """The state once every packet has arrived and every timer that is due has fired, in a fixed order."""
        while True:
            moves = [move for move in self.moves(state) if move[0] in ("receive", "timer")]
            if not moves:
                return state
            state = self._applied(state, moves[0], found)

    # Moves

    def moves(self, state: State) -> list[Move]:
        """Every move that is possible in a state, in a fixed order."""
        moves: list[Move] = []
        for node in range(self.nodes):
            moves += self.own_moves(state, node)
            for sender in range(self.nodes):
                moves += self.link_moves(state, node, sender)
        moves += self.wide_moves(state)
        if state.left[TICKS] and self._next_us(state) is not None:
            moves.append(("tick",))
        return moves

    def own_moves(self, state: State, node: int) -> list[Move]:
        """What a node may do, and suffer, without any other and without a packet."""
        moves: list[Move] = []
        local, left = state.locals[node], state.left
        _, timers, status = self.machine.locals[local]
        if status == DOWN and not self.machine.sessions:
            moves.append(("restart", node))
        if status != UP:
            return moves
        lines, said = self.lines[node], state.said[node]
        if said < len(lines) and self._may_say(state, node, lines[said]):
            moves.append(("say", node, lines[said]))
        if timers:
            moves += [("timer", node, key) for key in self.machine.due(local, self.clock_us(state, node))]
        if self.faulty:
            moves += [
                (verb, node)
                for verb, budget in _AT_A_NODE
                if left[budget] and not (verb == "crash" and self.machine.sessions)
            ]
        return moves

    def link_moves(self, state: State, node: int, sender: int) -> list[Move]:
        """What may happen to the packets on the link from `sender` to `node`."""
        packets, left = state.flight[sender * self.nodes + node], state.left
        if not packets or self.machine.status(state.locals[node]) != UP:
            return []
        moves: list[Move] = []
        for packet in dict.fromkeys(packets) if self.any_order else packets[:1]:
            moves.append(("receive", node, sender, packet))
            if left[LOSSES]:
                moves.append(("lose", node, sender, packet))
            if left[DUPLICATES]:
                moves.append(("double", node, sender, packet))
        return moves

    def wide_moves(self, state: State) -> list[Move]:
        """The moves that concern more than one node, but for the tick."""
        moves: list[Move] = []
        nodes = self.nodes
        if state.changed < len(self.world.change) and self._may_change(state):
            moves.append(("change", state.changed))
        up = [node for node in range(nodes) if self.machine.status(state.locals[node]) == UP]
        here = [node for node in up if not state.absent >> node & 1]
        left = state.left
        if self.machine.sessions and self.budget[CRASHES]:
            down = [node for node in range(nodes) if self.machine.status(state.locals[node]) == DOWN]
            moves += [("restart", node) for node in down]
            moves += [("crash", node) for node in here if left[CRASHES]]
        if left[AMNESIAS]:
            moves += [("forget", node) for node in here]
        if left[JOINS] and any(not state.absent >> node & 1 for node in up):
            moves += [("join", node) for node in up if state.absent >> node & 1]
        if left[LEAVES]:
            moves += [("leave", node) for node in here]
        if left[RETIREMENTS]:
            moves += [
                ("retire", node, other)
                for node in here
                for other in range(nodes)
                if self._allows(state, node, ("command", "retire", (self.machine.names[other],)))
            ]
        if self.budget[CUTS]:
            moves += self._cuts_and_mends(state)
        return moves

    def has_wide_moves(self, state: State) -> bool:
        """Whether there may be such moves; looks at what concerns all only."""
        left = state.left
        return (
            state.changed < len(self.world.change)
            or any(left[which] for which in (AMNESIAS, JOINS, LEAVES, RETIREMENTS))
            or bool(self.machine.sessions and self.budget[CRASHES])
            or (bool(self.budget[CUTS]) and any(True for _ in self._cuts_and_mends(state)))
        )

    def _cuts_and_mends(self, state: State) -> Iterator[Move]:
        for one in range(self.nodes):
            for other in range(one + 1, self.nodes):
                up = state.links >> (one * self.nodes + other) & state.links >> (other * self.nodes + one) & 1
                if up and state.left[CUTS]:
                    yield ("cut", one, other)
                elif not up and (one, other) in self.edges and self._both_are_up(state, one, other):
                    yield ("mend", one, other)

    def _both_are_up(self, state: State, one: int, other: int) -> bool:
        there = not state.absent & (1 << one | 1 << other)
        return there and all(self.machine.status(state.locals[node]) == UP for node in (one, other))

    def is_optional(self, move: Move) -> bool:
        """Whether a schedule may end without it: faults, and the ends of faults that need not come."""
        return move[0] in OPTIONAL

    def _may_say(self, state: State, node: int, at: int) -> bool:
        after = self.after[at]
        if state.ended[node] & after != after:
            return False
        return self._allows(state, node, ("say", at))

    def _allows(self, state: State, node: int, what: Input) -> bool:
        """Whether the host may do that: what a core refuses as misuse, it does not."""
        return self.machine.allows(node, state.locals[node], (*what, self.clock_us(state, node)))

    def _may_change(self, state: State) -> bool:
        change, index = self.world.change[state.changed], self.machine.index
        if change.command is not None:
            name, verb, *names = change.command
            return self._allows(state, index[name], ("command", verb, tuple(names)))
        if change.link is not None:
            one, other = (index[name] for name in change.link)
            return self._allows(state, one, ("up", other)) and self._allows(state, other, ("up", one))
        return True

    def clock_us(self, state: State, node: int) -> int:
        """What a node's clock shows."""
        return state.now_us + (state.ahead_us[node] if state.ahead_us else 0)

    def _next_us(self, state: State) -> int | None:
        """The next moment for which any node has set a timer, in true time."""
        found = [self.next_timer_us(state, node) for node in range(self.nodes)]
        next_us = min(*found, self.next_death_us(state.now_us, state.dead_us))
        return next_us if next_us < NEVER else None

    def next_timer_us(self, state: State, node: int) -> int:
        """The next moment for which a node has set a timer, in true time; NEVER: none."""
        ahead_us = state.ahead_us[node] if state.ahead_us else 0
        at_us = self.machine.next_timer_us(state.locals[node], state.now_us + ahead_us)
        return NEVER if at_us is None else at_us - ahead_us

    def next_death_us(self, now_us: int, dead_us: tuple[int, ...]) -> int:
        """The next moment at which a message is dead; NEVER: none."""
        return min((each for each in dead_us if each > now_us), default=NEVER)

    # What a move does

    def apply(self, state: State, move: Move) -> tuple[State, list[Flaw]]:
        """The state after a move, and what the observer and the core's own checks have to say."""
        found: list[Flaw] = []
        self.taken.clear()
        return self._applied(state, move, found), found

    def _applied(self, state: State, move: Move, found: list[Flaw]) -> State:  # noqa: PLR0911
        verb = move[0]
        if verb == "say":
            return self._say(state, move[1], move[2], found)
        if verb in ("receive", "lose", "double"):
            return self._arrive(state, move, found)
        if verb == "timer":
            return self._tell(state, move[1], ("timer", move[2]), found)
        if verb == "crash":
            return self._crash(self._spent(state, CRASHES), move[1], found)
        if verb == "restart":
            return self._restart(state, move[1], found)
        if verb == "forget":
            return self._forget(self._spent(state, AMNESIAS), move[1], found)
        if verb == "jump":
            ahead = list(state.ahead_us)
            ahead[move[1]] += self.world.clock_step_us
            return self._spent(state, CLOCK_STEPS)._replace(ahead_us=tuple(ahead))
        if verb == "tick":
            now_us = self._next_us(state)
            assert now_us is not None
            return self._spent(state, TICKS)._replace(now_us=now_us)
        if verb == "change":
            return self._change(state, move[1], found)
        return self._come_or_go(state, move, found)

    def _come_or_go(self, state: State, move: Move, found: list[Flaw]) -> State:
        """A link or a node comes or goes, or is said to be gone."""
        verb = move[0]
        if verb == "cut":
            return self._cut(self._spent(state, CUTS), move[1], move[2], (move[1], move[2]), found)
        if verb == "mend":
            return self._link(state, move[1], move[2], found)
        if verb == "join":
            return self._join(self._spent(state, JOINS), move[1], found)
        if verb == "leave":
            return self._leave(self._spent(state, LEAVES), move[1], found)
        what = ("command", "retire", (self.machine.names[move[2]],))
        return self._tell(self._spent(state, RETIREMENTS), move[1], what, found)

    def _arrive(self, state: State, move: Move, found: list[Flaw]) -> State:
        """A packet arrives and is gone from its link (receive), or one of both alone (double, lose)."""
        verb, node, sender, packet = move
        flight = list(state.flight)
        if verb != "double":
            link = sender * self.nodes + node
            packets = flight[link]
            at = packets.index(packet)
            flight[link] = packets[:at] + packets[at + 1 :]
        if verb != "receive":
            state = self._spent(state, LOSSES if verb == "lose" else DUPLICATES)
        if verb == "lose":
            return state._replace(flight=tuple(flight))
        return self._tell(state, node, ("receive", sender, packet), found, flight)

    def _change(self, state: State, at: int, found: list[Flaw]) -> State:
        change, index = self.world.change[at], self.machine.index
        state = state._replace(changed=at + 1)
        if change.link is not None:
            one, other = (index[name] for name in change.link)
            return self._link(state, one, other, found)
        if change.cut is not None:
            one, other = (index[name] for name in change.cut)
            return self._cut(state, one, other, (one, other), found)
        if change.command is not None:
            name, verb, *names = change.command
            return self._tell(state, index[name], ("command", verb, tuple(names)), found)
        if change.join is not None:
            return self._join(state, index[change.join], found)
        if change.leave is not None:
            return self._leave(state, index[change.leave], found)
        assert change.restart is not None
        return self._restart(self._crash(state, index[change.restart], found), index[change.restart], found)

    def _join(self, state: State, node: int, found: list[Flaw]) -> State:
        """A node gets its links to those who are there; in an overlay one link, to the first of them."""
        state = state._replace(absent=state.absent & ~(1 << node))
        up = [each for each in range(self.nodes) if self.machine.status(state.locals[each]) == UP]
        peers = [
            peer
            for peer in up
            if (min(node, peer), max(node, peer)) in self.edges and not state.absent >> peer & 1
        ]
        for peer in peers[:1] if self.machine.is_overlay else peers:
            state = self._link(state, node, peer, found)
            if self.machine.is_overlay:
                what = ("command", "join", (self.machine.names[peer],))
                state = self._tell(state, node, what, found)
        return state

    def _leave(self, state: State, node: int, found: list[Flaw]) -> State:
        """A node leaves: it says so, or it is gone and the others are told that its links are."""
        if self.machine.renews:
            return self._tell(state, node, ("leave",), found)
        for peer in self._peers(state, node):
            state = self._cut(state, node, peer, (peer,), found)
        return self._tell(state, node, ("stop",), found)

    def _peers(self, state: State, node: int) -> list[int]:
        return [peer for peer in range(self.nodes) if state.links >> (node * self.nodes + peer) & 1]

    def _link(self, state: State, one: int, other: int, found: list[Flaw]) -> State:
        nodes = self.nodes
        bits = 1 << (one * nodes + other) | 1 << (other * nodes + one)
        if state.links & bits:
            return state
        state = state._replace(links=state.links | bits)
        state = self._tell(state, one, ("up", other), found)
        return self._tell(state, other, ("up", one), found)

    def _cut(self, state: State, one: int, other: int, told: tuple[int, ...], found: list[Flaw]) -> State:
        nodes = self.nodes
        bits = 1 << (one * nodes + other) | 1 << (other * nodes + one)
        if not state.links & bits:
            return state
        flight = list(state.flight)
        flight[one * nodes + other] = flight[other * nodes + one] = ()
        for node, peer in ((one, other), (other, one)):  # who is down learns it later
            if self.machine.status(state.locals[node]) == DOWN:
                bits &= ~(1 << (node * nodes + peer))
        state = state._replace(links=state.links & ~bits, flight=tuple(flight))
        for node in told:
            state = self._tell(state, node, ("down", other if node == one else one), found)
        return state

    def _crash(self, state: State, node: int, found: list[Flaw]) -> State:
        """A node is down; connections end with it."""
        if self.machine.sessions:
            for peer in self._peers(state, node):
                state = self._cut(state, node, peer, (peer,), found)
        return self._tell(state, node, ("crash",), found)

    def _restart(self, state: State, node: int, found: list[Flaw]) -> State:
        """A node comes back with its state, and is told which of its links are gone."""
        if self.machine.sessions:
            return self._reopen(state, node, found)
        state = self._tell(state, node, ("restart",), found)
        for peer in self._peers(state, node):
            if not state.links >> (peer * self.nodes + node) & 1:
                state = state._replace(links=state.links & ~(1 << (node * self.nodes + peer)))
                state = self._tell(state, node, ("down", peer), found)
        return state

    def _reopen(self, state: State, node: int, found: list[Flaw]) -> State:
        """A node comes back as a new life on what its store has, with new connections."""
        state = self._tell(state, node, ("restart", self._opening(state)), found)
        for peer in range(self.nodes):
            if (min(node, peer), max(node, peer)) in self.edges and self._both_are_up(state, node, peer):
                state = self._link(state, node, peer, found)
        return state

    def _opening(self, state: State) -> int:
        """A number of a life that no earlier one of the same node has."""
        restarts = sum(each.restart is not None for each in self.world.change[: state.changed])
        spent: int = sum(self.budget[which] - state.left[which] for which in (CRASHES, AMNESIAS))
        return restarts + spent

    def _forget(self, state: State, node: int, found: list[Flaw]) -> State:
        """A node comes back as a fresh process: its links are new, what was in flight on them is lost."""
        peers = self._peers(state, node)
        for peer in peers:
            state = self._cut(state, node, peer, (peer,), found)
        state = self._tell(state, node, ("forget", self._opening(state)), found)
        seen = [list(state.ended), list(state.given_up), list(state.known), list(state.stable)]
        for each in seen:
            each[node] = 0  # a new life has seen nothing
        ended, given_up, known, stable = map(tuple, seen)
        state = state._replace(ended=ended, given_up=given_up, known=known, stable=stable)
        for peer in peers:
            state = self._link(state, node, peer, found)
        return state

    def _spent(self, state: State, which: int) -> State:
        left = list(state.left)
        left[which] -= 1
        return state._replace(left=tuple(left))

    def _say(self, state: State, node: int, at: int, found: list[Flaw]) -> State:
        said, pasts, known = list(state.said), list(state.pasts), list(state.known)
        said[node] += 1
        pasts[at] = known[node]
        known[node] |= 1 << at
        state = state._replace(said=tuple(said), pasts=tuple(pasts), known=tuple(known))
        if self.mortal:
            lifetime_us = self.world.say[at].lifetime_us or self.world.params.get("lifetime_us")
            if lifetime_us:
                dead = list(state.dead_us)
                dead[at] = state.now_us + lifetime_us + 1
                state = state._replace(dead_us=tuple(dead))
        return self._tell(state, node, ("say", at), found)

    def _tell(
        self,
        state: State,
        node: int,
        what: Input,
        found: list[Flaw],
        flight: list[tuple[int, ...]] | None = None,
    ) -> State:
        """Give an input to a node that is up, and carry out what it asks for. `flight`, if given, is new."""
        machine = self.machine
        local = state.locals[node]
        if machine.locals[local].status != UP and what[0] != "restart":
            return state
        given = (*what, state.now_us + state.ahead_us[node] if state.ahead_us else state.now_us)
        step = machine.step(node, local, given)
        self.taken.append((node, local, given, step))
        after, sends, ends, closes, problem, remarks = step
        if problem is not None:
            found.append(Flaw(problem.split(":")[0], f"{machine.names[node]}: {problem}"))
        if flight is None:
            flight = list(state.flight)
        if sends:
            self._send(state.links, node, sends, flight)
        locals_ = list(state.locals)
        locals_[node] = after
        state = state._replace(locals=tuple(locals_), flight=tuple(flight))
        if remarks is not None:
            state = self._name(state, remarks, found)
        if ends:
            state = self._observe(state, node, step, found)
        if remarks is not None:
            state = self._note(state, node, remarks, found)
        for peer in closes:
            if state.locals[peer] == ELSEWHERE:
                raise NotLocal
            state = self._cut(state, node, peer, (peer,), found)
        return state

    def _send(
        self, links: int, node: int, sends: tuple[tuple[int, int], ...], flight: list[tuple[int, ...]]
    ) -> None:
        for to, packet in sends:
            link = node * self.nodes + to
            if links >> link & 1:
                packets = (*flight[link], packet)
                flight[link] = tuple(sorted(packets)) if self.any_order else packets

    # The observer

    def _observe(self, state: State, node: int, step: Step, found: list[Flaw]) -> State:
        """What a node has delivered, given up and knows after a step, and what is wrong with it."""
        ended, given_up, known = state.ended[node], state.given_up[node], state.known[node]
        name = self.machine.names[node]
        for at, delivered in step.ends:
            if given_up >> at & 1 or (ended >> at & 1 and not delivered):
                found.append(Flaw("ended twice", f"{name} ends message {at} once more"))
            if not delivered:
                given_up |= 1 << at
                continue
            self._judge_delivery(state, name, at, ended, found)
            late = step.remarks is not None and step.remarks.late >> at & 1
            unflagged = 0 if late else state.stable[node] & ~state.pasts[at]
            if unflagged and state.pasts[at] >= 0:
                beside = unflagged.bit_length() - 1
                found.append(
                    Flaw("unflagged", f"{name} delivers message {at} beside {beside}, which it called stable")
                )
            ended |= 1 << at
            known |= max(state.pasts[at], 0) | 1 << at
        seen = []
        for every, own in ((state.ended, ended), (state.given_up, given_up), (state.known, known)):
            seen.append((*every[:node], own, *every[node + 1 :]))
        return state._replace(ended=seen[0], given_up=seen[1], known=seen[2])

    def _name(self, state: State, remarks: Remarks, found: list[Flaw]) -> State:
        """Remember the ids of messages, which the lives of their nodes decide."""
        ids = list(state.ids)
        for at, id_ in remarks.ids:
            node = self.world.say[at].node
            alike = [each for each, line in enumerate(self.world.say) if line.node == node and each != at]
            if ids[at] not in (0, id_) or any(ids[each] == id_ for each in alike):
                found.append(Flaw("identity", f"message {at} of {node} has an id that is not its own"))
            ids[at] = id_
        return state._replace(ids=tuple(ids))

    def _note(self, state: State, node: int, remarks: Remarks, found: list[Flaw]) -> State:
        """What a node says that it will not deliver, and what it calls stable."""
        given_up, stable = list(state.given_up), list(state.stable)
        missed = self._between(state, remarks.missed)
        if missed & (given_up[node] | state.ended[node]):
            found.append(Flaw("ended twice", f"{self.machine.names[node]} misses what it had or has missed"))
        given_up[node] |= missed
        life = ((of, last >> NUMBER_BITS << NUMBER_BITS, last) for of, last in remarks.stable)
        stable[node] |= self._between(state, life)
        return state._replace(given_up=tuple(given_up), stable=tuple(stable))

    def _between(self, state: State, ranges: Iterable[tuple[int, int, int]]) -> int:
        """The messages that are meant by (node, first id, last id), as a mask."""
        return sum(
            1 << at
            for at in {
                at for of, first, last in ranges for at in self.lines[of] if first <= state.ids[at] <= last
            }
            if state.pasts[at] >= 0
        )

    def _judge_delivery(self, state: State, name: NodeId, at: int, ended: int, found: list[Flaw]) -> None:
        """What is wrong with the delivery of a message at a node that has delivered `ended`."""
        promises = self.info.promises
        if ended >> at & 1 and promises.no_duplicates:
            found.append(Flaw("duplicate", f"{name} delivers message {at} a second time"))
        if promises.causal:
            for other, past in enumerate(state.pasts):
                if ended >> other & 1 and past >= 0 and past >> at & 1:
                    found.append(
                        Flaw("causal", f"{name} delivers message {at} after {other}, which follows it")
                    )
        if promises.fifo and ended & self.later[at] & self._same_life(state, at):
            found.append(Flaw("fifo", f"{name} delivers message {at} after a later one of its node"))
        if promises.timely and state.dead_us and state.now_us >= state.dead_us[at] + self.slack_us:
            found.append(Flaw("late", f"{name} delivers message {at} after its lifetime"))

    def _same_life(self, state: State, at: int) -> int:
        """The messages of the life that has said message `at`: a node's lives are streams of their own."""
        if not state.ids:
            return -1
        life = state.ids[at] >> NUMBER_BITS
        return sum(1 << other for other, id_ in enumerate(state.ids) if id_ >> NUMBER_BITS == life)

    def judge_final(self, state: State) -> list[Flaw]:
        """What is wrong with a state in which nothing must happen any more."""
        owed = self.owed(state)
        found = [flaw for node in range(self.nodes) for flaw in self.judge_node(state, node, owed)]
        return found or self.judge_later(state)

    def judge_later(self, state: State) -> list[Flaw]:
        """What goes wrong if everything arrives, and time goes on `run_on_ticks` times, in a fixed order.

        Who keeps a log owes by then, though a timer may still be set, what any node that links lead to has.
        """
        found: list[Flaw] = []
        for _ in range(self.world.run_on_ticks):
            now_us = self._next_us(state)
            if now_us is None or found:
                break
            state = self._settled(state._replace(now_us=now_us), found)
        if found or not self.world.run_on_ticks:
            return found
        owed = self._logged(state, is_over=True)
        return [
            Flaw("incomplete", f"{self.machine.names[node]} never delivers message {at}")
            for node in range(self.nodes)
            for at in range(len(state.pasts))
            if owed & ~(state.ended[node] | state.given_up[node]) & 1 << at
        ]

    def judge_node(self, state: State, node: int, owed: int) -> list[Flaw]:
        """What is wrong with one node of such a state; `owed` are the messages that it must have."""
        found: list[Flaw] = []
        local = state.locals[node]
        if self.machine.status(local) != UP:
            return found
        name = self.machine.names[node]
        for at in range(len(state.pasts)):
            over = state.ended[node] | (state.given_up[node] if self.info.lives else 0)
            if owed >> at & 1 and self.to[at] in (None, node) and not over >> at & 1:
                found.append(Flaw("incomplete", f"{name} never delivers message {at}"))
        if self.stabilises and self._is_over(state) and owed & ~state.stable[node]:
            found.append(Flaw("unstable", f"{name} does not call stable what all have, and waits no more"))
        if state.stable[node] & ~self.shared(state):
            found.append(Flaw("unshared", f"{name} has called stable what some member does not have"))
        core = self.machine.restored(node, local)
        for waiting in core.explain():
            if not waiting.missing and not self.machine.locals[local].timers:
                found.append(Flaw("unexplained", f"{name} holds {waiting.id} and names nothing missing"))
            elif self._is_idle(state, node, waiting):
                found.append(Flaw("idle", f"{name} holds {waiting.id}, for which nothing can come"))
        if self.forgets and self._is_over(state) and core.entries():
            found.append(Flaw("memory", f"{name} keeps {core.entries()} entries, though all is done"))
        return found

    def _is_idle(self, state: State, node: int, waiting: Waiting) -> bool:
        """Whether a message waits though it is dead, or though all that it waits for is delivered or dead."""
        if not state.dead_us or self.slack_us or self.world.params.get("skew_us"):
            return False
        over = state.ended[node] | sum(
            1 << at for at, dead_us in enumerate(state.dead_us) if state.now_us >= dead_us
        )
        if self._has_ended(over, waiting.id):
            return True
        return self.info.promises.complete and all(self._has_ended(over, each) for each in waiting.missing)

    def _has_ended(self, over: int, id_: MessageId) -> bool:
        at = self.machine.numbered(id_)
        return at is not None and bool(over >> at & 1)

    def owed(self, state: State) -> int:
        """The messages that every node that is up must have in the end, as a mask.

        Completeness: all that were said, if nothing was lost and all are up. Agreement, where messages
        spread: what one that is up has, if nodes have crashed or left and nothing else was lost. Who keeps a
        log and has connections owes that whatever was lost, once links lead to all and no timer is set.
        """
        if self.machine.sessions:
            return self._logged(state, is_over=self._is_over(state))
        if self.is_whole(state):
            return sum(1 << at for at, past in enumerate(state.pasts) if past >= 0)
        if not self.spreads or self.mortal or self.world.change or state.absent:
            return 0
        if self._lost(state, (*_HARMLESS, LEAVES)):
            return 0
        return self._delivered(state)

    def shared(self, state: State) -> int:
        """The messages that every member has, or has passed over, as a mask; -1 where none is demanded.

        A member is a node that was admitted and knows it, if that was so of all in the first state. Once a
        node was retired, or came back as another life, this observer does not know who counts.
        """
        if not self._begins_as_group or any(each.command for each in self.world.change):
            return -1
        if any(self.budget[which] != state.left[which] for which in (RETIREMENTS, AMNESIAS, CRASHES)):
            return -1
        shared = -1
        for node, local in enumerate(state.locals):
            if not state.absent >> node & 1 and self.machine.is_ready(node, local):
                shared &= state.ended[node] | state.given_up[node]
        return shared

    def _delivered(self, state: State) -> int:
        delivered = 0
        for local, ended in zip(state.locals, state.ended, strict=True):
            if self.machine.status(local) == UP:
                delivered |= ended
        return delivered

    def _logged(self, state: State, *, is_over: bool) -> int:
        up = all(self.machine.status(local) == UP for local in state.locals)
        if self.mortal or state.absent or not (up and is_over and self._is_connected(state)):
            return 0
        return self._delivered(state)

    def _is_connected(self, state: State) -> bool:
        """Whether links lead from the first node to all others."""
        reached = [0]
        for node in reached:
            reached += [peer for peer in self._peers(state, node) if peer not in reached]
        return len(reached) == self.nodes

    def is_whole(self, state: State) -> bool:
        """Whether the faults so far leave the promise of completeness whole."""
        if not self.info.promises.complete or self.mortal or self.world.change or state.absent:
            return False
        if self._lost(state, _HARMLESS):
            return False
        return all(self.machine.status(local) == UP for local in state.locals)

    def _is_over(self, state: State) -> bool:
        """Whether every node has all copies that will ever come, and no handshake is under way."""
        every = [self.machine.locals[local] for local in state.locals]
        return not any(each.status == DOWN or (each.status == UP and each.timers) for each in every)

    def _lost(self, state: State, harmless: tuple[int, ...]) -> bool:
        """Whether faults have happened that are not harmless."""
        spent = [had - has for had, has in zip(self.budget, state.left, strict=True)]
        return any(count for which, count in enumerate(spent) if which not in harmless)
