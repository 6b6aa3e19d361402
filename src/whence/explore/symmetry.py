"""Worlds that differ only by names are one: every state is replaced by the least of its renamed forms.

A renaming of a local state is what the renamed node reaches by the renamed inputs, so no core needs to know
how to rename itself. That a protocol treats names alike is not assumed: each local step that an exploration
takes is compared with its renamed steps (`NotSymmetric` where they differ, and then the search goes
without).
"""

from __future__ import annotations

from itertools import permutations
from typing import TypeAlias

from whence.explore.machine import Input, Step
from whence.explore.state import Move, Rules, State

Renaming: TypeAlias = tuple[int, ...]  # node -> node


class NotSymmetric(Exception):
    """The protocol treats two names differently."""


class Symmetry:
    """The renamings under which a world stays what it is."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._machine = rules.machine
        self.renamings = [each for each in permutations(range(rules.nodes)) if self._keeps(each)]
        self._lines = {each: self._line_map(each) for each in self.renamings}
        self._masks: dict[tuple[Renaming, int], int] = {}
        self._local: dict[tuple[Renaming, int, int], int] = {}
        self._packet: dict[tuple[Renaming, int], int] = {}
        self._seen: set[tuple[int, int, Input]] = set()

    def _keeps(self, renaming: Renaming) -> bool:
        """Whether the script is the same under other names."""
        world, rules = self._rules.world, self._rules
        if world.change or not world.meshed:
            return renaming == tuple(range(rules.nodes))
        for node, lines in enumerate(rules.lines):
            others = rules.lines[renaming[node]]
            if len(lines) != len(others):
                return False
            for at, other in zip(lines, others, strict=True):
                one, two = world.say[at], world.say[other]
                to = None if one.to is None else world.names[renaming[self._machine.index[one.to]]]
                if (to, one.lifetime_us) != (two.to, two.lifetime_us) or one.after or two.after:
                    return False
        return True

    def _line_map(self, renaming: Renaming) -> dict[int, int]:
        lines = self._rules.lines
        return {
            at: other
            for node in range(self._rules.nodes)
            for at, other in zip(lines[node], lines[renaming[node]], strict=True)
        }

    # Renaming

    def canonical(self, state: State) -> tuple[State, Renaming]:
        """The least renamed form of a state, and the renaming that gives it."""
        best, by = state, self.renamings[0]
        for renaming in self.renamings[1:]:
            other = self.renamed(state, renaming)
            if other < best:
                best, by = other, renaming
        return best, by

    def renamed(self, state: State, renaming: Renaming) -> State:
        """The state under other names."""
        nodes, lines = self._rules.nodes, self._lines[renaming]
        locals_, said = [0] * nodes, [0] * nodes
        ended, known, ahead = [0] * nodes, [0] * nodes, [0] * nodes
        flight: list[tuple[int, ...]] = [()] * (nodes * nodes)
        links = 0
        for node in range(nodes):
            to = renaming[node]
            locals_[to] = self._local_of(renaming, node, state.locals[node])
            said[to] = state.said[node]
            ended[to] = self._mask(renaming, state.ended[node])
            known[to] = self._mask(renaming, state.known[node])
            if state.ahead_us:
                ahead[to] = state.ahead_us[node]
            for peer in range(nodes):
                link = node * nodes + peer
                other = to * nodes + renaming[peer]
                links |= (state.links >> link & 1) << other
                packets = state.flight[link]
                if packets:
                    images = [self._packet_of(renaming, packet) for packet in packets]
                    flight[other] = tuple(sorted(images) if self._rules.any_order else images)
        pasts, dead = list(state.pasts), list(state.dead_us)
        for at, other in lines.items():
            pasts[other] = -1 if state.pasts[at] < 0 else self._mask(renaming, state.pasts[at])
            if dead:
                dead[other] = state.dead_us[at]
        return state._replace(
            locals=tuple(locals_), flight=tuple(flight), links=links, said=tuple(said), pasts=tuple(pasts),
            dead_us=tuple(dead), ended=tuple(ended), known=tuple(known),
            ahead_us=tuple(ahead) if state.ahead_us else (),
        )  # fmt: skip

    def renamed_move(self, move: Move, renaming: Renaming) -> Move:
        """The same move under other names."""
        verb = move[0]
        if verb == "say":
            return (verb, renaming[move[1]], self._lines[renaming][move[2]])
        if verb in ("receive", "lose", "double"):
            return (verb, renaming[move[1]], renaming[move[2]], self._packet_of(renaming, move[3]))
        if verb in ("cut", "mend"):
            return (verb, *sorted((renaming[move[1]], renaming[move[2]])))
        if verb in ("tick", "change"):
            return move
        return (verb, renaming[move[1]], *move[2:])

    def _mask(self, renaming: Renaming, mask: int) -> int:
        key = (renaming, mask)
        found = self._masks.get(key)
        if found is None:
            found = sum(1 << other for at, other in self._lines[renaming].items() if mask >> at & 1)
            self._masks[key] = found
        return found

    def _local_of(self, renaming: Renaming, node: int, local: int) -> int:
        try:
            return self._local[renaming, node, local]
        except KeyError:
            raise NotSymmetric from None

    def _packet_of(self, renaming: Renaming, packet: int) -> int:
        try:
            return self._packet[renaming, packet]
        except KeyError:
            raise NotSymmetric from None

    # Learning what renamed steps do

    def begin(self, before: State, first: State) -> None:
        """The first state has to be its own image: what was sent on the way to it too."""
        for renaming in self.renamings:
            for state in (before, first):
                for node, local in enumerate(state.locals):
                    self._learn_local(renaming, node, local, state.locals[renaming[node]])
            nodes = self._rules.nodes
            for node in range(nodes):
                for peer in range(nodes):
                    packets = first.flight[node * nodes + peer]
                    others = first.flight[renaming[node] * nodes + renaming[peer]]
                    if len(packets) != len(others):
                        raise NotSymmetric
                    for packet, other in zip(packets, others, strict=True):
                        self._learn_packet(renaming, packet, other)

    def learn(self, node: int, local: int, what: Input, step: Step) -> None:
        """Compare a step with the same step under all other names, and remember what it gives."""
        if (node, local, what) in self._seen:
            return
        taken: dict[Renaming, tuple[int, Input, Step]] = {}
        for renaming in self.renamings:
            image, given = self._local_of(renaming, node, local), self._input(renaming, what)
            other = self._machine.step(renaming[node], image, given)
            lines = self._lines[renaming]
            if tuple((lines[at], how) for at, how in step.ends) != other.ends:
                raise NotSymmetric
            if sorted(renaming[peer] for peer in step.closes) != sorted(other.closes):
                raise NotSymmetric
            taken[renaming] = (image, given, other)
        # Each of these is a step of its own right, whose other names are known with it.
        for one, (image, given, first) in taken.items():
            self._seen.add((one[node], image, given))
            for two, (_, _, second) in taken.items():
                # From names by `one` to names by `two`: `first` becomes `second`.
                between = tuple(two[one.index(each)] for each in range(self._rules.nodes))
                self._learn_local(between, one[node], first.after, second.after)
                self._learn_sends(between, first, second)

    def _learn_sends(self, renaming: Renaming, step: Step, other: Step) -> None:
        if len(step.sends) != len(other.sends):
            raise NotSymmetric
        for peer in range(self._rules.nodes):
            ours = [packet for to, packet in step.sends if to == peer]
            theirs = [packet for to, packet in other.sends if to == renaming[peer]]
            if len(ours) != len(theirs):
                raise NotSymmetric
            for packet, image in zip(ours, theirs, strict=True):
                self._learn_packet(renaming, packet, image)

    def _input(self, renaming: Renaming, what: Input) -> Input:
        verb = what[0]
        if verb == "say":
            return (verb, self._lines[renaming][what[1]], what[2])
        if verb == "receive":
            return (verb, renaming[what[1]], self._packet_of(renaming, what[2]), what[3])
        if verb in ("up", "down"):
            return (verb, renaming[what[1]], what[2])
        return what

    def _learn_local(self, renaming: Renaming, node: int, local: int, image: int) -> None:
        if self._local.setdefault((renaming, node, local), image) != image:
            raise NotSymmetric

    def _learn_packet(self, renaming: Renaming, packet: int, image: int) -> None:
        if self._packet.setdefault((renaming, packet), image) != image:
            raise NotSymmetric
