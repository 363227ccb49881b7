"""The public names of the package, and what answers to those of earlier versions."""

from __future__ import annotations

import pytest

import sparkswarm


@pytest.fixture
def renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sparkswarm._RENAMED, "OldSwarm", "Swarm")


def test_every_public_name_can_be_imported() -> None:
    for name in sparkswarm.__all__:
        assert getattr(sparkswarm, name) is not None


@pytest.mark.usefixtures("renamed")
def test_a_renamed_name_says_what_it_is_called_now() -> None:
    message = r"^sparkswarm\.OldSwarm was renamed to sparkswarm\.Swarm$"
    with pytest.raises(ImportError, match=message):
        sparkswarm.OldSwarm  # noqa: B018
    with pytest.raises(ImportError, match=message):
        from sparkswarm import OldSwarm  # noqa: F401


def test_old_names_are_gone_and_new_ones_are_public() -> None:
    assert not sparkswarm._RENAMED.keys() & set(sparkswarm.__all__)
    assert set(sparkswarm._RENAMED.values()) <= set(sparkswarm.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        sparkswarm.Nothing  # noqa: B018
