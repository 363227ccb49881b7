"""Settings: what is allowed, what is refused, and the table for the docs."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from sparkswarm.config import RENAMED_SETTINGS, SwarmConfig, settings_table
from sparkswarm.errors import ConfigError
from sparkswarm.geometry import CONTIGUOUS_US, Bounds

WHOLE = {
    "round_batches": (0, None),
    "replayable_batches": (2, None),
    "executors": (1, 100_000),
    "beta": (1, None),
    "max_pairs_per_round": (0, None),
}
WHOLE |= {"max_query_bytes": (1, None), "max_operations": (0, None), "max_kept_bytes": (0, None)}
WHOLE |= {"cache_bytes": (0, None), "max_receivers": (0, None), "merge_every_rounds": (0, None)}
WHOLE |= {"quarantine_batches": (0, None)}
FRACTIONS = {
    "unfinished_file_seconds": (0, None),
    "round_seconds": (0, None),
    "expired_query_seconds": (0, None),
    "max_future_seconds": (0, None),
    "idle_seconds": (0, None),
    "max_query_share": (0.0, 1.0),
    "min_gain": (0.0, 1.0),
    "decay": (0.0, 1.0),
    "payback_rounds": (0.0, None),
}
SWITCHES = ("shared_cells", "shared_host", "lending", "copy_files")

NUMBERS: dict[str, tuple[float, float | None]] = {**WHOLE, **FRACTIONS}
CHOICES = {
    "policy": ("swarm", "static_uniform", "static_history", "replicated", "hash_cell"),
    "cost_model": ("work", "paper"),
    "decision": ("gain", "five_stages"),
}


def allowed_of(name: str) -> str:
    """Return what the error must say about a number."""
    low, high = NUMBERS[name]
    kind = "a whole number" if name in WHOLE else "a number"
    return (
        f"{kind} of at least {low:g}" if high is None else f"{kind} from {low:.15g} to {high:.15g}"
    )


def make(name: str, value: object) -> SwarmConfig:
    settings: dict[str, Any] = {name: value}
    return SwarmConfig(**settings)


def test_every_setting_is_tested_here() -> None:
    tested = {"bounds", "grid", *SWITCHES, *NUMBERS, *CHOICES}
    assert {field.name for field in dataclasses.fields(SwarmConfig)} == tested


def test_the_defaults_are_valid() -> None:
    config = SwarmConfig()
    grid = config.make_grid()
    assert grid.bounds == Bounds(-180.0, -90.0, 180.0, 90.0)
    assert (grid.columns, grid.rows) == (1000, 1000)


def test_the_defaults_that_the_paper_names_are_its_own() -> None:
    config = SwarmConfig()
    assert (config.executors, config.grid) == (22, (1000, 1000))
    assert (config.beta, config.decay) == (20, 0.5)


def test_a_grid_that_needs_too_much_memory_is_refused_with_the_memory_named() -> None:
    assert SwarmConfig(grid=(10_000, 10_000)).grid == (10_000, 10_000)
    with pytest.raises(ConfigError, match=r"2,000,000,000 cells, .* 8\.0 GB; at most 100,000,000"):
        SwarmConfig(grid=(40_000, 50_000))


def test_bounds_and_grid_become_the_grid() -> None:
    grid = SwarmConfig(bounds=(-1.0, 2.0, 3.0, 4.0), grid=(5, 7)).make_grid()
    assert (grid.bounds, grid.columns, grid.rows) == (Bounds(-1.0, 2.0, 3.0, 4.0), 5, 7)


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SwarmConfig().beta = 3  # type: ignore[misc]


@pytest.mark.parametrize(("old", "new"), RENAMED_SETTINGS.items())
def test_a_former_name_is_refused_with_the_present_one(old: str, new: str) -> None:
    with pytest.raises(ConfigError, match=f"^{old} was renamed to {new}$"):
        make(old, 1)
    with pytest.raises(ConfigError, match=f"^{old} was renamed to {new}$"):
        dataclasses.replace(SwarmConfig(), **{old: 1})
    assert new in {field.name for field in dataclasses.fields(SwarmConfig)}


# -- numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NUMBERS)
def test_both_ends_of_the_range_are_allowed(name: str) -> None:
    low, high = NUMBERS[name]
    for value in (low, 10**9 if high is None else high):
        assert getattr(make(name, value), name) == value


def beyond() -> list[tuple[str, float, str]]:
    """Return every number just outside its range, and how the range is to be named."""
    cases: list[tuple[str, float, str]] = []
    for name, (low, high) in NUMBERS.items():
        allowed = allowed_of(name)
        step = 1 if name in WHOLE else 0.001
        cases.append((name, low - step, allowed))
        if high is not None:
            cases.append((name, high + step, allowed))
        if name in FRACTIONS:
            cases += [(name, math.nan, allowed), (name, -math.inf, allowed)]
    return cases


@pytest.mark.parametrize(("name", "value", "allowed"), beyond())
def test_a_number_out_of_range_is_refused_with_name_value_and_range(
    name: str, value: float, allowed: str
) -> None:
    with pytest.raises(ConfigError) as error:
        make(name, value)
    assert str(error.value) == f"{name} must be {allowed}, got {value!r}"


@pytest.mark.parametrize("value", [2.0, 2.5, "2", None, True, False, [2]])
@pytest.mark.parametrize("name", WHOLE)
def test_what_is_no_whole_number_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as error:
        make(name, value)
    assert str(error.value) == f"{name} must be {allowed_of(name)}, got {value!r}"


@pytest.mark.parametrize("value", ["0.5", None, True, False, (0.5,)])
@pytest.mark.parametrize("name", FRACTIONS)
def test_what_is_no_number_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as error:
        make(name, value)
    assert str(error.value) == f"{name} must be {allowed_of(name)}, got {value!r}"


@pytest.mark.parametrize("name", FRACTIONS)
def test_a_whole_number_is_a_number(name: str) -> None:
    assert getattr(make(name, 1), name) == 1


# -- choices and switches ------------------------------------------------------------------


@pytest.mark.parametrize("name", CHOICES)
def test_every_choice_is_allowed(name: str) -> None:
    for choice in CHOICES[name]:
        assert getattr(make(name, choice), name) == choice


@pytest.mark.parametrize("value", ["", "WORK", "bees", None, 1, True, ["work"]])
@pytest.mark.parametrize("name", CHOICES)
def test_what_is_no_choice_is_refused_with_the_choices(name: str, value: object) -> None:
    allowed = "one of " + ", ".join(f'"{choice}"' for choice in CHOICES[name])
    with pytest.raises(ConfigError) as error:
        make(name, value)
    assert str(error.value) == f"{name} must be {allowed}, got {value!r}"


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_is_on_or_off(name: str) -> None:
    assert [getattr(make(name, value), name) for value in (True, False)] == [True, False]


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("value", [0, 1, "yes", None, 1.0])
def test_what_is_no_switch_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as error:
        make(name, value)
    assert str(error.value) == f"{name} must be true or false, got {value!r}"


# -- bounds and grid -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count", "value"),
    [
        ("bounds", 4, (0.0, 0.0, 1.0)),
        ("bounds", 4, (0.0, 0.0, 1.0, 1.0, 1.0)),
        ("bounds", 4, None),
        ("bounds", 4, "0011"),
        ("bounds", 4, ("west", 0.0, 1.0, 1.0)),
        ("bounds", 4, (None, 0.0, 1.0, 1.0)),
        ("bounds", 4, (0.0, 0.0, True, 1.0)),
        ("grid", 2, (5,)),
        ("grid", 2, (5, 5, 5)),
        ("grid", 2, 5),
        ("grid", 2, "55"),
        ("grid", 2, (2.5, 5)),
        ("grid", 2, (5, 5.0)),
        ("grid", 2, ("5", 5)),
        ("grid", 2, (True, 5)),
    ],
)
def test_another_number_of_numbers_is_refused(name: str, count: int, value: object) -> None:
    kind = 'numbers, "usa" or "world"' if name == "bounds" else "whole numbers"
    with pytest.raises(ConfigError) as error:
        make(name, value)
    assert str(error.value) == f"{name} must be {count} {kind}, got {value!r}"


IMPOSSIBLE: list[tuple[str, tuple[object, ...]]] = [
    ("bounds", (math.nan, 0.0, 1.0, 1.0)),
    ("bounds", (0.0, 0.0, math.inf, 1.0)),
    ("bounds", (1.0, 0.0, 1.0, 1.0)),
    ("bounds", (0.0, 2.0, 1.0, 1.0)),
    ("grid", (0, 5)),
    ("grid", (5, -1)),
    ("grid", (2**20, 2**20)),
]


@pytest.mark.parametrize(("name", "value"), IMPOSSIBLE)
def test_impossible_bounds_and_grids_are_refused(name: str, value: tuple[object, ...]) -> None:
    with pytest.raises(ConfigError) as error:
        make(name, value)
    assert f"{name} {value!r}" in str(error.value)


def test_bounds_have_names() -> None:
    assert make("bounds", "world").bounds == (-180, -90, 180, 90)
    assert make("bounds", " USA").bounds == CONTIGUOUS_US.edges
    with pytest.raises(ConfigError, match="got 'europe'"):
        make("bounds", "europe")


def test_whole_numbers_and_lists_will_do_for_bounds() -> None:
    assert SwarmConfig(bounds=(0, 0, 2, 1), grid=(1, 1)).make_grid().bounds.width == 2
    grid = make("grid", [4, 3]).make_grid()
    assert (grid.columns, grid.rows) == (4, 3)


# -- the table -----------------------------------------------------------------------------


def test_the_table_has_a_line_for_every_setting_with_all_that_is_known_of_it() -> None:
    head, rule, *lines = settings_table().splitlines()
    assert head == "| setting | default | allowed | meaning |"
    assert rule == "| --- | --- | --- | --- |"
    fields = dataclasses.fields(SwarmConfig)
    assert len(lines) == len(fields)
    for field, line in zip(fields, lines, strict=True):
        name, default, allowed, meaning = (c.strip() for c in line.strip("|").split("|"))
        assert name == f"`{field.name}`"
        setting = field.metadata["option"]
        assert default == f"`{field.default}` {setting.unit}".strip()
        assert (allowed, meaning) == (setting.kind.brief or setting.kind.allowed, setting.meaning)
        assert meaning
        if field.name in NUMBERS:
            assert setting.kind.allowed == allowed_of(field.name)


def test_the_table_ends_with_a_line_break() -> None:
    assert settings_table().endswith("|\n")
