"""Compiled kernels: their decorator, what numba lacks, a hash, and the types of their arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile ``function`` to machine code on first use and keep the result on disk.

    This is numba's ``njit``, typed so that mypy still sees the function's signature.
    ``cache=True`` because every new Python worker would otherwise spend about a second
    compiling. The interpreter's lock stays held: each array is used by one thread only.
    """
    return cast(_Function, numba.njit(cache=True)(function))


def _prefetch(typing: Any, array: Any, index: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = cast(Any, make_array)(signature.args[0])(context, builder, arguments[0]).data
        address = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        # To be read, to be kept in all caches, data.
        builder.call(hint, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, index), code


prefetch = cast(Callable[[npt.NDArray[Any], np.uint64], None], intrinsic(_prefetch))
"""In compiled code: ask the processor for an element of a flat array that is needed soon, and go
on. Takes the array and the element's number; one beyond the end does no harm."""


@compiled
def hash64(number: np.uint64) -> np.uint64:
    """Return the hash of a number: the finaliser of splitmix64."""
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


_FNV_OFFSET = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)


@compiled
def hash_texts(bounds: LongArray, data: ByteArray) -> LongArray:
    """Return the hash of each text, given where it begins among the bytes of all."""
    out = np.empty(len(bounds) - 1, np.int64)
    for i in range(len(out)):
        value = _FNV_OFFSET
        for j in range(bounds[i], bounds[i + 1]):
            value = (value ^ np.uint64(data[j])) * _FNV_PRIME
        out[i] = np.int64(hash64(value))
    return out
