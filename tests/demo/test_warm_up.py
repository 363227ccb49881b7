"""Compiling beside the start of Spark."""

from sparkswarm.demo import warm_up


def test_nothing_is_started_where_all_is_compiled(monkeypatch):
    monkeypatch.setattr(warm_up, "is_needed", lambda: False)
    with warm_up.in_background() as processes:
        assert processes == []


def test_what_was_started_ends_with_the_block(monkeypatch):
    monkeypatch.setattr(warm_up, "is_needed", lambda: True)
    with warm_up.in_background() as processes:
        assert len(processes) == len(warm_up.PARTS)
    assert all(process.poll() is not None for process in processes)


def test_it_is_needed_until_the_kernels_are_on_disk():
    warm_up.compile_matching()
    assert not warm_up.is_needed()


def test_all_parts_run():
    warm_up.compile_routing()
