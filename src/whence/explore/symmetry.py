"""Worlds that differ only by names are one: of the renamed forms of a state, that of the least digest counts.

A renaming of a local state is what the renamed node reaches by the renamed inputs, so no core needs to know
how to rename itself. That a protocol treats names alike is not assumed: each local step that an exploration
takes is compared with its renamed steps (`NotSymmetric` where they differ, and then the search goes
without).
"""

from __future__ import annotations

from itertools import permutations
from typing import TypeAlias

from whence.explore.machine import Input, Remarks, Step
from whence.explore.state import Move, NodePart, Rules, State, WorldPart

Renaming: TypeAlias = tuple[int, ...]  # node -> node


class NotSymmetric(Exception):
    """The protocol treats two names differently."""


class Renamed:
    """One renaming, and what it makes of the parts of states. Local states are of one node each."""

    def __init__(self, renaming: Renaming, lines: dict[int, int], any_order: bool) -> None:
        nodes = len(renaming)
        self.renaming = renaming
        self.from_ = tuple(renaming.index(node) for node in range(nodes))  # by new node: the old one
        self.lines = lines
        self.any_order = any_order
        self.local: dict[int, int] = {}
        self.packet: dict[int, int] = {}
        self._links = tuple(one * nodes + two for one in self.from_ for two in self.from_)
        self._lines_from = sorted(lines, key=lines.__getitem__)  # by new message: the old one

    def flight(self, packets: tuple[int, ...]) -> tuple[int, ...]:
        """The packets of a link."""
        try:
            images = [self.packet[packet] for packet in packets]
        except KeyError:
            raise NotSymmetric from None
        return tuple(sorted(images) if self.any_order else images)

    def mask(self, mask: int) -> int:
        """A set of messages; -1 stays."""
        if mask < 0:
            return mask
        return sum(1 << other for at, other in self.lines.items() if mask >> at & 1)

    def node(self, part: NodePart) -> NodePart:
        """What concerns one node: itself, its local state, what it said, delivered, knows; its clock."""
        node, local, said, ended, given_up, known, stable, ahead_us = part
        try:
            image = self.local[local]
        except KeyError:
            raise NotSymmetric from None
        seen = (self.mask(ended), self.mask(given_up), self.mask(known), self.mask(stable))
        return (self.renaming[node], image, said, *seen, ahead_us)

    def world(self, part: WorldPart) -> WorldPart:
        """What concerns all."""
        links, changed, absent, now_us, left, pasts, dead, ids = part
        bits = 0
        for other, link in enumerate(self._links):
            bits |= (links >> link & 1) << other
        return (
            bits,
            changed,
            sum((absent >> node & 1) << other for node, other in enumerate(self.renaming)),
            now_us,
            left,
            tuple([self.mask(pasts[at]) for at in self._lines_from]),
            tuple([dead[at] for at in self._lines_from]) if dead else (),
            tuple([ids[at] for at in self._lines_from]) if ids else (),
        )

    def remarks(self, remarks: Remarks | None) -> Remarks | None:
        """What a core says of its streams."""
        if remarks is None:
            return None
        by = self.renaming
        return Remarks(
            tuple((self.lines[at], id_) for at, id_ in remarks.ids),
            self.mask(remarks.late),
            tuple(sorted((by[node], first, last) for node, first, last in remarks.missed)),
            tuple(sorted((by[node], last) for node, last in remarks.stable)),
        )


class Symmetry:
    """The renamings under which a world stays what it is."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._machine = rules.machine
        self.renamings = [each for each in permutations(range(rules.nodes)) if self._keeps(each)]
        self._names = {each: Renamed(each, self._line_map(each), rules.any_order) for each in self.renamings}
        self._seen: set[tuple[int, Input]] = set()

    @property
    def names(self) -> list[Renamed]:
        """The renamings; the first keeps every name."""
        return list(self._names.values())

    def _keeps(self, renaming: Renaming) -> bool:
        """Whether the script is the same under other names."""
        world, rules = self._rules.world, self._rules
        if renaming == tuple(range(rules.nodes)):
            return True
        if world.change or world.edges is not None:
            return False
        if {world.names[renaming[self._machine.index[name]]] for name in world.late} != world.late:
            return False
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

    def renamed_move(self, move: Move, renaming: Renaming) -> Move:
        """The same move under other names."""
        verb = move[0]
        if verb == "say":
            return (verb, renaming[move[1]], self._names[renaming].lines[move[2]])
        if verb in ("receive", "lose", "double"):
            return (verb, renaming[move[1]], renaming[move[2]], self._packet_of(renaming, move[3]))
        if verb in ("cut", "mend"):
            return (verb, *sorted((renaming[move[1]], renaming[move[2]])))
        if verb in ("tick", "change"):
            return move
        if verb == "retire":
            return (verb, renaming[move[1]], renaming[move[2]])
        return (verb, renaming[move[1]], *move[2:])

    def _local_of(self, renaming: Renaming, local: int) -> int:
        try:
            return self._names[renaming].local[local]
        except KeyError:
            raise NotSymmetric from None

    def _packet_of(self, renaming: Renaming, packet: int) -> int:
        try:
            return self._names[renaming].packet[packet]
        except KeyError:
            raise NotSymmetric from None

    # Learning what renamed steps do

    def begin(self, before: State, first: State) -> None:
        """The first state has to be its own image: what was sent on the way to it too."""
        for renaming in self.renamings:
            for state in (before, first):
                for node, local in enumerate(state.locals):
                    self._learn_local(renaming, local, state.locals[renaming[node]])
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
        if (local, what) in self._seen:
            return
        taken: dict[Renaming, tuple[int, Input, Step]] = {}
        for renaming in self.renamings:
            image, given = self._local_of(renaming, local), self._input(renaming, what)
            other = self._machine.step(renaming[node], image, given)
            lines = self._names[renaming].lines
            if tuple((lines[at], how) for at, how in step.ends) != other.ends:
                raise NotSymmetric
            if sorted(renaming[peer] for peer in step.closes) != sorted(other.closes):
                raise NotSymmetric
            same = self._names[tuple(range(self._rules.nodes))].remarks(other.remarks)
            if self._names[renaming].remarks(step.remarks) != same:
                raise NotSymmetric
            taken[renaming] = (image, given, other)
        # Each of these is a step of its own right, whose other names are known with it.
        for one, (image, given, first) in taken.items():
            self._seen.add((image, given))
            for two, (_, _, second) in taken.items():
                # From names by `one` to names by `two`: `first` becomes `second`.
                between = tuple(two[one.index(each)] for each in range(self._rules.nodes))
                self._learn_local(between, first.after, second.after)
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
            return (verb, self._names[renaming].lines[what[1]], what[2])
        if verb == "receive":
            return (verb, renaming[what[1]], self._packet_of(renaming, what[2]), what[3])
        if verb in ("up", "down"):
            return (verb, renaming[what[1]], what[2])
        if verb == "command":
            index, names = self._machine.index, self._machine.names
            return (verb, what[1], tuple(names[renaming[index[each]]] for each in what[2]), what[3])
        return what

    def _learn_local(self, renaming: Renaming, local: int, image: int) -> None:
        one, other = self._machine.locals[local], self._machine.locals[image]
        if one[1:] != other[1:]:  # other timers (drawn by name, say) make other moves
            raise NotSymmetric
        if self._names[renaming].local.setdefault(local, image) != image:
            raise NotSymmetric

    def _learn_packet(self, renaming: Renaming, packet: int, image: int) -> None:
        if self._names[renaming].packet.setdefault(packet, image) != image:
            raise NotSymmetric
