"""Several tables in one file are found again, mapped and not copied."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.store import tables


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.text()), max_size=4), max_size=5))
def test_tables_are_found_where_they_begin(lots):
    some = [
        pa.table(
            {"number": [n for n, _ in lot], f"text{i}": pa.array([t for _, t in lot], pa.utf8())}
        ).replace_schema_metadata({"place": str(i)})
        for i, lot in enumerate(lots)
    ]
    content, begins = tables.pack(some)
    assert len(begins) == len(some)
    for begin, table in zip(begins, some, strict=True):
        again = tables.unpack(content, begin)
        assert again.equals(table, check_metadata=True)


def test_a_table_in_pieces_becomes_one_piece():
    table = pa.concat_tables([pa.table({"n": [1, 2]}), pa.table({"n": [3]})])
    content, (begin,) = tables.pack([table])
    assert tables.unpack(content, begin).column("n").num_chunks == 1


def test_a_table_is_mapped_not_copied(tmp_path):
    content, begins = tables.pack([pa.table({"n": np.arange(k)}) for k in (3, 1000)])
    (tmp_path / "tables").write_bytes(content)
    with pa.memory_map(str(tmp_path / "tables")) as file:
        mapped = file.read_buffer()
    array = tables.unpack(mapped, begins[1]).column("n").to_numpy()
    address = array.__array_interface__["data"][0]
    assert mapped.address <= address < mapped.address + mapped.size
