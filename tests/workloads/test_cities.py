"""The world of cities: a sound table, the promised skew, and a load that follows the sun."""

from __future__ import annotations

import numpy as np
import pytest

from sparkswarm.errors import SparkswarmError, WorkloadError
from sparkswarm.geometry import Bounds
from sparkswarm.workloads import CITIES, CONTIGUOUS_US, WORLD, Density, cities_density, daylight


def hottest(density: Density, share: float) -> float:
    """Return the weight of the hottest cells, as many as the share says."""
    ordered = np.sort(density.weights.ravel())[::-1]
    return float(ordered[: max(1, int(ordered.size * share))].sum())


def at(density: Density, lon: float, lat: float) -> float:
    column, row = density.grid.place_points(np.array([lon]), np.array([lat]))
    return float(density.weights[row[0], column[0]])


class TestTable:
    def test_cities_are_distinct_and_on_earth(self) -> None:
        assert len({c.name for c in CITIES}) == len({(c.lon, c.lat) for c in CITIES}) == len(CITIES)
        assert all(-180 < c.lon < 180 and -60 < c.lat < 70 for c in CITIES)
        assert all(0.3 < c.population < 40 for c in CITIES)

    def test_the_us_is_well_populated(self) -> None:
        us = CONTIGUOUS_US
        inside = [
            c for c in CITIES
            if us.min_x <= c.lon <= us.max_x and us.min_y <= c.lat <= us.max_y
        ]  # fmt: skip
        assert len(inside) >= 45

    def test_every_corner_of_the_world_has_cities(self) -> None:
        quadrants = [(c.lon > 0, c.lat > 0) for c in CITIES]
        assert min(quadrants.count(q) for q in set(quadrants)) >= 10
        assert len(set(quadrants)) == 4


class TestDensity:
    @pytest.mark.parametrize(
        ("bounds", "cell", "permille", "percent", "tenth"),
        [
            pytest.param(WORLD, 0.0060, 0.675, 0.980, 0.982, id="world"),
            pytest.param(CONTIGUOUS_US, 0.0031, 0.276, 0.680, 0.982, id="contiguous US"),
        ],
    )
    def test_the_skew_that_the_docstring_states(
        self, bounds: Bounds, cell: float, permille: float, percent: float, tenth: float
    ) -> None:
        density = cities_density(bounds)
        assert hottest(density, 0) == pytest.approx(cell, abs=5e-5)
        assert hottest(density, 0.001) == pytest.approx(permille, abs=1e-3)
        assert hottest(density, 0.01) == pytest.approx(percent, abs=1e-3)
        assert hottest(density, 0.1) == pytest.approx(tenth, abs=1e-3)

    def test_shape_name_and_bounds(self) -> None:
        density = cities_density(CONTIGUOUS_US, columns=30, rows=20)
        assert density.weights.shape == (20, 30)
        assert (density.name, density.bounds) == ("cities", CONTIGUOUS_US)

    def test_the_countryside_has_two_percent(self) -> None:
        density = cities_density(columns=200, rows=200)
        assert density.weights.min() == pytest.approx(0.02 / 40_000)

    def test_cities_are_where_they_are(self) -> None:
        density = cities_density()
        mean = 1 / density.weights.size
        assert all(at(density, c.lon, c.lat) > 20 * mean for c in CITIES)
        assert at(density, 139.69, 35.69) > 10 * at(density, -149.90, 61.22)  # Tokyo, Anchorage
        assert at(density, -30, -50) < mean  # the South Atlantic

    def test_a_coarse_grid_holds_the_sums_of_a_fine_one(self) -> None:
        """The weights are integrals, so the grid does not change them."""
        fine = cities_density(CONTIGUOUS_US, columns=300, rows=300).weights
        sums = fine.reshape(20, 15, 60, 5).sum(axis=(1, 3))
        np.testing.assert_allclose(
            sums, cities_density(CONTIGUOUS_US, columns=60, rows=20).weights, atol=1e-14
        )

    def test_a_wider_spread_is_less_skewed(self) -> None:
        shares = [hottest(cities_density(CONTIGUOUS_US, 200, 200, s), 0.01) for s in (0.1, 0.3, 1)]
        assert shares == sorted(shares, reverse=True)

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({"bounds": Bounds(-140, -50, -130, -45)}, "no city lies in or near"),
            ({"columns": 0}, "columns must be at least 1, got 0"),
            ({"rows": 1.5}, "rows must be a whole number"),
            ({"spread": 0}, "spread must be a positive"),
            ({"spread": float("nan")}, "spread must be a positive"),
            ({"spread": "wide"}, "spread must be a number"),
            ({"hour_utc": float("inf")}, "hour_utc must be a finite"),
            ({"columns": 10**6, "rows": 10**6}, "larger cells"),
        ],
    )
    def test_refuses(self, arguments: dict[str, object], says: str) -> None:
        with pytest.raises(SparkswarmError, match=says):
            cities_density(**arguments)  # type: ignore[arg-type]


class TestDaylight:
    def test_lowest_at_4_highest_at_20_local_time(self) -> None:
        hours = np.arange(0, 24, 0.25)
        for lon in (0.0, 90.0, -120.0):
            activity = [float(daylight(np.ones(1), np.array([lon]), h)[0]) for h in hours]
            local = (hours + lon / 15) % 24
            assert local[np.argmin(activity)] == 4
            assert local[np.argmax(activity)] == 20
            assert min(activity) == pytest.approx(0.1)
            assert max(activity) == pytest.approx(1)
            assert max(abs(np.diff(activity, append=activity[0]))) < 0.06  # no jump anywhere

    def test_a_day_later_nothing_has_changed(self) -> None:
        lon = np.linspace(-180, 180, 50)
        once, again = (daylight(np.ones(50), lon, h) for h in (5.5, 29.5))
        np.testing.assert_allclose(once, again)

    def test_the_load_follows_the_sun(self) -> None:
        def eastern_half(hour: float) -> float:
            weights = cities_density(columns=50, rows=50, hour_utc=hour).weights
            return float(weights[:, 32:].sum())  # from 50 degrees east

        morning, evening = eastern_half(12), eastern_half(22)
        assert morning > 1.5 * evening

    def test_how_much_moves_between_6_and_18(self) -> None:
        six, eighteen = (
            cities_density(columns=50, rows=50, hour_utc=h).weights for h in (6, 18)
        )  # fmt: skip
        assert np.abs(six - eighteen).sum() / 2 == pytest.approx(0.41, abs=0.01)

    def test_the_name_tells_the_hour(self) -> None:
        assert cities_density(columns=9, rows=9, hour_utc=30.5).name == "cities at 6.5h UTC"

    def test_refuses_text(self) -> None:
        with pytest.raises(WorkloadError, match="hour_utc must be a number"):
            cities_density(columns=9, rows=9, hour_utc="noon")  # type: ignore[arg-type]
