"""Which states were met, in what order, and from where: arrays, in memory or in a folder.

States are known by digests: sorted runs, each of which is searched as a whole. A state takes 25 bytes (its
digest in a run and by number, its number, its parent's, whether it is final), and a move 8.
Given a folder, these arrays are files that the system maps into memory as far as there is room.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whence.explore.parts import Digests

Array = NDArray[Any]
MERGED_MAX = 1 << 22  # longer runs are not merged: it would take memory


class Shelf:
    """Where arrays are kept: in memory, or as files of a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._next = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._next = 1 + max((int(each.stem) for each in folder.glob("[0-9]*.npy")), default=-1)

    def keep(self, array: Array) -> Array:
        """The same array, where arrays are kept."""
        if self.folder is None:
            return array
        path = self.folder / f"{self._next:08}.npy"
        self._next += 1
        np.save(path, array)
        return self.again(path.name)

    def again(self, name: str) -> Array:
        """An array that was kept under a name."""
        assert self.folder is not None
        loaded: Array = np.load(self.folder / name, mmap_mode="r")
        return loaded

    def name(self, array: Array) -> str:
        """The name under which an array is kept."""
        assert isinstance(array, np.memmap)
        return Path(str(array.filename)).name

    def forget_all_but(self, names: set[str]) -> None:
        """Delete what is not needed any more."""
        if self.folder is not None:
            for path in self.folder.glob("[0-9]*.npy"):
                if path.name not in names:
                    path.unlink()


class Stack:
    """Entries by number, in blocks that never change."""

    def __init__(self, shelf: Shelf, blocks: Sequence[Array] = ()) -> None:
        self._shelf = shelf
        self.blocks = list(blocks)
        self._ends = np.cumsum([len(each) for each in blocks], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def add(self, block: Array) -> None:
        """Append entries."""
        if len(block):
            self._ends = np.append(self._ends, len(self) + len(block))
            self.blocks.append(self._shelf.keep(block))

    def take(self, numbers: Array) -> Array:
        """The entries of these numbers."""
        which = np.searchsorted(self._ends, numbers, side="right")
        result = np.empty((len(numbers), *self.blocks[0].shape[1:]), self.blocks[0].dtype)
        for place in np.unique(which):
            chosen = which == place
            begin = self._ends[place] - len(self.blocks[place])
            result[chosen] = self.blocks[place][numbers[chosen] - begin]
        return result

    def __getitem__(self, number: int) -> Any:
        return self.take(np.array([number]))[0]


class DigestRun(NamedTuple):
    """Digests in order, and the numbers of their states."""

    digests: Digests
    numbers: NDArray[np.uint32]


class Visited:
    """The number of every state, by digest."""

    def __init__(self, shelf: Shelf, runs: Sequence[DigestRun] = ()) -> None:
        self._shelf = shelf
        self.runs = list(runs)

    def find(self, digests: Digests) -> NDArray[np.int64]:
        """Numbers of states; -1: not met yet."""
        found = np.full(len(digests), -1, np.int64)
        for run in self.runs:
            at = np.searchsorted(run.digests, digests)
            at[at == len(run.digests)] = 0
            same = run.digests[at] == digests
            found[same] = run.numbers[at[same]]
        return found

    def add(self, digests: Digests, first: int) -> None:
        """New states in the order of their digests, with numbers from `first` on."""
        if not len(digests):
            return
        run = DigestRun(digests, np.arange(first, first + len(digests), dtype=np.uint32))
        while self.runs and len(self.runs[-1].digests) < 2 * len(run.digests) < MERGED_MAX:
            other = self.runs.pop()
            both = np.concatenate([other.digests, run.digests])
            order = np.argsort(both, kind="stable")
            run = DigestRun(both[order], np.concatenate([other.numbers, run.numbers])[order])
        self.runs.append(DigestRun(self._shelf.keep(run.digests), self._shelf.keep(run.numbers)))
