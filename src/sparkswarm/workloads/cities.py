"""Built-in cities: a skewed density that needs no data file.

Owns the table of cities and how it becomes a :class:`Density`, averaged over the day or at an hour.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sparkswarm.compiled import FloatArray
from sparkswarm.errors import WorkloadError
from sparkswarm.geometry import CONTIGUOUS_US, WORLD, Bounds, Grid
from sparkswarm.workloads import _checks
from sparkswarm.workloads.density import Density, load_density


class City(NamedTuple):
    """A city with its position in degrees and the population of its area in millions."""

    name: str
    lon: float
    lat: float
    population: float


class Ring(NamedTuple):
    """A part of every city: its share of the population, its deviation relative to ``spread``."""

    share: float
    deviation: float


CORE = Ring(share=0.2, deviation=0.1)
"""The dense centre of a city."""

SUBURB = Ring(share=0.8, deviation=1.0)
"""The area around it. Both rings are chosen so that the US is as skewed as US tweets are."""

BACKGROUND = 0.02
"""The share of the weight that is spread evenly over the bounds, as countryside."""

NIGHT_ACTIVITY = 0.1
"""Activity at its lowest, as a share of its highest."""

QUIETEST_HOUR, BUSIEST_HOUR = 4.0, 20.0
"""Local solar hours at which a city's activity is lowest and highest."""


def cities_density(
    bounds: Bounds = WORLD,
    columns: int = 1000,
    rows: int = 1000,
    spread: float = 0.15,
    hour_utc: float | None = None,
) -> Density:
    """Return the density of population around the cities of :data:`CITIES` within the bounds.

    Every city is two Gaussians, circular on the ground: a dense core and a wide suburb. As in
    real data, 1% of the cells has most of the weight.

    Parameters
    ----------
    bounds
        The space to cover, in degrees: x is the longitude, y the latitude.
    columns, rows
        The grid of the density.
    spread
        Standard deviation, in degrees of latitude, of the suburb of a city of one million;
        it grows with the fourth root of the population.
    hour_utc
        If given, the hour of the day: every city is weighted by the activity at its local time
        (see :func:`daylight`), so that the load follows the sun.

    Raises
    ------
    WorkloadError
        If an argument is out of range or there is no city in or near the bounds.

    Notes
    -----
    The skew on a grid of 1000 x 1000, compared with 309 million US tweets:

    ====================  =======  =============  =========
    share of the weight   world    contiguous US  US tweets
    ====================  =======  =============  =========
    hottest cell          0.60%    0.31%          0.34%
    hottest 0.1%          67.5%    27.6%          23.1%
    hottest 1%            98.0%    68.0%          70.1%
    hottest 10%           98.2%    98.2%          98.7%
    ====================  =======  =============  =========

    Between 6h and 18h UTC, 41% of the world's weight moves (total variation on a grid of
    50 x 50).
    """
    grid = Grid(
        bounds,
        _checks.whole_number("columns", columns, 1),
        _checks.whole_number("rows", rows, 1),
    )
    spread = _checks.number("spread", spread)
    if not 0 < spread < math.inf:
        raise WorkloadError(f"spread must be a positive number of degrees, got {spread}")
    lon, lat, population = (np.array(v) for v in zip(*(c[1:] for c in CITIES), strict=True))
    weight = population if hour_utc is None else daylight(population, lon, hour_utc)
    deviation = spread * population**0.25

    # A Gaussian with its axes along the grid is the product of two one-dimensional ones, so
    # the sum over all cities is one product of two thin matrices.
    people = np.zeros((grid.rows, grid.columns))
    for ring in (CORE, SUBURB):
        north = deviation * ring.deviation
        east = north / np.cos(np.radians(lat))
        by_row = _shares(_lines(bounds.min_y, bounds.max_y, grid.rows), lat, north)
        by_column = _shares(_lines(bounds.min_x, bounds.max_x, grid.columns), lon, east)
        people += by_row.T @ (by_column * (weight * ring.share)[:, None])

    total = float(people.sum())
    if total < _ONE_PERSON:
        raise WorkloadError(
            f"no city lies in or near {bounds}; choose bounds in degrees (x is the longitude) "
            "that contain a city, such as WORLD or CONTIGUOUS_US"
        )
    weights = (1 - BACKGROUND) * people / total + BACKGROUND / people.size
    hour = "" if hour_utc is None else f" at {hour_utc % 24:g}h UTC"
    return Density(f"cities{hour}", bounds, weights)


def choose_density(
    path: Path | None = None, bounds: tuple[float, float, float, float] | None = None
) -> Density:
    """Return the density of a file, or the built-in cities of the contiguous US without one."""
    where = Bounds(*bounds) if bounds else None
    if path is None:
        return cities_density(where or CONTIGUOUS_US)
    return load_density(path, where)


def daylight(weights: FloatArray, lon: FloatArray, hour_utc: float) -> FloatArray:
    """Return weights at these longitudes, scaled by the activity at that hour.

    The local solar hour is ``hour_utc + lon / 15``. Activity rises from ``NIGHT_ACTIVITY`` at
    4h to 1 at 20h and falls again, along half a cosine each way.
    """
    hour_utc = _checks.number("hour_utc", hour_utc)
    if not math.isfinite(hour_utc):
        raise WorkloadError(f"hour_utc must be a finite number of hours, got {hour_utc}")
    since_quietest = np.mod(hour_utc + lon / 15 - QUIETEST_HOUR, 24)
    rise = BUSIEST_HOUR - QUIETEST_HOUR
    half_turns = np.where(
        since_quietest <= rise, since_quietest / rise, 1 + (since_quietest - rise) / (24 - rise)
    )
    level = (1 - np.cos(np.pi * half_turns)) / 2
    return np.asarray(weights * (NIGHT_ACTIVITY + (1 - NIGHT_ACTIVITY) * level))


_ONE_PERSON = 1e-6
"""In millions: bounds with fewer people contain no city."""


def _lines(low: float, high: float, cells: int) -> FloatArray:
    """Return the borders of the cells along one axis."""
    return np.linspace(low, high, cells + 1)


def _shares(borders: FloatArray, centre: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return which share of each Gaussian lies between neighbouring borders.

    The integral, not the value at the cell's centre: a core may be narrower than a cell.
    """
    z = (borders[None, :] - centre[:, None]) / (deviation[:, None] * math.sqrt(2))
    below = np.fromiter(map(math.erf, z.ravel().tolist()), dtype=np.float64, count=z.size)
    return np.maximum(np.diff(below.reshape(z.shape), axis=1), 0) / 2


CITIES = (
    # The contiguous United States.
    City("New York", -74.00, 40.72, 19.5),
    City("Los Angeles", -118.24, 34.05, 12.9),
    City("Chicago", -87.63, 41.88, 9.3),
    City("Dallas", -96.80, 32.78, 7.9),
    City("Houston", -95.37, 29.76, 7.3),
    City("Washington", -77.04, 38.91, 6.3),
    City("Philadelphia", -75.16, 39.95, 6.2),
    City("Atlanta", -84.39, 33.75, 6.2),
    City("Miami", -80.20, 25.78, 6.1),
    City("Phoenix", -112.07, 33.45, 5.0),
    City("Boston", -71.06, 42.36, 4.9),
    City("San Francisco", -122.42, 37.77, 4.6),
    City("Riverside", -117.40, 33.95, 4.6),
    City("Detroit", -83.05, 42.33, 4.3),
    City("Seattle", -122.33, 47.61, 4.0),
    City("Minneapolis", -93.27, 44.98, 3.7),
    City("San Diego", -117.16, 32.72, 3.3),
    City("Tampa", -82.46, 27.95, 3.2),
    City("Denver", -104.99, 39.74, 3.0),
    City("Baltimore", -76.61, 39.29, 2.8),
    City("St. Louis", -90.20, 38.63, 2.8),
    City("Orlando", -81.38, 28.54, 2.7),
    City("Charlotte", -80.84, 35.23, 2.7),
    City("San Antonio", -98.49, 29.42, 2.6),
    City("Portland", -122.68, 45.52, 2.5),
    City("Sacramento", -121.49, 38.58, 2.4),
    City("Pittsburgh", -80.00, 40.44, 2.4),
    City("Austin", -97.74, 30.27, 2.4),
    City("Las Vegas", -115.14, 36.17, 2.3),
    City("Cincinnati", -84.51, 39.10, 2.3),
    City("Kansas City", -94.58, 39.10, 2.2),
    City("Columbus", -83.00, 39.96, 2.2),
    City("Cleveland", -81.69, 41.50, 2.2),
    City("Indianapolis", -86.16, 39.77, 2.1),
    City("Nashville", -86.78, 36.16, 2.0),
    City("San Jose", -121.89, 37.34, 1.9),
    City("Norfolk", -76.29, 36.85, 1.8),
    City("Milwaukee", -87.91, 43.04, 1.6),
    City("Jacksonville", -81.66, 30.33, 1.6),
    City("Raleigh", -78.64, 35.78, 1.5),
    City("Oklahoma City", -97.52, 35.47, 1.4),
    City("Memphis", -90.05, 35.15, 1.3),
    City("Richmond", -77.44, 37.54, 1.3),
    City("Louisville", -85.76, 38.25, 1.3),
    City("Salt Lake City", -111.89, 40.76, 1.3),
    City("New Orleans", -90.07, 29.95, 1.0),
    City("Buffalo", -78.88, 42.89, 1.2),
    City("Birmingham", -86.80, 33.52, 1.1),
    City("Albuquerque", -106.65, 35.08, 0.9),
    City("Omaha", -95.93, 41.26, 1.0),
    City("El Paso", -106.49, 31.76, 0.9),
    City("Boise", -116.20, 43.62, 0.8),
    # The rest of North and Central America.
    City("Mexico City", -99.13, 19.43, 22.3),
    City("Guadalajara", -103.35, 20.67, 5.4),
    City("Monterrey", -100.32, 25.67, 5.1),
    City("Tijuana", -117.02, 32.53, 2.2),
    City("Toronto", -79.38, 43.65, 6.4),
    City("Montreal", -73.57, 45.50, 4.3),
    City("Vancouver", -123.12, 49.28, 2.7),
    City("Calgary", -114.07, 51.05, 1.6),
    City("Honolulu", -157.86, 21.31, 1.0),
    City("Anchorage", -149.90, 61.22, 0.4),
    City("Guatemala City", -90.51, 14.63, 3.1),
    City("San Salvador", -89.19, 13.69, 1.1),
    City("Panama City", -79.52, 8.98, 2.0),
    City("Havana", -82.38, 23.11, 2.1),
    City("Santo Domingo", -69.93, 18.49, 3.5),
    City("San Juan", -66.11, 18.47, 2.4),
    # South America.
    City("Sao Paulo", -46.63, -23.55, 22.6),
    City("Rio de Janeiro", -43.20, -22.91, 13.7),
    City("Belo Horizonte", -43.94, -19.92, 6.2),
    City("Brasilia", -47.88, -15.79, 4.9),
    City("Recife", -34.88, -8.05, 4.2),
    City("Fortaleza", -38.54, -3.73, 4.2),
    City("Salvador", -38.50, -12.97, 4.0),
    City("Porto Alegre", -51.22, -30.03, 4.2),
    City("Manaus", -60.02, -3.12, 2.4),
    City("Buenos Aires", -58.38, -34.60, 15.5),
    City("Cordoba", -64.18, -31.42, 1.6),
    City("Montevideo", -56.16, -34.90, 1.8),
    City("Santiago", -70.67, -33.45, 6.9),
    City("Lima", -77.04, -12.05, 11.2),
    City("Bogota", -74.07, 4.71, 11.5),
    City("Medellin", -75.56, 6.24, 4.1),
    City("Caracas", -66.90, 10.48, 3.0),
    City("Quito", -78.47, -0.18, 2.0),
    City("La Paz", -68.15, -16.50, 1.9),
    # Europe.
    City("Moscow", 37.62, 55.76, 12.7),
    City("Saint Petersburg", 30.34, 59.93, 5.6),
    City("Istanbul", 28.98, 41.01, 15.8),
    City("Ankara", 32.85, 39.93, 5.5),
    City("London", -0.13, 51.51, 9.6),
    City("Birmingham (UK)", -1.90, 52.48, 2.7),
    City("Manchester", -2.24, 53.48, 2.8),
    City("Dublin", -6.26, 53.35, 1.3),
    City("Paris", 2.35, 48.86, 11.2),
    City("Lyon", 4.84, 45.76, 1.8),
    City("Madrid", -3.70, 40.42, 6.8),
    City("Barcelona", 2.17, 41.39, 5.7),
    City("Lisbon", -9.14, 38.72, 3.0),
    City("Rome", 12.50, 41.90, 4.3),
    City("Milan", 9.19, 45.46, 3.2),
    City("Naples", 14.27, 40.85, 2.2),
    City("Berlin", 13.40, 52.52, 3.6),
    City("Hamburg", 9.99, 53.55, 1.8),
    City("Munich", 11.58, 48.14, 1.6),
    City("Cologne", 6.96, 50.94, 2.1),
    City("Amsterdam", 4.90, 52.37, 1.2),
    City("Brussels", 4.35, 50.85, 2.1),
    City("Vienna", 16.37, 48.21, 2.0),
    City("Warsaw", 21.01, 52.23, 1.8),
    City("Prague", 14.44, 50.08, 1.3),
    City("Budapest", 19.04, 47.50, 1.8),
    City("Bucharest", 26.10, 44.43, 1.8),
    City("Belgrade", 20.46, 44.79, 1.4),
    City("Athens", 23.73, 37.98, 3.2),
    City("Kyiv", 30.52, 50.45, 3.0),
    City("Minsk", 27.57, 53.90, 2.1),
    City("Stockholm", 18.07, 59.33, 1.7),
    City("Copenhagen", 12.57, 55.68, 1.4),
    City("Oslo", 10.75, 59.91, 1.1),
    City("Helsinki", 24.94, 60.17, 1.3),
    # Africa.
    City("Cairo", 31.24, 30.04, 22.2),
    City("Alexandria", 29.92, 31.20, 5.6),
    City("Lagos", 3.38, 6.52, 15.9),
    City("Kano", 8.52, 12.00, 4.3),
    City("Kinshasa", 15.31, -4.33, 16.3),
    City("Luanda", 13.23, -8.84, 9.3),
    City("Johannesburg", 28.05, -26.20, 10.5),
    City("Cape Town", 18.42, -33.92, 4.9),
    City("Durban", 31.02, -29.86, 3.2),
    City("Nairobi", 36.82, -1.29, 5.3),
    City("Addis Ababa", 38.75, 9.03, 5.5),
    City("Dar es Salaam", 39.28, -6.79, 7.8),
    City("Khartoum", 32.56, 15.50, 6.3),
    City("Abidjan", -4.01, 5.35, 5.7),
    City("Accra", -0.19, 5.60, 2.7),
    City("Dakar", -17.45, 14.69, 3.4),
    City("Casablanca", -7.59, 33.57, 3.9),
    City("Algiers", 3.06, 36.75, 2.9),
    City("Tunis", 10.17, 36.81, 2.5),
    # The Middle East and Central Asia.
    City("Tehran", 51.39, 35.69, 9.5),
    City("Baghdad", 44.36, 33.31, 7.7),
    City("Riyadh", 46.68, 24.71, 7.7),
    City("Jeddah", 39.19, 21.49, 4.9),
    City("Dubai", 55.27, 25.20, 3.0),
    City("Tel Aviv", 34.78, 32.09, 4.4),
    City("Amman", 35.93, 31.95, 2.3),
    City("Tashkent", 69.24, 41.30, 2.6),
    City("Almaty", 76.89, 43.24, 2.0),
    City("Novosibirsk", 82.92, 55.03, 1.7),
    # South Asia.
    City("Delhi", 77.21, 28.61, 32.9),
    City("Mumbai", 72.88, 19.08, 21.3),
    City("Kolkata", 88.36, 22.57, 15.3),
    City("Bangalore", 77.59, 12.97, 13.6),
    City("Chennai", 80.27, 13.08, 11.8),
    City("Hyderabad", 78.49, 17.39, 10.8),
    City("Ahmedabad", 72.57, 23.02, 8.7),
    City("Karachi", 67.00, 24.86, 17.2),
    City("Lahore", 74.36, 31.55, 13.9),
    City("Dhaka", 90.41, 23.81, 23.2),
    City("Kathmandu", 85.32, 27.72, 1.6),
    City("Colombo", 79.86, 6.93, 2.4),
    # East and South-East Asia.
    City("Tokyo", 139.69, 35.69, 37.2),
    City("Osaka", 135.50, 34.69, 19.0),
    City("Nagoya", 136.91, 35.18, 9.6),
    City("Sapporo", 141.35, 43.06, 2.7),
    City("Seoul", 126.98, 37.57, 25.0),
    City("Busan", 129.08, 35.18, 3.5),
    City("Beijing", 116.41, 39.90, 21.8),
    City("Shanghai", 121.47, 31.23, 29.2),
    City("Guangzhou", 113.26, 23.13, 14.3),
    City("Shenzhen", 114.06, 22.54, 13.1),
    City("Hong Kong", 114.17, 22.32, 7.5),
    City("Chongqing", 106.55, 29.56, 17.3),
    City("Chengdu", 104.07, 30.57, 9.7),
    City("Tianjin", 117.20, 39.08, 14.2),
    City("Wuhan", 114.31, 30.59, 8.9),
    City("Xi'an", 108.94, 34.34, 8.5),
    City("Taipei", 121.57, 25.03, 7.0),
    City("Manila", 120.98, 14.60, 14.7),
    City("Jakarta", 106.85, -6.21, 11.2),
    City("Surabaya", 112.75, -7.26, 3.1),
    City("Bangkok", 100.50, 13.76, 11.1),
    City("Ho Chi Minh City", 106.63, 10.82, 9.3),
    City("Hanoi", 105.83, 21.03, 5.3),
    City("Kuala Lumpur", 101.69, 3.14, 8.6),
    City("Singapore", 103.82, 1.35, 6.0),
    City("Yangon", 96.16, 16.87, 5.6),
    # Oceania.
    City("Sydney", 151.21, -33.87, 5.1),
    City("Melbourne", 144.96, -37.81, 5.2),
    City("Brisbane", 153.03, -27.47, 2.5),
    City("Perth", 115.86, -31.95, 2.1),
    City("Auckland", 174.76, -36.85, 1.7),
)
"""The cities: approximate populations of the urban areas in the early 2020s, for shape only."""
