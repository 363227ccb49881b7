"""The cluster: forty machines on five hosts, and what a tuple asks of each."""

import numpy as np
import pytest

from sparkswarm.errors import ConfigError
from sparkswarm.experiments.machines import Machines


def test_the_papers_cluster_has_eight_machines_on_each_host():
    m = Machines()
    assert (m.executors, m.routers, m.sources, m.round_seconds) == (22, 8, 10, 15.0)
    machines = np.arange(m.sources + m.routers + m.executors) % m.hosts
    assert np.bincount(machines).tolist() == [8] * 5
    assert np.bincount(m.host_of_executors()).tolist() == [4, 4, 4, 5, 5]


@pytest.mark.parametrize("machines", [Machines(), Machines().without_routers()])
def test_whatever_leaves_a_host_enters_another(machines):
    rng = np.random.default_rng(1)
    share = rng.dirichlet(np.ones(machines.executors))
    demand = machines.demand(share, share * 1e-6, 1e-8)
    links = demand.visits[machines.executors + machines.routers :]
    out, entering = np.split(links, 2)
    assert out.sum() == pytest.approx(entering.sum())
    assert 0 < out.sum() < machines.hops
    assert demand.visits[: machines.executors].sum() == pytest.approx(1.0)


def test_a_link_carries_what_can_be_achieved_of_ten_gigabits():
    assert Machines().link_seconds(1e9) == pytest.approx(1.0)
    assert Machines().tuple_on_link == pytest.approx(140e-9)


def test_all_on_one_host_cross_no_link():
    m = Machines(executors=3, routers=1, sources=1, hosts=1)
    demand = m.demand(np.full(3, 1 / 3), np.full(3, 1e-6), 1e-8)
    assert not demand.seconds[4:].any()


def test_replicated_has_all_machines_as_executors_and_one_hop():
    m = Machines().without_routers()
    assert (m.executors, m.routers, m.hops) == (30, 0, 1)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="at least one"):
        Machines(executors=0)
    with pytest.raises(ConfigError, match="shorter than a slice"):
        Machines(round_seconds=0.01)
