"""Arrays and tables in a file come back as they were, without a copy."""

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

from sparkswarm.errors import StoreError
from sparkswarm.store.files import Files
from sparkswarm.store.formats import (
    arrays_from_bytes,
    arrays_to_bytes,
    table_from_bytes,
    tables_to_bytes,
)

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


def same(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Say whether two arrays agree to the last bit, NaN and the sign of zero too."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def address_range(content: pa.Buffer) -> range:
    return range(content.address, content.address + content.size + 1)


@given(NAMED_ARRAYS)
def test_arrays_come_back_as_they_were(arrays: dict[str, npt.NDArray[Any]]) -> None:
    found = arrays_from_bytes(arrays_to_bytes(arrays))
    assert list(found) == list(arrays)
    assert all(same(found[name], arrays[name]) for name in arrays)


@given(NAMED_ARRAYS)
def test_what_comes_back_is_aligned_and_cannot_be_written(
    arrays: dict[str, npt.NDArray[Any]],
) -> None:
    for array in arrays_from_bytes(arrays_to_bytes(arrays)).values():
        assert array.ctypes.data % array.itemsize == 0
        assert array.flags.c_contiguous
        assert array.flags.aligned
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1


@given(NAMED_ARRAYS)
def test_what_comes_back_is_a_view_of_the_content(arrays: dict[str, npt.NDArray[Any]]) -> None:
    content = arrays_to_bytes(arrays)
    for array in arrays_from_bytes(content).values():
        if array.size:
            assert array.ctypes.data in address_range(content)


@pytest.mark.parametrize("dtype", [*DTYPES, *FLOATS])
@pytest.mark.parametrize("shape", [(0,), (0, 4), (1,), (3, 4), (4, 1)])
def test_every_dtype_and_shape_in_use_comes_back(dtype: type, shape: tuple[int, ...]) -> None:
    is_float = np.issubdtype(dtype, np.floating)
    limits = np.finfo(dtype) if is_float else np.iinfo(dtype)
    array = np.resize(np.array([limits.min, limits.max, 0, 1], dtype=dtype), shape)
    assert same(arrays_from_bytes(arrays_to_bytes({"a": array}))["a"], array)


def test_truth_values_travel_as_bytes() -> None:
    truths = np.array([True, False, True])
    assert arrays_from_bytes(arrays_to_bytes({"a": truths.view(np.uint8)}))["a"].view(
        bool
    ).tolist() == [1, 0, 1]


def test_floats_that_equal_nothing_come_back() -> None:
    odd = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 5e-324])
    assert same(arrays_from_bytes(arrays_to_bytes({"a": odd}))["a"], odd)


def test_an_array_need_not_be_contiguous() -> None:
    whole = np.arange(24.0).reshape(4, 6)
    arrays = {"strided": whole[0, ::2], "transposed": whole.T, "part": whole[1:3, 2:4]}
    found = arrays_from_bytes(arrays_to_bytes(arrays))
    assert all(same(found[name], np.ascontiguousarray(arrays[name])) for name in arrays)


def test_no_arrays_come_back_as_none() -> None:
    assert arrays_from_bytes(arrays_to_bytes({})) == {}


@pytest.mark.parametrize("name", ["", "a b", "ü✓", "a.b", "0"])
def test_an_array_may_have_any_name(name: str) -> None:
    assert list(arrays_from_bytes(arrays_to_bytes({name: np.arange(2)}))) == [name]


def test_a_mapped_file_is_not_copied_and_outlives_its_name(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    arrays = {
        "odd": np.arange(3, dtype=np.int8),
        "boxes": np.arange(400_000.0).reshape(-1, 4),
        "ids": np.arange(100_000),
    }
    ref = files.write("a", arrays_to_bytes(arrays))
    before = pa.total_allocated_bytes()
    content = files.mmap(ref)
    found = arrays_from_bytes(content)
    assert pa.total_allocated_bytes() - before < 10_000
    assert all(found[name].ctypes.data in address_range(content) for name in arrays)
    assert all(array.ctypes.data % array.itemsize == 0 for array in found.values())
    files.delete(["a"])
    del content
    assert all(same(found[name], arrays[name]) for name in arrays)


def test_the_same_arrays_make_the_same_bytes() -> None:
    arrays = {"a": np.arange(5), "b": np.zeros((2, 4))}
    assert arrays_to_bytes(arrays).equals(arrays_to_bytes(dict(arrays)))


# -- tables -------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.text()), max_size=4), max_size=5))
def test_tables_are_found_where_they_begin(lots):
    some = [
        pa.table(
            {"number": [n for n, _ in lot], f"text{i}": pa.array([t for _, t in lot], pa.utf8())}
        ).replace_schema_metadata({"place": str(i)})
        for i, lot in enumerate(lots)
    ]
    content, offsets = tables_to_bytes(some)
    assert len(offsets) == len(some)
    for offset, table in zip(offsets, some, strict=True):
        again = table_from_bytes(content, offset)
        assert again.equals(table, check_metadata=True)


def test_a_table_in_chunks_becomes_one_chunk():
    table = pa.concat_tables([pa.table({"n": [1, 2]}), pa.table({"n": [3]})])
    content, (offset,) = tables_to_bytes([table])
    assert table_from_bytes(content, offset).column("n").num_chunks == 1


def test_a_table_is_mapped_not_copied(tmp_path):
    content, offsets = tables_to_bytes([pa.table({"n": np.arange(k)}) for k in (3, 1000)])
    (tmp_path / "tables").write_bytes(content)
    with pa.memory_map(str(tmp_path / "tables")) as file:
        mapped = file.read_buffer()
    array = table_from_bytes(mapped, offsets[1]).column("n").to_numpy()
    address = array.__array_interface__["data"][0]
    assert mapped.address <= address < mapped.address + mapped.size


# -- versions -----------------------------------------------------------------------------------


def test_a_file_of_another_version_is_refused() -> None:
    arrays, table = {"a": np.arange(2)}, pa.table({"a": [1, 2]})
    assert list(arrays_from_bytes(arrays_to_bytes(arrays, version=2), 2)) == ["a"]
    content, (offset,) = tables_to_bytes([table], version=2)
    assert table_from_bytes(content, offset, version=2).column_names == ["a"]
    with pytest.raises(StoreError, match=r"version 2 of its format, .* reads 1; use the version"):
        arrays_from_bytes(arrays_to_bytes(arrays, version=2))
    with pytest.raises(StoreError, match="version 2 of its format"):
        table_from_bytes(content, offset)
    with pytest.raises(StoreError, match="version 1 of its format"):
        arrays_from_bytes(arrays_to_bytes(arrays), 2)
