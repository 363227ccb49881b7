"""A small world for the experiments: cities on a coarse grid."""

import pytest

from sparkswarm.experiments import field
from sparkswarm.experiments.field import Field
from sparkswarm.experiments.machines import Machines
from sparkswarm.experiments.scenarios import Scenario, TimedHotspot
from sparkswarm.workloads import CONTIGUOUS_US, Density, cities_density


@pytest.fixture(scope="module", autouse=True)
def small_samples():
    """Draw few queries one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(field, "SAMPLE", 20_000)
        yield


@pytest.fixture(scope="session")
def density() -> Density:
    return cities_density(CONTIGUOUS_US, 80, 60)


@pytest.fixture(scope="session")
def scenario() -> Scenario:
    return Scenario("small", "small", "", (TimedHotspot(60, 180, intensity="step"),), minutes=4)


@pytest.fixture(scope="session")
def space(density, scenario) -> Field:
    return Field(density, scenario, 400_000, seed=3, sample=20_000)


@pytest.fixture(scope="session")
def machines() -> Machines:
    return Machines(executors=5, routers=2, sources=3, hosts=2)
