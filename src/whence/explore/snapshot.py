"""A search as a file, so that another process can go on with it.

A snapshot names the arrays of a folder (`explore/visited.py`) and has what they refer to: the parts of
states, and the tables by which digests stand for local states and packets. A search that was taken up by a
process with other cores would go wrong, so the snapshot has a digest of the source: of the package, and of
the modules that have the classes of a core of one's own.
"""

from __future__ import annotations

import hashlib
import sys
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from whence.core.protocol import Protocol as Core
from whence.errors import MisuseError, writing
from whence.explore.expand import Expander, How
from whence.explore.machine import Local, Machine, Make
from whence.explore.parts import Contents
from whence.explore.symmetry import NotSymmetric
from whence.explore.visited import Shelf
from whence.explore.world import World

FILE = "search.msgpack"
PACKAGE = Path(__file__).parents[1]


class Tables(Struct, frozen=True, kw_only=True):
    """What digests stand for."""

    locals: list[tuple[int, Local]]
    packets: list[tuple[int, Any]]
    images: list[list[tuple[int, int]]]  # by names: of local states, and of packets
    stale: list[tuple[tuple[int, int, int, int], int]]  # as `explore/expand.py` has them
    steps: list[tuple[tuple[int, int], int]]

    @classmethod
    def of(cls, expander: Expander, known: list[int] | None = None) -> Tables:
        """The tables of a process, without the first entries of each, of which there are `known`."""
        every = _every(expander)
        new = [
            list(islice(table.items(), first, None))
            for table, first in zip(every, known or [0] * len(every), strict=True)
        ]
        return cls(locals=new[0], packets=new[1], stale=new[2], steps=new[3], images=new[4:])

    @staticmethod
    def sizes(expander: Expander) -> list[int]:
        """How many entries a process has in each table."""
        return list(map(len, _every(expander)))

    def into(self, expander: Expander) -> None:
        """Let a process know them."""
        locals_, packets, _, _, *images = _every(expander)
        kind = expander.rules.machine.core(0).packet_type
        locals_.update(self.locals)
        packets.update((key, msgspec.convert(each, kind)) for key, each in self.packets if key not in packets)
        for table, new in zip(images, self.images, strict=True):
            if any(table.setdefault(key, image) != image for key, image in new):
                raise NotSymmetric
        if expander.stale is not None:
            for (local, after), node in self.steps:
                expander.stale.stepped(node, local, after)
            for key, node in self.stale:
                expander.stale.add(node, *key)


def _every(expander: Expander) -> list[dict[Any, Any]]:
    """The tables of a process: local states, packets, what is stale, and images by names."""
    machine, stale = expander.rules.machine, expander.stale
    images = [table for names in expander.layout.names for table in (names.local, names.packet)]
    compared: list[dict[Any, Any]] = [{}, {}] if stale is None else [stale.found, stale.steps]
    return [machine.locals, machine.packets, *compared, *images]


class Snapshot(Struct, frozen=True, kw_only=True):
    """Where a search is."""

    world: World
    how: How
    exact: bool
    depth: int
    goes_back: bool
    seconds: float
    frontier: list[str]
    runs: list[tuple[str, str]]
    stacks: list[list[str]]
    tables: Tables
    parts: Contents
    source: str  # a digest, by `source_of`

    def files(self) -> set[str]:
        """The arrays that it names."""
        return {*self.frontier, *chain.from_iterable(self.runs), *chain.from_iterable(self.stacks)}

    def write(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        path = folder / FILE
        new = path.with_suffix(".new")
        with writing(path):
            new.write_bytes(msgspec.msgpack.encode(self))
            new.replace(path)

    @classmethod
    def read(cls, folder: Path) -> Snapshot | None:
        """The snapshot of a folder, if there is one."""
        try:
            return msgspec.msgpack.decode((folder / FILE).read_bytes(), type=cls)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise MisuseError(str(folder / FILE), str(error), "Give another folder, or delete it") from error


def taken_up(folder: Path, world: World, how: How, exact: bool, make: Make | None) -> How:
    """How the search of a folder goes on, if it is this one; `how`, if there is none."""
    saved = Snapshot.read(folder)
    if saved is None:
        return how
    same = (saved.world, saved.how.kinds, saved.exact) == (world, how.kinds, exact)
    more = any(had > has for had, has in zip(saved.how[:3], how[:3], strict=True))
    if not same or more:
        raise MisuseError(str(folder), "it has another search", "Give another folder")
    if saved.source != source_of(Machine(world, make).core(0)):
        raise MisuseError(str(folder), "its search was begun by other code", "Delete it, and begin anew")
    return saved.how


def forget(folder: Path | None) -> None:
    """Empty the folder of a search that has ended, or begins anew."""
    if folder is not None:
        (folder / FILE).unlink(missing_ok=True)
        Shelf(folder).forget_all_but(set())


def source_of(core: Core) -> str:
    """A digest of the package's source, and of a core's class with the modules of those that it is of."""
    classes = [each for each in type(core).__mro__ if issubclass(each, Core)]
    files = {getattr(sys.modules[each.__module__], "__file__", None) for each in classes}
    digest = hashlib.blake2b(type(core).__qualname__.encode(), digest_size=16)
    for path in sorted({*PACKAGE.rglob("*.py"), *map(Path, filter(None, files))}):
        digest.update(path.read_bytes())
    return digest.hexdigest()
