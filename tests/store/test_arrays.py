"""Arrays in a file come back as they were, without a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sparkswarm.store.arrays import pack, unpack
from sparkswarm.store.files import Files

DTYPES = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
FLOATS = (np.float32, np.float64)

NAMED_ARRAYS = st.dictionaries(
    st.text(min_size=1, max_size=8),
    hnp.arrays(
        st.sampled_from([*DTYPES, *FLOATS]),
        st.one_of(st.tuples(st.integers(0, 9)), st.tuples(st.integers(0, 9), st.integers(1, 5))),
    ),
    max_size=5,
)
FACTS = st.dictionaries(
    st.text(max_size=8),
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)
    ),
    max_size=3,
)  # fmt: skip


def same(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Say whether two arrays agree to the last bit, NaN and the sign of zero too."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def address_range(content: pa.Buffer) -> range:
    return range(content.address, content.address + content.size + 1)


@given(NAMED_ARRAYS, FACTS)
def test_arrays_and_facts_come_back_as_they_were(
    arrays: dict[str, npt.NDArray[Any]], facts: dict[str, Any]
) -> None:
    found, meta = unpack(pack(arrays, facts))
    assert list(found) == list(arrays)
    assert all(same(found[name], arrays[name]) for name in arrays)
    assert meta == facts


@given(NAMED_ARRAYS)
def test_what_comes_back_is_aligned_and_cannot_be_written(
    arrays: dict[str, npt.NDArray[Any]],
) -> None:
    for array in unpack(pack(arrays))[0].values():
        assert array.ctypes.data % array.itemsize == 0
        assert array.flags.c_contiguous
        assert array.flags.aligned
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1


@given(NAMED_ARRAYS)
def test_what_comes_back_is_a_view_of_the_content(arrays: dict[str, npt.NDArray[Any]]) -> None:
    content = pack(arrays)
    for array in unpack(content)[0].values():
        if array.size:
            assert array.ctypes.data in address_range(content)


@pytest.mark.parametrize("dtype", [*DTYPES, *FLOATS])
@pytest.mark.parametrize("shape", [(0,), (0, 4), (1,), (3, 4), (4, 1)])
def test_every_dtype_and_shape_in_use_comes_back(dtype: type, shape: tuple[int, ...]) -> None:
    is_float = np.issubdtype(dtype, np.floating)
    limits = np.finfo(dtype) if is_float else np.iinfo(dtype)
    array = np.resize(np.array([limits.min, limits.max, 0, 1], dtype=dtype), shape)
    assert same(unpack(pack({"a": array}))[0]["a"], array)


def test_truth_values_travel_as_bytes() -> None:
    truths = np.array([True, False, True])
    assert unpack(pack({"a": truths.view(np.uint8)}))[0]["a"].view(bool).tolist() == [1, 0, 1]


def test_floats_that_equal_nothing_come_back() -> None:
    odd = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 5e-324])
    assert same(unpack(pack({"a": odd}))[0]["a"], odd)


def test_an_array_need_not_lie_in_one_stretch() -> None:
    whole = np.arange(24.0).reshape(4, 6)
    arrays = {"strided": whole[0, ::2], "transposed": whole.T, "part": whole[1:3, 2:4]}
    found, _ = unpack(pack(arrays))
    assert all(same(found[name], np.ascontiguousarray(arrays[name])) for name in arrays)


def test_no_arrays_and_no_facts_come_back_as_none() -> None:
    assert unpack(pack({})) == ({}, {})
    assert unpack(pack({}, {"a": [1, {"b": None}]})) == ({}, {"a": [1, {"b": None}]})


@pytest.mark.parametrize("name", ["", "a b", "ü✓", "a.b", "0"])
def test_an_array_may_have_any_name(name: str) -> None:
    assert list(unpack(pack({name: np.arange(2)}))[0]) == [name]


def test_a_mapped_file_is_not_copied_and_outlives_its_name(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    arrays = {
        "odd": np.arange(3, dtype=np.int8),
        "boxes": np.arange(400_000.0).reshape(-1, 4),
        "ids": np.arange(100_000),
    }
    ref = files.write("a", pack(arrays))
    before = pa.total_allocated_bytes()
    content = files.map(ref)
    found, _ = unpack(content)
    assert pa.total_allocated_bytes() - before < 10_000
    assert all(found[name].ctypes.data in address_range(content) for name in arrays)
    assert all(array.ctypes.data % array.itemsize == 0 for array in found.values())
    files.delete(["a"])
    del content
    assert all(same(found[name], arrays[name]) for name in arrays)


def test_the_same_arrays_make_the_same_bytes() -> None:
    arrays = {"a": np.arange(5), "b": np.zeros((2, 4))}
    assert pack(arrays, {"x": 1}).equals(pack(dict(arrays), {"x": 1}))
