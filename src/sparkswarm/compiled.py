"""Compiled kernels: the decorator they all share, a hash, and the types of their arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

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
