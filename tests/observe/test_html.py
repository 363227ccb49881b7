"""What a notebook shows: whole, well-formed, and with everything from outside escaped."""

import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from sparkswarm.errors import MissingExtraError
from sparkswarm.geometry import Bounds, Grid
from sparkswarm.observe import html
from sparkswarm.observe.html import (
    MAX_BARS,
    css_colour,
    handle_html,
    plan_html,
    plan_svg,
    plot,
    status_html,
)
from sparkswarm.observe.progress import Progress, Status
from sparkswarm.protocol.messages import Decision, DecisionKind, Reason
from sparkswarm.protocol.partition import reshared, split
from sparkswarm.protocol.plan import Plan

EVIL = "<script>alert('x')</script>&"


class Page(HTMLParser):
    """Checks that tags are closed in order, and counts them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def plan(executors=3):
    return Plan.initial(Grid(Bounds(0, 0, 16, 8), 16, 8), executors)


def hot_split():
    (whole, *_) = plan().partitions
    pieces = zip(whole.cells.split_rows(4), ({0: 64}, {1: 64}), strict=True)
    return Decision(
        round=1,
        kind=DecisionKind.CHANGE,
        reason=Reason.ABOVE_LEVEL,
        changes=(split(whole, list(pieces), 4),),
        executors=(0, 1),
        costs=(-0.5, 0.5),
    )


def status(executors=3, **changed):
    busy = tuple(0.01 * (m + 1) for m in range(executors))
    last = Progress(
        batch=7, seconds=0.5, points=1000, plan_version=0, busy_s=busy,
        points_by_executor=(10,) * executors,
    )  # fmt: skip
    facts = Status(
        active=True, policy="swarm", executors=executors, round=2, partitions=3, batches=8,
        points=9000, matches=100, operations=40, quarantined={("point", "not a number"): 2},
        last=last, decisions=(hot_split(),),
    )  # fmt: skip
    return replace(facts, **changed)


def test_a_status_shows_what_its_text_says():
    page = Page(status_html(status()))
    for words in ("swarm, running", "3 executors", "9,000 points", "batch 7", "2,000 points/s",
                  "2 x point: not a number", "split p2@0 into p4@0 p5@1",
                  "0.5 to 1: the last rows of p2",
                  "10 ms", "30 ms"):  # fmt: skip
        assert words in page.text


def test_a_status_before_the_first_batch_is_shown():
    page = Page(status_html(status(last=None, quarantined={}, decisions=(), active=False)))
    assert "stopped" in page.text


def test_what_came_from_outside_is_text():
    hostile = status(
        policy=EVIL,
        quarantined={(EVIL, EVIL): 1},
    )
    page = Page(handle_html(hostile, plan()))
    assert "script" not in page.tags
    assert page.text.count(EVIL) == 3


def test_a_plan_has_a_rectangle_for_each_partition_within_the_picture():
    page = Page(plan()._repr_html_())
    assert page.tags.count("rect") == 3
    assert "circle" not in page.tags
    assert "3 partitions of 3 executors" in page.text


def test_a_shared_partition_is_marked_and_names_all_owners():
    start = plan()
    ids, start = start.reserve(1)
    shared = start.apply([reshared(start.partitions[0], {0: 32, 2: 32}, ids[0])])
    page = Page(plan_html(shared))
    assert page.tags.count("circle") == 1
    assert "executor 0 and 2" in page.text
    assert "1 shared" in page.text


def test_rows_count_upwards():
    grid = Grid(Bounds(0, 0, 1, 1), 1, 2)
    svg = plan_svg(Plan.initial(grid, 2))
    lower = next(part for part in svg.split("<rect ") if "p1," in part)
    assert 'y="240.0"' in lower  # the first row is the lower half of 480 pixels


def test_very_many_partitions_are_not_all_drawn(monkeypatch):
    monkeypatch.setattr(html, "MAX_RECTANGLES", 5)
    page = Page(plan_html(plan(8)))
    assert page.tags.count("rect") == 5
    assert "The 3 smallest partitions are not drawn." in page.text


def test_of_very_many_executors_the_busiest_are_shown():
    page = Page(status_html(status(MAX_BARS + 10)))
    assert f"The {MAX_BARS} busiest of {MAX_BARS + 10}" in page.text
    assert "400 ms" in page.text
    assert "100 ms" not in page.text


def test_colours_of_neighbours_differ():
    assert len({css_colour(m) for m in range(22)}) == 22


@pytest.mark.parametrize("busy", [(), (0.1, 0.2, 0.3), (0.0, 0.0, 0.0)])
def test_a_plot_has_the_partitions_and_the_loads(busy):
    from matplotlib import pyplot as plt

    figure = plot(plan(), busy)
    partitions, *loads = figure.axes
    assert len(partitions.collections[0].get_paths()) == 3
    assert (partitions.get_xlim(), partitions.get_ylim()) == ((0, 16), (0, 8))
    assert len(loads) == bool(busy)
    if busy:
        assert [bar.get_width() for bar in loads[0].patches] == [1000 * b for b in busy]
    assert not plt.get_fignums(), "a notebook would show it twice"
    figure.canvas.draw()


def test_a_plot_marks_shared_partitions():
    start = plan()
    ids, start = start.reserve(1)
    shared = start.apply([reshared(start.partitions[0], {0: 32, 2: 32}, ids[0])])
    assert len(plot(shared).axes[0].lines) == 1
    assert not plot(start).axes[0].lines


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"sparkswarm\[plot\]"):
        plot(plan())
