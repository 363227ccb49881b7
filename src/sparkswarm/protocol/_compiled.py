"""The one place where hot loops are compiled.

``compiled`` is numba's ``njit`` with the settings that every kernel here shares, typed so
that mypy still sees the signature of the function below it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile ``function`` to machine code on first use and keep the result on disk.

    ``cache=True`` because every new Python worker would otherwise spend about a second
    compiling. The interpreter's lock stays held: the arrays have one thread as their owner.
    """
    return cast(_Function, numba.njit(cache=True)(function))
