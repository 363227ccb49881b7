"""Prefetch: asks the processor for memory before it is needed, which numba itself cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array


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
