"""Service times: they are read back as written, refused when wrong, and really measured."""

import json

import numpy as np
import pytest

from sparkswarm.errors import ConfigError
from sparkswarm.experiments import service
from sparkswarm.experiments.service import STORED, Service, calibrate


def test_service_times_survive_a_file_of_their_own_and_a_runs_config(tmp_path):
    alone, config = tmp_path / "service.json", tmp_path / "config.json"
    alone.write_text(json.dumps(STORED.to_json()))
    config.write_text(json.dumps({"seed": 1, "service": STORED.to_json()}))
    assert Service.read(alone) == Service.read(config) == STORED


@pytest.mark.parametrize(
    "change",
    [
        {"per_check": -1.0},
        {"per_check": True},
        {"per_check": float("nan")},
        {"sizes": [1, 2]},
        {"sizes": [4, 3, 2, 1]},
        {"per_point": [0.0, 0.0, 0.0, 0.0]},
        {"unknown": 1.0},
    ],
    ids=str,
)
def test_wrong_service_times_are_refused(change):
    with pytest.raises(ConfigError, match="service"):
        Service.from_json(STORED.to_json() | change)


def test_an_unreadable_file_is_explained(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        Service.read(tmp_path / "none.json")


def test_a_point_takes_longer_the_more_queries_there_are():
    at = STORED.point_seconds(np.array([0.0, 30_000, 60_000, 1_920_000, 7_680_000]))
    assert at[0] == at[1] == STORED.per_point[0]
    assert at[2] == pytest.approx(sum(STORED.per_point[:2]) / 2)
    assert at[3] == STORED.per_point[3]
    # Beyond what was measured the last step goes on: two doublings, as between the last two.
    assert at[4] - at[3] == pytest.approx(STORED.per_point[3] - STORED.per_point[2])


def test_prices_are_found_again_in_times_made_of_them():
    checks = [np.array([1.0, 10, 100]), np.array([5.0, 50, 500])]
    measured = [(c, p + 2e-9 * c) for c, p in zip(checks, (1e-7, 3e-7), strict=True)]
    per_point, per_check = service._prices(measured)
    assert per_point == pytest.approx((1e-7, 3e-7))
    assert per_check == pytest.approx(2e-9)


def test_the_real_matcher_is_measured(density, monkeypatch):
    monkeypatch.setattr(service, "SIZES", (500, 4_000))
    monkeypatch.setattr(service, "POINTS", 2_000)
    monkeypatch.setattr(service, "REPEAT", 2)
    found = calibrate(density)
    assert found.sizes == (500, 4_000)
    assert min(found.per_point) > 0
    assert found.checks_per_match >= 1.0
    assert 40 < found.query_bytes < 1000
    assert min(found.per_query, found.route_point, found.route_query, found.collect_point) > 0
