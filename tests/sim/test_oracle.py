"""The oracle tells right from wrong."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparkswarm.apps.application import PairFunction
from sparkswarm.geometry import Bounds, CellRect, Grid
from sparkswarm.protocol.plan import Plan
from sparkswarm.sim.clock import Clock
from sparkswarm.sim.matching import Matching
from sparkswarm.sim.oracle import Oracle
from sparkswarm.sim.tuples import Answered, Ask, Final, Lane, Match, Operation, Point

INSIDE, OUTSIDE = (0.0, 0.0, 2.0, 2.0), (3.0, 3.0, 4.0, 4.0)
CELLS = CellRect(0, 0, 4, 4)
POINT = Point(0, 10, 1.0, 1.0, 0, 0)


def operation(version: int, rectangle: tuple[float, float, float, float] | None) -> Operation:
    return Operation(0, version, 7, version, rectangle, CELLS, CELLS, False)


def match(version: int, lane: Lane | None = None, running: int = 0) -> Match:
    return Match(7, version, 0, 10, lane, running)


class Story:
    """Tell an oracle what happens, one thing a microsecond."""

    def __init__(self, matching: Matching | None = None) -> None:
        self.clock = Clock()
        plan = Plan.initial(Grid(Bounds(0, 0, 4, 4), 4, 4), 2)
        self.oracle = Oracle(self.clock, plan, counts_all=True, matching=matching)

    def tell(self, *events: tuple[str, object]) -> Oracle:
        for what, about in events:
            self.clock.now += 1
            getattr(self.oracle, what)(about)
        return self.oracle


def emitted(item: object) -> tuple[str, object]:
    return ("emitted", item)


def done(item: object) -> tuple[str, object]:
    return ("acknowledged", item)


REGISTERED = (emitted(operation(1, INSIDE)), done(operation(1, INSIDE)))
MET = (emitted(POINT), done(POINT))


@pytest.mark.parametrize(
    ("events", "results", "lost", "duplicated", "violations"),
    [
        pytest.param([*REGISTERED, *MET], [match(1)], 0, 0, 0, id="a result that must be"),
        pytest.param([*REGISTERED, *MET], [], 1, 0, 1, id="a result that is missing"),
        pytest.param([*REGISTERED, *MET], [match(1)] * 2, 0, 1, 1, id="a result that came twice"),
        pytest.param([*MET, *REGISTERED], [match(1)], 0, 0, 1, id="a result before its query"),
        pytest.param([*MET, *REGISTERED], [], 0, 0, 0, id="no result before its query"),
        pytest.param(
            [emitted(POINT), *REGISTERED, done(POINT)], [], 0, 0, 0, id="at once: may be missing"
        ),
        pytest.param(
            [emitted(POINT), *REGISTERED, done(POINT)], [match(1)], 0, 0, 0, id="at once: may be"
        ),
        pytest.param(
            [*REGISTERED, emitted(operation(2, None)), done(operation(2, None)), *MET],
            [match(1)], 0, 0, 1, id="a result of a query that was removed",
        ),
        pytest.param(
            [*REGISTERED, emitted(operation(2, OUTSIDE)), *MET, done(operation(2, OUTSIDE))],
            [], 0, 0, 0, id="updated meanwhile: may be missing",
        ),
        pytest.param(
            [*REGISTERED, emitted(operation(2, OUTSIDE)), *MET, done(operation(2, OUTSIDE))],
            [match(1)], 0, 0, 0, id="updated meanwhile: the old version may still match",
        ),
        pytest.param(
            [*REGISTERED, emitted(operation(2, INSIDE)), *MET, done(operation(2, INSIDE))],
            [], 1, 0, 1, id="updated meanwhile, but inside either way: must be",
        ),
        pytest.param(
            [*REGISTERED, emitted(operation(2, OUTSIDE)), *MET, done(operation(2, OUTSIDE))],
            [match(2)], 0, 0, 1, id="a result of the version that does not contain it",
        ),
        pytest.param([*REGISTERED, emitted(POINT)], [match(1)], 1, 0, 1, id="never acknowledged"),
    ],
)  # fmt: skip
def test_results(
    events: list[tuple[str, object]],
    results: list[Match],
    lost: int,
    duplicated: int,
    violations: int,
) -> None:
    story = Story()
    story.tell(*events, *(("result", result) for result in results))
    verdict = story.oracle.judge()
    assert (verdict.lost, verdict.duplicated) == (lost, duplicated)
    assert len(verdict.violations) == violations


def is_liked(point: dict[str, object], query: dict[str, object]) -> bool:
    return query["colour"] in (None, point["colour"])


COLOUR = pa.schema({"colour": pa.string()})
LIKED = Matching(PairFunction(is_liked, {"colour": "STRING"}, ["colour"]), COLOUR, COLOUR)
RED = POINT._replace(details=("red",))


@pytest.mark.parametrize(
    ("colours", "results", "lost", "violations"),
    [
        pytest.param(["red"], [match(1)], 0, 0, id="a match"),
        pytest.param(["red"], [], 1, 1, id="a match that is missing"),
        pytest.param(["blue"], [match(1)], 0, 1, id="in the rectangle, and no match"),
        pytest.param(["blue"], [], 0, 0, id="in the rectangle, no match and no result"),
        pytest.param(["red", "blue"], [], 0, 0, id="updated meanwhile: may be missing"),
        pytest.param(["red", "blue"], [match(1)], 0, 0, id="updated meanwhile: may still match"),
        pytest.param(["red", "blue"], [match(2)], 0, 1, id="of the version that does not match"),
        pytest.param(["red", None], [], 1, 1, id="a match either way: must be"),
    ],
)
def test_results_of_an_application(
    colours: list[str | None], results: list[Match], lost: int, violations: int
) -> None:
    """The first version is there when the point comes, the second comes with the point."""
    first, *second = (
        operation(version, INSIDE)._replace(details=(colour,))
        for version, colour in enumerate(colours, start=1)
    )
    story = Story(LIKED)
    story.tell(emitted(first), done(first), *map(emitted, second), emitted(RED), done(RED))
    story.tell(*map(done, second), *(("result", result) for result in results))
    verdict = story.oracle.judge()
    assert (verdict.lost, len(verdict.violations)) == (lost, violations)
    assert story.oracle.seen()["pairs that an application denied"] == colours.count("blue")


LANE = (7, 1, 1, 0)


@pytest.mark.parametrize(
    ("numbers", "totals", "is_right"),
    [
        pytest.param([1], [1], True, id="one and ended"),
        pytest.param([2], [2], False, id="begins with two"),
        pytest.param([1], [], False, id="never ended"),
        pytest.param([1], [2], False, id="ended with another number"),
        pytest.param([1], [1, 1], False, id="ended twice"),
    ],
)
def test_running_counts(numbers: list[int], totals: list[int], is_right: bool) -> None:
    story = Story()
    story.tell(*REGISTERED, *MET)
    for number in numbers:
        story.oracle.result(match(1, LANE, number))
    for total in totals:
        story.oracle.result(Final(LANE, total))
    assert (story.oracle.judge().violations == []) is is_right


ASK = Ask(1, 0, INSIDE)


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        pytest.param(Answered(1, 0, 9, ((0, 10),), ()), True, id="all that is in it"),
        pytest.param(Answered(1, 0, 9, (), ()), False, id="a point is missing"),
        pytest.param(Answered(1, 0, 9, ((0, 10), (0, 10)), ()), False, id="a point twice"),
        pytest.param(Answered(1, 3, 9, ((0, 10),), ()), False, id="a point of before the window"),
        pytest.param(Answered(1, 0, 9, (), (1,)), True, id="partial, and 1, which had it, is dead"),
        pytest.param(Answered(1, 0, 9, (), (2,)), False, id="partial, but 2 did not have it"),
        pytest.param(Answered(1, 0, 9, (), (0,)), False, id="partial, but 0 is alive"),
    ],
)
def test_answers(answer: Answered, is_right: bool) -> None:
    story = Story()
    for executor in (2, 1):
        story.oracle.kept(executor, POINT)
    story.tell(*MET, ("fenced", 1), ("fenced", 2), ("asked", ASK), ("answered", answer))
    assert (story.oracle.judge().violations == []) is is_right


def test_a_term_has_one_coordinator() -> None:
    oracle = Story().oracle
    oracle.became_coordinator(1, "gi1")
    oracle.became_coordinator(1, "gi1")
    assert not oracle.verdict.violations
    oracle.became_coordinator(1, "gi2")
    assert oracle.verdict.violations


def test_being_sent_again_is_a_loss_unless_somebody_died() -> None:
    for events, lost in (([], 1), ([("fenced", 1)], 0)):
        story = Story()
        story.tell(*events, emitted(POINT), ("sent_again", POINT), done(POINT))
        assert story.oracle.judge().lost == lost
