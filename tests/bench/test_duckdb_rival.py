"""DuckDB as a rival finds every result."""

import pyarrow.parquet as pq
import pytest

from sparkswarm.bench.duckdb_rival import run_duckdb
from sparkswarm.bench.inputs import brute_force_sample, write_inputs


def test_duckdb_finds_every_result(tmp_path):
    pytest.importorskip("duckdb")
    inputs = write_inputs(tmp_path / "inputs", 2, 2_000, 3_000, side=0.02)
    assert len(run_duckdb(inputs, 2, 2, tmp_path / "found")) == 2
    for batch in range(2):
        ids, counts = brute_force_sample(inputs, batch, False, inputs.points)
        found = pq.read_table(tmp_path / "found" / f"{batch}.parquet").to_pandas()
        assert found.groupby("id").size().to_dict() == {
            int(i): int(n) for i, n in zip(ids, counts, strict=True) if n
        }
        assert not found.duplicated().any()
