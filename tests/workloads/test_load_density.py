"""Reading densities from files: every format, either orientation, every refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from sparkswarm.errors import WorkloadError
from sparkswarm.geometry import Bounds
from sparkswarm.workloads import load_density

BOUNDS = Bounds(-10.0, 20.0, 30.0, 25.0)
COUNTS = np.array([[5, 0, 0, 1], [0, 2, 0, 0], [0, 0, 3, 9]])

TWEETS = Path(__file__).parents[3] / "shared" / "data" / "us_tweet_counts_grid.parquet"


def columns_of(counts: np.ndarray, count_name: str = "count") -> dict[str, Any]:
    """Return the non-empty cells as columns, as the files keep them."""
    row, column = np.nonzero(counts)
    return {"lat_idx": row, "lon_idx": column, count_name: counts[row, column]}


def with_centres(columns: dict[str, Any], bounds: Bounds, shape: tuple[int, int]) -> dict[str, Any]:
    """Add the centres of the cells."""
    rows, cols = shape
    return columns | {
        "lon": bounds.min_x + (columns["lon_idx"] + 0.5) * bounds.width / cols,
        "lat": bounds.min_y + (columns["lat_idx"] + 0.5) * bounds.height / rows,
    }


def write(path: Path, columns: dict[str, Any]) -> Path:
    table = pa.table(columns)
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    return path


@pytest.fixture(params=[".parquet", ".csv"])
def table_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"cells{request.param}"


class TestRoundTrips:
    @pytest.mark.parametrize("count_name", ["count", "tweets"])
    def test_table(self, table_path: Path, count_name: str) -> None:
        density = load_density(write(table_path, columns_of(COUNTS, count_name)), BOUNDS)
        assert (density.name, density.bounds) == ("cells", BOUNDS)
        np.testing.assert_allclose(density.weights, COUNTS / COUNTS.sum())

    def test_npy(self, tmp_path: Path) -> None:
        np.save(tmp_path / "cells.npy", COUNTS)
        density = load_density(str(tmp_path / "cells.npy"), BOUNDS)
        assert (density.name, density.bounds) == ("cells", BOUNDS)
        np.testing.assert_allclose(density.weights, COUNTS / COUNTS.sum())

    def test_centres_give_the_bounds(self, table_path: Path) -> None:
        columns = with_centres(columns_of(COUNTS), BOUNDS, COUNTS.shape)
        found = load_density(write(table_path, columns)).bounds
        for side in ("min_x", "min_y", "max_x", "max_y"):
            assert getattr(found, side) == pytest.approx(getattr(BOUNDS, side), abs=1e-9)

    def test_bounds_given_override_those_implied(self, table_path: Path) -> None:
        other = Bounds(0, 0, 1, 1)
        columns = with_centres(columns_of(COUNTS), BOUNDS, COUNTS.shape)
        assert load_density(write(table_path, columns), other).bounds == other

    def test_cells_listed_twice_add_up(self, table_path: Path) -> None:
        columns = {"lat_idx": [0, 0, 1], "lon_idx": [1, 1, 0], "count": [1, 2, 1]}
        density = load_density(write(table_path, columns), BOUNDS)
        np.testing.assert_allclose(density.weights, [[0, 0.75], [0.25, 0]])

    def test_an_axis_that_runs_backwards_is_turned_round(self, table_path: Path) -> None:
        """Pictures count rows from the north: what matters is where the cells lie."""
        columns = with_centres(columns_of(COUNTS), BOUNDS, COUNTS.shape)
        rows, cols = COUNTS.shape
        columns["lat_idx"] = rows - 1 - columns["lat_idx"]
        columns["lon_idx"] = cols - 1 - columns["lon_idx"]
        write(table_path, columns)
        for density in (load_density(table_path), load_density(table_path, BOUNDS)):
            np.testing.assert_allclose(density.weights, COUNTS / COUNTS.sum())
            assert density.bounds.min_y == pytest.approx(BOUNDS.min_y)
            assert density.bounds.max_x == pytest.approx(BOUNDS.max_x)


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "says"),
        [
            pytest.param({"lat_idx": None}, "needs the columns lat_idx.*found", id="no rows"),
            pytest.param({"count": None}, "one of tweets or count, found lat_idx", id="no counts"),
            pytest.param({"count": [1, -3]}, r"non-negative, got -3\.0", id="negative count"),
            pytest.param({"count": [1.0, float("nan")]}, r"finite|lacks 1 value", id="NaN count"),
            pytest.param({"count": ["1", "many"]}, "must hold numbers", id="count in words"),
            pytest.param({"count": [0, 0]}, "no positive weight", id="all counts 0"),
            pytest.param(
                {"lat_idx": [0, -1]}, "from 0, got -1, which is out of range", id="negative index"
            ),
            pytest.param({"lon_idx": [0, 10**9]}, "out of range", id="index too large"),
            pytest.param({"lon_idx": [0, 2**62]}, "out of range", id="index far too large"),
            pytest.param({"lat_idx": [0, 2**14], "lon_idx": [0, 2**14]}, "larger cells", id="many"),
            pytest.param({"lat_idx": [0.5, 1.0]}, "must hold integers", id="index not whole"),
            pytest.param({"lon_idx": [None, 1]}, "lacks 1 values", id="index missing"),
            pytest.param({}, "pass bounds=", id="no bounds"),
            pytest.param(
                {"lat": [1.0, 1.0], "lon": [0.0, 1.0]}, "lat must be the centre", id="lat constant"
            ),
            pytest.param(
                {"lat": [1.0, float("nan")], "lon": [0.0, 1.0]},
                r"lat must be|lat lacks",
                id="lat NaN",
            ),
        ],
    )
    def test_table(self, table_path: Path, change: dict[str, Any], says: str) -> None:
        columns: dict[str, Any] = {"lat_idx": [0, 1], "lon_idx": [0, 1], "count": [1, 2]} | change
        write(table_path, {name: v for name, v in columns.items() if v is not None})
        with pytest.raises(WorkloadError, match=says):
            load_density(table_path, None if "lat" in change or not change else BOUNDS)

    def test_centres_of_an_uneven_grid(self, table_path: Path) -> None:
        columns = with_centres(columns_of(COUNTS), BOUNDS, COUNTS.shape)
        columns["lon"][2] += 5
        with pytest.raises(WorkloadError, match=r"lon must be the centre.*off by 0\.5 cells"):
            load_density(write(table_path, columns))

    def test_table_without_rows(self, tmp_path: Path) -> None:
        path = write(tmp_path / "none.parquet", columns_of(np.zeros((2, 2), dtype=int)))
        with pytest.raises(WorkloadError, match="no rows"):
            load_density(path, BOUNDS)

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(WorkloadError, match=r"no file .*nowhere\.csv"):
            load_density(tmp_path / "nowhere.csv")

    def test_unknown_ending(self, tmp_path: Path) -> None:
        (tmp_path / "cells.xls").touch()
        with pytest.raises(WorkloadError, match=r"\.xls.*use one of \.parquet, \.csv, \.npy"):
            load_density(tmp_path / "cells.xls")

    @pytest.mark.parametrize("name", ["cells.parquet", "cells.csv", "cells.npy"])
    @pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01", b"\xff\xfe\x00not a table"])
    def test_garbage(self, tmp_path: Path, name: str, content: bytes) -> None:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(WorkloadError, match="cells"):
            load_density(tmp_path / name, BOUNDS)

    def test_npy_of_objects_is_not_unpickled(self, tmp_path: Path) -> None:
        np.save(tmp_path / "cells.npy", np.array([[{}]]), allow_pickle=True)
        with pytest.raises(WorkloadError, match="not a readable"):
            load_density(tmp_path / "cells.npy", BOUNDS)

    def test_npy_without_bounds(self, tmp_path: Path) -> None:
        np.save(tmp_path / "cells.npy", COUNTS)
        with pytest.raises(WorkloadError, match="pass bounds="):
            load_density(tmp_path / "cells.npy")


@pytest.mark.skipif(not TWEETS.is_file(), reason="the tweet counts are not at hand")
class TestTheTweets:
    def test_bounds_and_shape(self) -> None:
        density = load_density(TWEETS)
        assert density.weights.shape == (1000, 1000)
        assert np.count_nonzero(density.weights) == 378_295
        found = density.bounds
        assert found.min_x == pytest.approx(-124.848974, abs=1e-9)
        assert found.min_y == pytest.approx(24.396308, abs=1e-9)
        assert found.max_x == pytest.approx(-66.885444, abs=1e-9)
        assert found.max_y == pytest.approx(49.384358, abs=1e-9)

    def test_the_hottest_cell_is_manhattan(self) -> None:
        density = load_density(TWEETS)
        row, column = np.unravel_index(density.weights.argmax(), density.weights.shape)
        here = density.grid.place_points(np.array([-73.985]), np.array([40.748]))
        assert (column, row) == (here[0][0], here[1][0])
        assert density.weights[row, column] == pytest.approx(1_061_668 / 309_296_962)
