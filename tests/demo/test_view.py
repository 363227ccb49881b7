"""What the demo shows in the terminal."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from sparkswarm.demo import view
from sparkswarm.demo.scene import Scene
from sparkswarm.geometry import CellRect
from sparkswarm.observe.progress import Loan, Progress, Status
from sparkswarm.protocol.messages import Decision, DecisionKind, Reason
from sparkswarm.protocol.partition import Partition, moved, split

HALVES = [(CellRect(0, 0, 4, 2), {2: 64}), (CellRect(0, 2, 4, 4), {0: 64})]
CHANGES = (
    split(Partition(1, CellRect(0, 0, 4, 4), (2,)), HALVES, 3),
    moved(Partition(5, CellRect(4, 0, 8, 4), (2,)), 2, 1, 6),
)
GAIN = {"gain": 0.527, "slowest": 0.1044, "mean": 0.04936, "threshold": 0.0212345}
DECISIONS = [
    decision
    for number in range(20)
    for decision in (
        Decision(
            round=number, kind=DecisionKind.REBALANCE, reason=Reason.GAIN_ENOUGH, numbers=GAIN
        ),
        Decision(
            round=number, kind=DecisionKind.ASK, reason=Reason.ABOVE_LEVEL, executors=(2, 0),
            costs=(9.0, 1.0), numbers={"level": 5.0},
        ),
        Decision(
            round=number, kind=DecisionKind.CHANGE, reason=Reason.ABOVE_LEVEL, changes=CHANGES,
            executors=(2, 0, 1), costs=(-0.3, 0.1, 0.2),
        ),
    )
]  # fmt: skip


def progress(batch, executors, seconds=0.9, busy=None):
    return Progress(
        batch=batch, seconds=seconds, points=199_800, matches=10 ** (batch % 8), checks=9,
        operations=7, quarantined={}, plan_version=0,
        busy_s=busy or tuple(0.01 * (m + 1) for m in range(executors)),
        points_by_executor=(1,) * executors,
    )  # fmt: skip


def status(last, partitions=7):
    return Status(
        active=True, policy="swarm", executors=len(last.busy_s), round=3, partitions=partitions,
        batches=1, points=1, matches=1, operations=1, quarantined={("point", "null"): 42},
        last=last, decisions=(),
    )  # fmt: skip


def shown(what, width=80, height=24):
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    console.print(what(console) if callable(what) else what)
    return console.file.getvalue().splitlines()


def screen(batch, executors=8, width=80, height=24, decisions=DECISIONS, static=False):
    scene = Scene(60, executors, 0)
    seen = [progress(b, executors) for b in range(batch + 1)]
    slow = [progress(b, executors, 1.7, (0.5, *[0.01] * (executors - 1))) for b in range(batch + 1)]

    def what(console):
        rival = slow if static else []
        return view.screen(console, scene, status(seen[-1], batch), decisions, seen, rival)

    return shown(what, width, height)


@pytest.mark.parametrize("executors", [2, 3, 8, 22, 32])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (100, 30)])
@pytest.mark.parametrize("static", [False, True])
def test_the_view_fits_and_keeps_its_layout(executors, width, height, static):
    sizes = set()
    for batch in (0, 1, 25, 59):
        lines = screen(batch, executors, width, height, DECISIONS[: 3 * batch], static)
        assert max(map(len, lines)) <= width
        sizes.add(len(lines))
    assert len(sizes) == 1
    assert sizes.pop() < height


def test_it_says_rate_latency_balance_loads_and_decisions():
    text = "\n".join(screen(25))
    for words in (
        "batch 26 of 60", "UTC, evening at", "HOTSPOT", "222,000 points/s", "0.90 s latency",
        "100,000 subscriptions", "42 bad rows", "0.56  ", "80 ms", "█", "round 19",
    ):  # fmt: skip
        assert words in text, words


def test_the_static_plan_stands_beside_swarm_with_the_same_scale():
    lines = screen(25, static=True)
    (first,) = [line for line in lines if line.startswith("│  0 ")]
    swarm, rival = first.split("ms")[:2]
    assert swarm.strip("│ ").endswith(" 10")
    assert rival.rstrip().endswith(" 500")
    assert swarm.count("█") <= 1 < 20 < rival.count("█")
    balances = [line for line in lines if "s a batch" in line]
    assert [line.split()[1:4] for line in balances] == [["SWARM", "0.56", "0.90"],
        ["static", "0.14", "1.70"]]  # fmt: skip


def test_where_both_do_not_fit_the_bars_are_those_of_swarm():
    lines = screen(25, 22, static=True)
    assert not any("static right" in line or "500 ms" in line for line in lines)
    assert sum("s a batch" in line for line in lines) == 2


@pytest.mark.parametrize("width", [80, 120])
def test_what_was_lent_stands_below_the_loads(width):
    scene = Scene(60, 8, 0)
    loans = tuple(Loan(3, m, 17, 20_000 - m) for m in range(8) if m != 3)
    last = replace(progress(20, 8), lent=99_900, loans=loans)

    def what(console):
        return view.screen(console, scene, status(last), DECISIONS, [last])

    (below,) = [line for line in shown(what, width) if "lent" in line]
    assert "50% of the points lent: 3 to 0: 20,000 points of p17" in below
    assert len(below) <= width
    assert not any("lent" in line for line in screen(25, width=width))


def test_a_decision_is_one_line_and_requests_are_left_out():
    lines = [line for line in screen(25) if "round " in line and "balancing" not in line]
    assert "split p1@2 into p3@2 p4@0 and 1 more: 0.1 to 0: the last rows" in lines[0]
    assert lines[1].rstrip("│ ").endswith("…")
    assert not any("ask" in line for line in lines)
    assert [line.split()[2] for line in lines] == ["19", "19", "18", "18"][: len(lines)]


@pytest.mark.parametrize(
    ("batch", "words"), [(0, "hotspot from batch 21"), (19, "hotspot from"), (20, "HOTSPOT"),
                         (39, "HOTSPOT"), (40, "hotspot gone")],
)  # fmt: skip
def test_the_head_says_where_the_hotspot_is(batch, words):
    assert words in screen(batch)[0]


@pytest.mark.parametrize(
    ("batch", "evening"),
    [(0, "evening at 63°W"), (20, "evening at 177°E"), (59, "evening at 57°W")],
)
def test_it_is_evening_where_the_hour_says(batch, evening):
    assert evening in view.line(Scene(60, 2, 0), status(progress(batch, 2)), progress(batch, 2))


def test_the_summary_has_both_runs_side_by_side_without_the_first_batch():
    scene = Scene(3, 2, 0)
    swarm = [progress(0, 2, 9.0), progress(1, 2, 1.0, (0.04, 0.04)), progress(2, 2, 1.0)]
    swarm[1] = replace(swarm[1], lent=49_950)
    static = [progress(b, 2, 2.0, (0.01, 0.03)) for b in range(3)]
    lines = shown(view.summary(scene, swarm, static))
    assert "3 batches of 200,000 points, 2 executors" in lines[1]
    rows = {line.split("hotspot")[0].strip(): line.split("hotspot")[1].split() for line in lines
            if line.startswith((" before the h", " during the h", " after the h"))}  # fmt: skip
    one = ["1.00", "0.67", "40", "ms", "30", "ms", "1.00", "s", "2.00", "s", "25%"]
    assert rows["during the"] == one
    assert [line.split()[4:] for line in lines if line.startswith("   in its first")] == [one]
    assert rows["before the"] == ["-"] * 7
    assert max(map(len, lines)) <= 80
    assert "turns" in " ".join(lines)
    alone = "\n".join(shown(view.summary(scene, swarm, [])))
    assert "static" not in alone
