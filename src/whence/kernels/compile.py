"""How kernels are compiled: numba without `fastmath`, so that floats keep their bits.

Only the function that Python calls is cached on disk. Numba decides by a function's own file whether what it
finds there is still right; for a function made of others, from other files, that would run yesterday's rules
after an update. So the key of what is cached has the text of all kernels in it, and what it is made of is
never cached by itself.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, wraps
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.extending
import numpy.typing as npt
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.cpython.unsafe import numbers

Array = npt.NDArray[Any]
F = TypeVar("F", bound=Callable[..., Any])


class PartLibrary(JITCodeLibrary):
    """Code that only becomes a part of its callers: linked, and not made machine code by itself."""

    def _optimize_functions(self, ll_module: Any) -> None:
        """As numba's, but not for the many functions that are only named here."""
        codegen: Any = self._codegen
        ll_module.data_layout = codegen._data_layout
        for function in ll_module.functions:
            if not function.is_declaration:
                passes, builder = codegen._function_pass_manager()
                passes.run(function, builder)

    def _optimize_final_module(self) -> None:
        """Its caller's module is optimised, once for all parts."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0  # "no such symbol": Python cannot call it

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, env: Any) -> None:
        """There is no machine code that could look for it."""


class PartCompiler(Compiler):
    """Numba's compiler, but for where it puts the code."""

    def define_pipelines(self) -> Any:
        state, library = self.state, cast(Any, PartLibrary)
        state.library = library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().define_pipelines()  # type: ignore[no-untyped-call]


# Functions that make no array need not count references to those they are given: counting would be most of
# the work of a kernel that looks into twenty arrays in each step (VCube's is 7 times as fast without).
_BARE = {"_nrt": False}
# What Python would need to call a function with twenty arrays is dearer to compile than most functions.
_NOT_FOR_PYTHON = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": PartCompiler}
_njit: Any = numba.njit  # its stubs do not know all of its options
_types: Any = numba.types
_extending: Any = numba.extending
_cgutils: Any = cgutils


def inner(function: F) -> F:
    """A function that only kernels call: what Python would need to call it is not made."""
    return cast(F, _in_one_version(_njit(**_BARE, **_NOT_FOR_PYTHON)(function)))


def inlined(function: F) -> F:
    """As `inner`, and made part of its caller: to pass twenty arrays can cost more than the work itself."""
    return cast(F, _in_one_version(_njit(**_BARE, **_NOT_FOR_PYTHON, forceinline=True)(function)))


def _in_one_version(made: Any) -> Any:
    """Compile for 64 bits whatever whole number a caller has: each width and literal would be a version."""
    template_for = made.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        return template_for([_wide(each) for each in args], kws)

    made.get_call_template = get_call_template
    return made


def _wide(argument: Any) -> Any:
    plain = _types.unliteral(argument)
    return _types.int64 if isinstance(plain, _types.Integer) and plain.signed else plain


def _prefetch(context: Any, array: Any, row: Any, column: Any) -> Any:
    """Ask for a place of an array with two dimensions before it is needed; it must exist."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        made = target.make_array(kind)(target, builder, arguments[0])
        indices = list(arguments[1:])
        place = _cgutils.get_item_pointer(target, builder, kind, made, indices)
        byte, flag = _cgutils.voidptr_t, _cgutils.int32_t
        made_of = _cgutils.ir.FunctionType(_cgutils.ir.VoidType(), [byte, flag, flag, flag])
        ask = builder.module.declare_intrinsic("llvm.prefetch", [byte], made_of)
        to_read, everywhere, data = flag(0), flag(3), flag(1)
        builder.call(ask, [builder.bitcast(place, byte), to_read, everywhere, data])
        return target.get_dummy_value()

    return _types.void(array, _types.intp, _types.intp), generate


prefetch: Any = _extending.intrinsic(_prefetch)
trailing_zeros: Any = numbers.trailing_zeros  # of a word that is not 0


def cached(function: F) -> F:
    """A function that Python calls: compiled on its first call, or by an earlier process.

    It must have `fingerprint()` in its closure, which numba takes for a part of the cache's key. The name of
    the cache's index has it too: numba unpickles a whole index before it compares keys, and one of another
    release may name classes that are no more.
    """
    function.__qualname__ += f"_{fingerprint():x}"
    made = _njit(cache=True, no_cfunc_wrapper=True, **_BARE)(function)
    made.compile = _without_collector(made.compile)
    return cast(F, made)


def _without_collector(work: F) -> F:
    """Compiling makes millions of objects that all stay until its end: to look for garbage is in vain."""

    @wraps(work)
    def done(*arguments: Any) -> Any:
        was_on = gc.isenabled()
        gc.disable()
        try:
            return work(*arguments)
        finally:
            if was_on:
                gc.enable()

    return cast(F, done)


def is_compiled(function: Callable[..., Any]) -> bool:
    """Return whether a `cached` function need not be compiled: this process or an earlier one has."""
    return bool(cast(Any, function).signatures) or _mark(function).exists()


def note_compiled(function: Callable[..., Any]) -> None:
    """Leave word for later processes that a `cached` function is compiled, beside what numba has cached."""
    mark = _mark(function)
    if not mark.exists():
        with suppress(OSError):  # a cache that cannot be written: the next process compiles again
            mark.touch()


def _mark(function: Callable[..., Any]) -> Path:
    made: Any = function
    return Path(made.stats.cache_path) / f"{made.py_func.__module__}-{fingerprint():x}.compiled"


_NOT_COMPILED = ("kernel.py", "contract.py", "__main__.py")  # the side that Python calls


@cache
def fingerprint() -> int:
    """A number that changes with the text of any kernel, or of what they take constants from."""
    package = files("whence")  # not a path: a cluster's executors import the package from a zip
    kernels = _modules(package / "kernels")
    others = (
        "core/sizes.py", "core/rng.py", "protocols/vcube/wire.py", "protocols/deadline/odca.py",
        "protocols/deadline/tdca.py", "protocols/deadline/wire.py", "sim/links_overlay.py",
        "sim/workload.py", "trace/schema.py",
    )  # fmt: skip
    digest = hashlib.sha256()
    for file in kernels:
        digest.update(file.read_bytes())
    for name in others:
        digest.update(package.joinpath(*name.split("/")).read_bytes())
    return int.from_bytes(digest.digest()[:7], "big") | 1


def _modules(folder: Traversable) -> Iterator[Traversable]:
    """Yield the modules of a package and of those in it that are compiled, in the order of their names."""
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.is_dir():
            yield from _modules(each)
        elif each.name.endswith(".py") and each.name not in _NOT_COMPILED:
            yield each
