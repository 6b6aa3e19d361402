"""A kernel's state as one pointer: the compiled functions are given the place of a table of its arrays.

Numba passes a tuple of arrays as all the numbers that describe them: two hundred arguments for a state of
twenty-five arrays, taken apart and put together again at each call. Most of what was compiled was that.

    advance(by_place(state))      # `state` is a NamedTuple of arrays, and so is what `advance` sees

The table is written by Python, before the kernel begins: within the kernel it never changes, and LLVM is told
so of each look into it (`invariant.load`; that would not be true of a table that compiled code wrote).
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

import numba
import numba.extending
import numpy as np
import numpy.typing as npt
from numba.core import cgutils, imputils
from numba.core.datamodel.models import PrimitiveModel
from numba.core.typing.templates import AttributeTemplate

from whence.errors import InvariantError

State = TypeVar("State", bound=tuple[Any, ...])
_types: Any = numba.types
_extending: Any = numba.extending
_cgutils: Any = cgutils
_imputils: Any = imputils
_WORD_BYTES = 8


class StateType(_types.Type):  # type: ignore[misc]
    """The numba type of a state: the names of its arrays and their types."""

    def __init__(self, name: str, arrays: tuple[tuple[str, Any], ...]) -> None:
        # Numba compares types by their names, and writes them into that of each function.
        digest = hashlib.sha256(repr(arrays).encode()).hexdigest()[:8]
        super().__init__(f"{name}_{digest}")
        self.arrays = dict(arrays)
        self.places: dict[str, int] = {}  # of an array in the table: its data, then its shape
        self.words = 0
        for each, kind in arrays:
            self.places[each] = self.words
            self.words += 1 + kind.ndim


class Placed:
    """A state, and where the table of its arrays is."""

    def __init__(self, state: Any) -> None:
        self.state = state  # lives as long as the table
        words = [word for array in state for word in (array.ctypes.data, *array.shape)]
        self.table: npt.NDArray[np.int64] = np.array(words, dtype=np.int64)
        self.address: int = self.table.ctypes.data
        self._numba_type_ = _type_of(
            cast(Hashable, type(state)), tuple((each.dtype, each.ndim) for each in state)
        )


def by_place(state: State) -> State:
    """Return what a compiled function takes for a state of that type."""
    for name, array in zip(cast(Any, state)._fields, state, strict=True):
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise InvariantError(type(state).__name__, f"{name} has gaps or cannot be written to")
    return cast(State, Placed(state))


@cache  # a run asks for it whenever something has grown
def _type_of(state: Any, kinds: tuple[tuple[Any, int], ...]) -> StateType:
    arrays = [_types.Array(numba.from_dtype(item), dimensions, "C") for item, dimensions in kinds]
    return StateType(state.__name__, tuple(zip(state._fields, arrays, strict=True)))


@_extending.register_model(StateType)
class _Model(PrimitiveModel):
    def __init__(self, manager: Any, kind: StateType) -> None:
        super().__init__(manager, kind, _cgutils.intp_t.as_pointer())  # type: ignore[no-untyped-call]

    def from_argument(self, builder: Any, value: Any) -> Any:
        """What the table says can be read before it is known that it is needed: outside of loops."""
        value.attributes.dereferenceable = self.fe_type.words * _WORD_BYTES
        value.attributes.align = _WORD_BYTES
        return value


@_extending.unbox(StateType)  # type: ignore[untyped-decorator]
def _unbox(kind: StateType, value: Any, c: Any) -> Any:
    address = c.pyapi.object_getattr_string(value, "address")
    place = c.pyapi.long_as_voidptr(address)
    c.pyapi.decref(address)
    place = c.builder.bitcast(place, c.context.get_value_type(kind))
    return _extending.NativeValue(place)


@_extending.infer_getattr
class _Attributes(AttributeTemplate):
    key = StateType

    def generic_resolve(self, kind: Any, name: str) -> Any:  # type: ignore[override]
        """Return the type of an array."""
        return kind.arrays.get(name)


@_imputils.lower_getattr_generic(StateType)  # type: ignore[untyped-decorator]
def _array(target: Any, builder: Any, kind: StateType, table: Any, name: str) -> Any:
    """Read where an array is and how large; the arrays are in order and without gaps."""
    array = kind.arrays[name]
    never_changes = builder.module.add_metadata([])

    def word(at: int, what: Any = _cgutils.intp_t) -> Any:
        place = builder.gep(table, [_cgutils.intp_t(kind.places[name] + at)], inbounds=True)
        found = builder.load(builder.bitcast(place, what.as_pointer()), align=_WORD_BYTES)
        found.set_metadata("invariant.load", never_changes)
        return found

    shape = [word(1 + axis) for axis in range(array.ndim)]
    item_bytes = _cgutils.intp_t(target.get_abi_sizeof(target.get_data_type(array.dtype)))
    strides = [item_bytes]
    for size in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], size, flags=["nsw"]))
    items = shape[0]
    for size in shape[1:]:
        items = builder.mul(items, size, flags=["nsw"])
    # Written as values: numba's own way, through a place on the stack, is three times as many instructions.
    fields = target.data_model_manager[array]
    made = _cgutils.ir.Constant(fields.get_value_type(), None)  # without what counts references to it
    data = word(0, target.get_data_type(array.dtype).as_pointer())
    for field, value in (("data", data), ("itemsize", item_bytes), ("nitems", items)):
        made = builder.insert_value(made, value, fields.get_field_position(field))
    for field, values in (("shape", shape), ("strides", strides)):
        for axis, value in enumerate(values):
            made = builder.insert_value(made, value, [fields.get_field_position(field), axis])
    return made
