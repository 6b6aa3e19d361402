"""States as rows of numbers, so that numpy can treat a whole frontier at once.

A state has three kinds of parts: the world (links, time, budgets, pasts of messages), what concerns one
node, and the packets on one link. Each distinct part gets a number; a state is a row of these numbers:
the world, the nodes, the links. A part also has a digest, made from its content alone, and a row has the
digest that its parts give: the same in every process, whatever the numbers are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from marshal import dumps
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from whence.errors import ScenarioError
from whence.explore.state import LinkPart, NodePart, Rules, State, WorldPart
from whence.explore.symmetry import Renamed

Rows: TypeAlias = NDArray[np.uint32]
Digests: TypeAlias = NDArray[np.uint64]
Flags: TypeAlias = NDArray[np.bool_]
Content = TypeVar("Content", bound=Hashable)

Contents: TypeAlias = tuple[list[WorldPart], list[NodePart], list[LinkPart]]

WORLD_BITS, NODE_BITS, LINK_BITS = 20, 24, 20  # of a key of a table; together 64
_MARSHAL = 2  # the last version without references: equal contents give equal bytes
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def digest_of(content: Any, salt: bytes) -> int:
    """64 bits by which a content is known."""
    return int.from_bytes(blake2b(dumps(content, _MARSHAL), digest_size=8, key=salt).digest(), "big")


class Column:
    """An array that grows."""

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        self._all: NDArray[Any] = np.zeros(1024 if width is None else (1024, width), dtype)
        self.size = 0

    def append(self, value: Any) -> None:
        """Add one entry."""
        if self.size == len(self._all):
            self._all = np.concatenate([self._all, np.zeros_like(self._all)])
        self._all[self.size] = value
        self.size += 1

    @property
    def now(self) -> NDArray[Any]:
        """What is in it; not to be kept while it grows."""
        return self._all[: self.size]


class Parts(Generic[Content]):
    """Parts of one kind by number, with their digests and, by renaming, those of their images."""

    def __init__(
        self, bits: int, salt: bytes, names: Sequence[Renamed], image: Callable[[Renamed, Content], Content]
    ) -> None:
        self.content: list[Content] = []
        self._numbers: dict[Content, int] = {}
        self._most = 1 << bits
        self._salt = salt
        self._names = names
        self._image = image
        self.digests = Column(np.uint64)
        self.images = Column(np.uint32, len(names))
        self.image_digests = Column(np.uint64, len(names))

    def number(self, content: Content) -> int:
        """The number of a part."""
        found = self._numbers.get(content)
        if found is None:
            found = self._numbers[content] = len(self.content)
            if found == self._most:
                raise ScenarioError("world", f"more than {self._most:,} parts of states", "Explore less")
            self.content.append(content)
            self.digests.append(digest_of(content, self._salt))
        return found

    def learn_images(self) -> None:
        """Know every part under every other name. The image of an image is known already, or comes next."""
        done = self.images.size
        while done < len(self.content):
            content = self.content[done]
            numbers = [self.number(self._image(names, content)) for names in self._names]
            self.images.append(numbers)
            self.image_digests.append([self.digests.now[number] for number in numbers])
            done += 1


class Layout:
    """Which column of a row is what, and the parts of all rows of a search."""

    def __init__(self, rules: Rules, names: Sequence[Renamed]) -> None:
        self._rules = rules
        salt = rules.machine.salt
        nodes = rules.nodes
        self.names = names  # the first keeps every name
        self.pairs = [(one, two) for one in range(nodes) for two in range(nodes) if one != two]
        self.link_column = {pair: 1 + nodes + at for at, pair in enumerate(self.pairs)}
        self.width = 1 + nodes + len(self.pairs)
        self.worlds: Parts[WorldPart] = Parts(WORLD_BITS, salt, names, Renamed.world)
        self.nodes: Parts[NodePart] = Parts(NODE_BITS, salt, names, Renamed.node)
        self.links: Parts[LinkPart] = Parts(LINK_BITS, salt, names, Renamed.flight)
        self.links.number(())  # 0: nothing in flight
        self._from = [self._columns_from(each) for each in names]
        odd = [digest_of(("column", at), salt) | 1 for at in range(self.width)]
        # By column, for each of the names: the factor of the column in which its image is.
        self._odd_of = [
            np.array([odd[from_.index(at)] for from_ in self._from], np.uint64) for at in range(self.width)
        ]

    def _columns_from(self, names: Renamed) -> list[int]:
        """By column of the renamed row: the column of which it is the image."""
        from_ = names.from_
        links = [self.link_column[from_[one], from_[two]] for one, two in self.pairs]
        return [0, *(1 + from_[node] for node in range(self._rules.nodes)), *links]

    def parts_of(self, column: int) -> Parts[Any]:
        """The kind of a column."""
        if column == 0:
            return self.worlds
        return self.nodes if column <= self._rules.nodes else self.links

    def contents(self) -> Contents:
        """Every part by number, to be filled in again."""
        return (self.worlds.content, self.nodes.content, self.links.content)

    def fill(self, contents: Contents) -> None:
        """Number parts as they were numbered before."""
        for world in contents[0]:
            self.worlds.number(world)
        for node in contents[1]:
            self.nodes.number(node)
        for link in contents[2]:
            self.links.number(link)

    # One state

    def node_of(self, state: State, node: int) -> int:
        """The number of a node's part."""
        return self.nodes.number(
            (node, state.locals[node], state.said[node], state.ended[node], state.given_up[node],
             state.known[node], state.stable[node], state.ahead_us[node] if state.ahead_us else 0)
        )  # fmt: skip

    def world_of(self, state: State) -> int:
        """The number of the part that concerns all."""
        return self.worlds.number(
            (state.links, state.changed, state.absent, state.now_us, state.left, state.pasts, state.dead_us,
             state.ids)
        )  # fmt: skip

    def row(self, state: State) -> list[int]:
        """The row of a state."""
        nodes = self._rules.nodes
        row = [self.world_of(state), *(self.node_of(state, node) for node in range(nodes))]
        return row + [self.links.number(state.flight[one * nodes + two]) for one, two in self.pairs]

    def state(self, row: Sequence[int]) -> State:
        """The state of a row."""
        count = self._rules.nodes
        links, changed, absent, now_us, left, pasts, dead_us, ids = self.worlds.content[row[0]]
        parts = [self.nodes.content[number] for number in row[1 : 1 + count]]
        flight: list[LinkPart] = [()] * (count * count)
        for (one, two), number in zip(self.pairs, row[1 + count :], strict=True):
            flight[one * count + two] = self.links.content[number]
        _, locals_, said, ended, given_up, known, stable, ahead = zip(*parts, strict=True)
        ahead_us = ahead if self._rules.has_jumps else ()
        return State(
            locals_, tuple(flight), links, said, changed, absent, now_us, ahead_us, left, pasts, dead_us,
            ids, ended, given_up, known, stable,
        )  # fmt: skip

    # Many rows

    def canonical(self, rows: Rows) -> tuple[Digests, NDArray[np.intp]]:
        """The digest of each row under the names that make it least, and which names these are."""
        if len(self.names) == 1:
            return self._mixed(self._digests(rows)[:, 0]), np.zeros(len(rows), np.intp)
        for parts in (self.worlds, self.nodes, self.links):
            parts.learn_images()
        digests = self._mixed(self._digests(rows))
        best = digests.argmin(axis=1)
        return digests[np.arange(len(rows)), best], best

    def _digests(self, rows: Rows) -> Digests:
        """By row and names: the sum of what the parts give in their columns."""
        total = np.zeros((len(rows), len(self.names)), np.uint64)
        for column, odd in enumerate(self._odd_of):
            parts = self.parts_of(column)
            known = parts.digests.now[:, None] if len(self.names) == 1 else parts.image_digests.now
            total += known[rows[:, column]] * odd
        return total

    def _mixed(self, total: Digests) -> Digests:
        """The lower bits of a sum of products are weak: mix all of them."""
        for mix in _MIX:
            total ^= total >> np.uint64(31)
            total *= mix
        total ^= total >> np.uint64(29)
        return total

    def renamed(self, rows: Rows, which: NDArray[np.intp]) -> Rows:
        """Each row under the names of that place."""
        if len(self.names) == 1:
            return rows
        result = np.empty_like(rows)
        for place in range(len(self.names)):
            chosen = np.flatnonzero(which == place)
            if len(chosen) == 0:
                continue
            for column, source in enumerate(self._from[place]):
                images = self.parts_of(column).images.now[:, place]
                result[chosen, column] = images[rows[chosen, source]]
        return result
