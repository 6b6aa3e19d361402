"""A state that compiled functions are given as the place of a table of its arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from whence.errors import InvariantError
from whence.kernels.by_place import by_place


class Arrays(NamedTuple):
    wide: Any
    narrow: Any
    cube: Any
    none: Any


def made() -> Arrays:
    return Arrays(
        wide=np.arange(5, dtype=np.int64),
        narrow=np.arange(6, dtype=np.int8).reshape(2, 3),
        cube=np.arange(24, dtype=np.uint64).reshape(2, 3, 4),
        none=np.zeros((0, 7), dtype=np.float64),
    )


@numba.njit(_nrt=False)  # type: ignore[untyped-decorator]
def look(s: Arrays, out: Any) -> None:
    row = s.cube[1]  # strides and shapes are right in parts, too
    out[0], out[1], out[2] = s.wide[3], s.narrow[1, 2], row[2, 3]
    out[3], out[4], out[5] = len(s.none), s.none.shape[1], s.cube.size
    out[6], out[7] = row.shape[0], s.cube[1, 2, 1]
    s.wide[0] = 77
    s.narrow[0, 1] = 7
    row[0, 1] = 99


def test_every_array_is_read_and_written_in_its_place() -> None:
    state, out = made(), np.zeros(8, dtype=np.int64)
    look(by_place(state), out)
    assert out.tolist() == [3, 5, 23, 0, 7, 24, 3, 21]
    assert (state.wide[0], state.narrow[0, 1], state.cube[1, 0, 1]) == (77, 7, 99)
    assert (state.wide[1], state.narrow[0, 0], state.cube[0, 0, 1]) == (1, 0, 1)


def test_other_types_and_longer_arrays() -> None:
    out = np.zeros(8, dtype=np.int64)
    look(by_place(made()), out)
    versions = len(look.signatures)
    look(by_place(made()._replace(wide=np.arange(500, dtype=np.int64))), out)
    assert len(look.signatures) == versions  # a length is no part of the type
    look(by_place(made()._replace(narrow=np.arange(6, dtype=np.int32).reshape(2, 3))), out)
    assert len(look.signatures) == versions + 1
    assert out[1] == 5


@pytest.mark.parametrize("wrong", [np.arange(10, dtype=np.int64)[::2], np.broadcast_to(np.int64(3), 5)])
def test_arrays_with_gaps_are_refused(wrong: Any) -> None:
    with pytest.raises(InvariantError, match="wide has gaps"):
        by_place(made()._replace(wide=wrong))
