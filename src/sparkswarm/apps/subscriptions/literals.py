"""Places: what predicates need to know of the values in a column.

Owns how columns of any type become places among literals, see
``predicates``. Values keep all their digits on the way: whole numbers are
compared as such, and with a literal such as 0.5 exactly.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkswarm.apps.subscriptions.keywords import is_text
from sparkswarm.apps.subscriptions.predicates import Operand
from sparkswarm.compiled import BoolArray, FloatArray, IntArray, LongArray, compiled
from sparkswarm.errors import InputError

_LEAST, _MOST = -(2**63), 2**63 - 1


class Ruler:
    """The literals of a column, laid out to find the places of values.

    Parameters
    ----------
    operand
        The column and its literals.
    kind
        What the column holds, one of :data:`sparkswarm.apps.subscriptions.predicates.KINDS`.
    """

    def __init__(self, operand: Operand, kind: str) -> None:
        self.name = operand.name
        self._operand = operand
        self._kind = kind

    def places(self, column: pa.ChunkedArray) -> IntArray:
        """Return the place of each value; null and NaN have the place 0.

        Raises
        ------
        InputError
            If the column is not of the kind that was declared.
        """
        if self._kind == "text":
            if not is_text(column.type):
                raise _unfit(self.name, self._kind, column.type)
            return self._places_of_texts(column.cast(pa.large_string()).combine_chunks())
        values, null = _numbers(column, self._kind, self.name)
        downs, ups, below = self._integers if values.dtype.kind == "i" else self._floats
        places = np.empty(len(values), np.int32)
        _place(values, null, downs, ups, below, places)
        return places

    # Literals between values: for each the largest integer, or float, of 64 bits that is not
    # above it, and the smallest that is not below. Which of the two a column needs is only known
    # when it comes.

    @cached_property
    def _integers(self) -> tuple[LongArray, LongArray, int]:
        """Return both, without those beyond all integers, and how many are below these."""
        literals = [value for value in self._operand.literals if not isinstance(value, str)]
        inside = [value for value in literals if _LEAST <= value <= _MOST]
        downs = np.array([math.floor(value) for value in inside], np.int64)
        ups = np.array([math.ceil(value) for value in inside], np.int64)
        return downs, ups, sum(value < _LEAST for value in literals)

    @cached_property
    def _floats(self) -> tuple[FloatArray, FloatArray, int]:
        downs, ups = [], []
        for value in self._operand.literals:
            near = float(value)
            downs.append(near if near <= value else math.nextafter(near, -math.inf))  # type: ignore[operator]
            ups.append(near if near >= value else math.nextafter(near, math.inf))  # type: ignore[operator]
        return np.array(downs, np.float64), np.array(ups, np.float64), 0

    @cached_property
    def _texts(self) -> pa.LargeStringArray:
        return pa.array(self._operand.literals, pa.large_string())

    def _places_of_texts(self, column: pa.LargeStringArray) -> IntArray:
        found = pc.index_in(column, value_set=self._texts).fill_null(-1).to_numpy()
        places: IntArray = (2 * found + 2).astype(np.int32)
        others = found < 0
        places[others] = self._odd_places(column.filter(pa.array(others)))
        if column.null_count:
            places[column.is_null().to_numpy(zero_copy_only=False)] = 0
        return places

    def _odd_places(self, column: pa.LargeStringArray) -> IntArray | int:
        """Return the places of texts that are no literals, anything for null."""
        if not self._operand.ordered or not len(column):
            return 1
        encoded = column.dictionary_encode()
        # Arrow sorts texts by their bytes, which is the order of their characters' numbers.
        together = pa.concat_arrays([self._texts, encoded.dictionary])
        order = pc.sort_indices(together).to_numpy()
        before = np.zeros(len(together) + 1, np.int32)
        before[order] = np.cumsum(order < len(self._texts))
        which = encoded.indices.fill_null(-1).to_numpy()
        odd: IntArray = 2 * before[len(self._texts) :][which] + 1
        return odd


def _unfit(name: str, kind: str, found: pa.DataType) -> InputError:
    return InputError(
        f"column {name} of the points is declared as {kind}, but it is {found}; cast it first"
    )


def _numbers(
    column: pa.ChunkedArray, kind: str, name: str
) -> tuple[LongArray | FloatArray, BoolArray]:
    """Return values as 64-bit integers where they are whole by type, else as 64-bit floats.

    Also return which are null, or nothing if none is.
    """
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
        # By way of texts: a direct cast is often not the nearest float.
        column = column.cast(pa.string()).cast(pa.float64())
    elif not (whole and kind != "boolean") and not (types.is_floating(found) and kind == "number"):
        raise _unfit(name, kind, found)
    wide = pa.float64() if types.is_floating(column.type) else pa.int64()
    array = column.cast(wide).combine_chunks()
    null = np.empty(0, np.bool_)
    if array.null_count:
        null = array.is_null().to_numpy(zero_copy_only=False)
        array = array.fill_null(0)
    values = array.to_numpy()
    if factor > 1:  # a time too far away to be counted is put as far away as can be
        values = np.clip(values, -(_MOST // factor), _MOST // factor) * factor
    elif factor < 0:
        values = values // -factor
    return _fixed(values), _fixed(null)


def _fixed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view that cannot be written: one kind of array, one compilation."""
    view = array.view()
    view.flags.writeable = False
    return view


@compiled
def _place(
    values: Any, null: BoolArray, downs: Any, ups: Any, below: int, places: IntArray
) -> None:
    """Find the place of each number by binary search."""
    for i in range(len(values)):
        value = values[i]
        if value != value or (len(null) and null[i]):
            places[i] = 0
            continue
        first, length = 0, len(downs)
        while length > 0:
            half = (length + 1) >> 1
            first += half if downs[first + half - 1] < value else 0
            length -= half
        equal = first < len(ups) and ups[first] <= value
        places[i] = 2 * (below + first) + 1 + equal
