"""Ranks: where the values of a column lie among the literals that conditions compare them with.

Owns how columns of any type become ranks, which
:mod:`sparkswarm.apps.subscriptions.predicates` defines. No precision is lost: integers are compared
as integers, also with a literal such as 0.5.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.subscriptions.keywords import is_string
from sparkswarm.apps.subscriptions.predicates import Operand
from sparkswarm.compiled import BoolArray, FloatArray, IntArray, LongArray, compiled
from sparkswarm.errors import InputError

_MIN, _MAX = -(2**63), 2**63 - 1


class LiteralRanks:
    """Finds the ranks of values among the literals of a column, which is of one of ``KINDS``."""

    def __init__(self, operand: Operand, kind: str) -> None:
        self.name = operand.name
        self._operand = operand
        self._kind = kind

    def ranks(self, column: pa.ChunkedArray) -> IntArray:
        """Return the rank of each value; null and NaN have rank 0.

        Raises
        ------
        InputError
            If the column is not of the declared kind.
        """
        if self._kind == "text":
            if not is_string(column.type):
                raise _wrong_type(self.name, self._kind, column.type)
            return self._ranks_of_strings(column.cast(pa.large_string()).combine_chunks())
        values, null = _numbers(column, self._kind, self.name)
        floors, ceilings, below = self._integers if values.dtype.kind == "i" else self._floats
        ranks = np.empty(len(values), np.int32)
        _rank_numbers(values, null, floors, ceilings, below, ranks)
        return ranks

    # Of each literal the largest 64-bit integer, or float, that is not above it, and the smallest
    # that is not below it. Whether a column has integers or floats is known when it comes.

    @cached_property
    def _integers(self) -> tuple[LongArray, LongArray, int]:
        """Return both, without literals outside 64 bits, and how many of those are below."""
        literals = [value for value in self._operand.literals if not isinstance(value, str)]
        inside = [value for value in literals if _MIN <= value <= _MAX]
        floors = np.array([math.floor(value) for value in inside], np.int64)
        ceilings = np.array([math.ceil(value) for value in inside], np.int64)
        return floors, ceilings, sum(value < _MIN for value in literals)

    @cached_property
    def _floats(self) -> tuple[FloatArray, FloatArray, int]:
        floors, ceilings = [], []
        for value in self._operand.literals:
            near = float(value)
            floors.append(near if near <= value else math.nextafter(near, -math.inf))  # type: ignore[operator]
            ceilings.append(near if near >= value else math.nextafter(near, math.inf))  # type: ignore[operator]
        return np.array(floors, np.float64), np.array(ceilings, np.float64), 0

    @cached_property
    def _strings(self) -> pa.LargeStringArray:
        return pa.array(self._operand.literals, pa.large_string())

    def _ranks_of_strings(self, column: pa.LargeStringArray) -> IntArray:
        found = pc.index_in(column, value_set=self._strings).fill_null(-1).to_numpy()
        ranks: IntArray = (2 * found + 2).astype(np.int32)
        others = found < 0
        ranks[others] = self._odd_ranks(column.filter(pa.array(others)))
        if column.null_count:
            ranks[column.is_null().to_numpy(zero_copy_only=False)] = 0
        return ranks

    def _odd_ranks(self, column: pa.LargeStringArray) -> IntArray | int:
        """Return the ranks of strings that are not literals; any rank for null."""
        if not self._operand.ordered or not len(column):
            return 1
        encoded = column.dictionary_encode()
        # Arrow sorts strings by their bytes, which is the order of their code points.
        together = pa.concat_arrays([self._strings, encoded.dictionary])
        order = pc.sort_indices(together).to_numpy()
        before = np.zeros(len(together) + 1, np.int32)
        before[order] = np.cumsum(order < len(self._strings))
        rows = encoded.indices.fill_null(-1).to_numpy()
        odd: IntArray = 2 * before[len(self._strings) :][rows] + 1
        return odd


def check_kind(name: str, kind: str, found: pa.DataType) -> None:
    """Raise InputError if a column of a type cannot be one of a kind of ``KINDS``."""
    if kind != "text":
        _numbers(pa.chunked_array([], type=found), kind, name)
    elif not is_string(found):
        raise _wrong_type(name, kind, found)


def _wrong_type(name: str, kind: str, found: pa.DataType) -> InputError:
    return InputError(
        f"column {name} of the points is declared as {kind}, but it is {found}; cast it first"
    )


def _numbers(
    column: pa.ChunkedArray, kind: str, name: str
) -> tuple[LongArray | FloatArray, BoolArray]:
    """Return values as 64-bit integers or floats, and a mask of nulls, empty if there are none."""
    types, found = pa.types, column.type
    whole = types.is_integer(found) and found != pa.uint64()
    factor = 1
    if types.is_null(found) or (kind == "boolean" and types.is_boolean(found)):
        column = column.cast(pa.int8())
    elif kind == "time" and types.is_timestamp(found):
        column = column.cast(pa.int64())
        factor = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": -1_000}[found.unit]
    elif kind == "time" and types.is_date32(found):
        column, factor = column.cast(pa.int32()), 86_400_000_000
    elif kind == "number" and types.is_decimal(found):
        # Through strings: a direct cast is often not the nearest float.
        column = column.cast(pa.string()).cast(pa.float64())
    elif not (whole and kind != "boolean") and not (types.is_floating(found) and kind == "number"):
        raise _wrong_type(name, kind, found)
    wide = pa.float64() if types.is_floating(column.type) else pa.int64()
    array = column.cast(wide).combine_chunks()
    null = np.empty(0, np.bool_)
    if array.null_count:
        null = array.is_null().to_numpy(zero_copy_only=False)
        array = array.fill_null(0)
    values = array.to_numpy()
    if factor > 1:  # times that do not fit 64 bits are clamped
        values = np.clip(values, -(_MAX // factor), _MAX // factor) * factor
    elif factor < 0:
        values = values // -factor
    return _read_only(values), _read_only(null)


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view, so that the kernel is compiled for one type only."""
    view = array.view()
    view.flags.writeable = False
    return view


@compiled
def _rank_numbers(
    values: Any, null: BoolArray, floors: Any, ceilings: Any, below: int, ranks: IntArray
) -> None:
    """Find the rank of each number by binary search."""
    for i in range(len(values)):
        value = values[i]
        if value != value or (len(null) and null[i]):
            ranks[i] = 0
            continue
        first, length = 0, len(floors)
        while length > 0:
            half = (length + 1) >> 1
            first += half if floors[first + half - 1] < value else 0
            length -= half
        equal = first < len(ceilings) and ceilings[first] <= value
        ranks[i] = 2 * (below + first) + 1 + equal
