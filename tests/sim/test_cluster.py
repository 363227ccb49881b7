"""What single faults do to a cluster, one at a time."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from sparkswarm.sim.bugs import Bug
from sparkswarm.sim.clock import MILLISECOND
from sparkswarm.sim.cluster import SimScenario, World, draw_scenario
from sparkswarm.sim.faults import Faults, Kind, SimFault
from sparkswarm.sim.network import Weather
from sparkswarm.sim.workload import WorkloadSize


def scenario(*faults: SimFault, seed: int = 0, executors: int = 4, **others: object) -> SimScenario:
    """Return a run with these faults and no others."""
    drawn = draw_scenario(seed)
    return replace(
        drawn,
        config=replace(drawn.config, executors=executors),
        routers=3,
        faults=Faults(Weather(), faults, frozenset()),
        **others,  # type: ignore[arg-type]
    )


def play(world: World) -> World:
    verdict = world.play()
    assert verdict.violations == []
    return world


def crash(name: str, start: int, stop: int) -> SimFault:
    return SimFault(Kind.CRASH, start * MILLISECOND, stop * MILLISECOND, (name,))


def divide(name: str, start: int, stop: int) -> SimFault:
    return SimFault(Kind.DIVIDE, start * MILLISECOND, stop * MILLISECOND, (name,))


def test_partitions_move_while_the_stream_flows() -> None:
    happened = play(World(0, scenario())).happened()
    assert happened["split"] > 3
    assert happened["results"] > 50
    assert happened["sent again"] == 0
    assert happened["terms"] == 0


def test_an_executor_that_comes_back_soon_keeps_its_partitions() -> None:
    world = play(World(1, scenario(crash("ex1", 300, 360))))
    assert world.store.lives == (0, 0, 0, 0)


def test_an_executor_that_stays_away_is_relieved_and_comes_back_empty() -> None:
    world = play(World(1, scenario(crash("ex1", 300, 800))))
    assert world.store.lives == (0, 1, 0, 0)
    lost = [p for plan in world.store.plans[1:] for p in plan.owned_by(1)]
    versions = [i for i, plan in enumerate(world.store.plans) if not plan.owned_by(1)]
    assert lost or versions
    assert versions, "its partitions went to others"


def test_an_executor_that_is_cut_off_cannot_write_any_more() -> None:
    """It goes on and believes that it still owns what others serve by now."""
    world = play(World(2, scenario(divide("ex2", 300, 800))))
    assert world.store.lives == (0, 0, 1, 0)


@pytest.mark.parametrize("fault", [crash("gi0", 200, 900), divide("gi0", 200, 900)])
def test_another_coordinator_is_chosen_and_the_old_one_steps_down(fault: SimFault) -> None:
    lines = io.StringIO()
    world = play(World(3, scenario(fault), journal_to=lines))
    assert world.store.term >= 1
    assert world.happened()["rounds"] > 10
    journal = [json.loads(line) for line in lines.getvalue().splitlines()]
    words = [line["what"] for line in journal if line.get("who") == "gi0"]
    assert fault.kind is Kind.CRASH or any("steps down from term 0" in w for w in words)


def ambush(name: str, start: int, stop: int) -> SimFault:
    return SimFault(Kind.AMBUSH, start * MILLISECOND, stop * MILLISECOND, (name,))


def test_a_plan_that_was_written_and_never_told_is_followed_all_the_same() -> None:
    lines = io.StringIO()
    world = play(World(3, scenario(ambush("gi0", 100, 900)), journal_to=lines))
    assert "gi0 crashes in an ambush" in lines.getvalue()
    assert world.store.term >= 1
    assert world.store.log[1], "the plan that nobody was told of is the first of the log"


def test_a_partition_that_was_retired_and_never_handed_over_finds_its_new_owner() -> None:
    ambushed = 0
    for m in range(4):
        lines = io.StringIO()
        play(World(3, scenario(ambush(f"ex{m}", 100, 450)), journal_to=lines))
        ambushed += "crashes in an ambush" in lines.getvalue()
    assert ambushed


def test_ids_of_a_new_term_begin_a_block_further_on() -> None:
    world = play(World(3, scenario(crash("gi0", 200, 900))))
    new = [p.id for p in world.store.plan.partitions if p.id >= 1000]
    assert new


def test_a_coordinator_that_hears_nobody_declares_nobody_dead() -> None:
    world = play(World(4, scenario(divide("gi0", 300, 800))))
    assert world.store.lives == (0, 0, 0, 0)


def test_a_globalindex_machine_may_die() -> None:
    world = play(World(5, scenario(crash("gi2", 300, 900))))
    assert world.store.term == 0


def test_a_liar_alone_deposes_nobody() -> None:
    drawn = scenario()
    drawn = replace(drawn, faults=replace(drawn.faults, liars=frozenset({2})))
    assert play(World(6, drawn)).store.term == 0


def emitted_until(world: World, time: int) -> int:
    """Play until some time and return how many tuples were emitted by then."""
    for fault in world.scenario.faults.schedule:
        world.clock.after(fault.start, world._begin, fault)
        world.clock.after(fault.stop, world._end, fault)
    for machine in world.machines.values():
        machine.start()
    while world.clock.now < time:
        world.clock.step()
    seen = world.oracle.seen()
    return seen["points"] + seen["operations"]


def test_sources_slow_down_to_the_slowest_executor_and_speed_up_again() -> None:
    slow = [SimFault(Kind.SLOW, 0, 500 * MILLISECOND, (f"ex{m}",), 200) for m in range(4)]
    demand = WorkloadSize(points=400, queries=4, questions=0)
    hurried, held = (World(7, scenario(*faults, credits=4, demand=demand)) for faults in ([], slow))
    half = 500 * MILLISECOND
    assert emitted_until(held, half) < emitted_until(hurried, half) / 2
    for world in (hurried, held):
        while world.unrest():
            world.clock.step()
    assert held.oracle.judge().violations == []


def test_no_more_than_its_credits_are_ever_on_their_way() -> None:
    world = World(8, scenario(credits=4))
    for machine in world.machines.values():
        machine.start()
    most = 0
    while world.unrest():
        world.clock.step()
        most = max(most, *(len(source.unacknowledged) for source in world.sources))
    assert most == 4


def test_a_gradual_update_is_seen_half_done_by_the_stream() -> None:
    """While cells still lead to a retired partition, m_high passes on what comes for it."""
    broken = World(0, scenario(), bugs=frozenset({Bug.NO_FORWARDING}))
    assert broken.play().lost > 0
