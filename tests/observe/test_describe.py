"""Decisions in words: every kind and every reason has a sentence."""

import json

import pytest

from sparkswarm.geometry import CellRect
from sparkswarm.observe.describe import decision_json, describe, lines, reason, what
from sparkswarm.protocol.messages import Decision, DecisionKind, Reason
from sparkswarm.protocol.partition import Partition, merged, moved, reshared, split

LEFT = Partition(1, CellRect(0, 0, 4, 4), (0,))
RIGHT = Partition(2, CellRect(4, 0, 8, 4), (0,))
CELL = Partition(3, CellRect(0, 4, 1, 5), (0,))
MOVE = moved(LEFT, 0, 1, 9)
MERGE = merged((LEFT, RIGHT), CellRect(0, 0, 8, 4), 9)
UNSHARE = reshared(Partition(3, CELL.cells, (0, 1), (32, 32)), {0: 64}, 8)


def decision(kind, why, *changes, executors=(0, 1), costs=(), numbers=()):
    return Decision(
        round=7,
        kind=kind,
        reason=why,
        changes=changes,
        executors=executors,
        costs=costs,
        numbers=dict(numbers),
    )


def keep(why, **numbers):
    return decision(DecisionKind.KEEP, why, executors=(), numbers=numbers)


def rebalance(why, **numbers):
    return decision(DecisionKind.REBALANCE, why, executors=(), numbers=numbers)


def refuse(why, **numbers):
    return decision(DecisionKind.REFUSE, why, MOVE, executors=(0,), numbers=numbers)


def nothing(why, *changes, options=1, **numbers):
    numbers |= {"options": options}
    return decision(DecisionKind.NOTHING_TO_GIVE, why, *changes, numbers=numbers)


GAIN = {"gain": 0.25, "slowest": 4.0, "mean": 3.0, "threshold": 0.02}
FASTER = "the slowest executor would get 25.0% faster (4 -> 3; threshold 2.0%)"
JUMPS = (
    "the load keeps jumping (40% of it was not where it was expected); "
    "waiting for 3 more calm rounds"
)
RESIZE, K, R = DecisionKind.RESIZE, DecisionKind, Reason
EXAMPLES = {
    "do nothing": [
        (keep(R.NOTHING_ARRIVED), "nothing arrived"),
        (keep(R.NO_LOAD), "no executor has any load"),
        (keep(R.GAIN_TOO_SMALL, **GAIN), FASTER),
        (keep(R.LOAD_UNSTABLE, surprise=0.4, rounds=3), JUMPS),
        (keep(R.FIRST_ROUND), "the first round has no earlier throughput to compare with"),
        (
            keep(R.STAGE_MOVED, previous=5, throughput=4, stage=1),
            "throughput 5 -> 4, stage 'doubt'",
        ),
    ],
    "rebalance": [
        (rebalance(R.GAIN_ENOUGH, **GAIN), FASTER),
        (
            rebalance(R.STAGES_ENDED, previous=5, throughput=4, stage=0),
            "throughput 5 -> 4, stage 'flip decision'; decision flipped",
        ),
        (
            rebalance(R.REPEATED, times=20),
            "the same decision was taken 20 times (beta); decision flipped",
        ),
    ],
    "ask 0 to give to 1, 2": [
        (
            decision(
                K.ASK,
                R.ABOVE_LEVEL,
                executors=(0, 1, 2),
                costs=(9.0, 1.0, 2.0),
                numbers={"level": 4},
            ),
            "it costs 9, they 1, 2; level 4",
        )
    ],
    "move p1@0 into p9@1": [
        (decision(K.CHANGE, R.ABOVE_LEVEL, MOVE, costs=(-0.5, 0.5)), "0.5 to 1: 1 whole partition"),
        (decision(K.CHANGE, R.ABOVE_LEVEL, MOVE), "to 1: 1 whole partition"),
    ],
    "merge p1@0 p2@0 into p9@0; unshare p3@0+1 into p8@0": [
        (
            decision(K.CHANGE, R.TIDYING, MERGE, UNSHARE, executors=(0,)),
            "tidying up: 1 cells cooled down, 1 merges",
        )
    ],
    "refused move p1@0 into p9@1": [
        (refuse(R.OLD_ROUND, current=8), "it belongs to round 7, this is round 8"),
        (refuse(R.PLAN_CHANGED), "the plan has changed since"),
        (refuse(R.NOT_OWNER), "0 does not own what it would change"),
        (refuse(R.UNKNOWN_EXECUTOR, executors=4), "executors are 0 to 3"),
        (refuse(R.IDS_NOT_GRANTED), "its ids were not granted to 0"),
    ],
    "0 gives nothing": [
        (nothing(R.HOLDS_NOTHING), "it holds nothing that could move"),
        (nothing(R.NO_ROOM, level=4), "1 has no room below the level of 4"),
        (
            nothing(R.NOTHING_FITS, options=2),
            "nothing that 0 holds fits 1 (the best of 2 options)",
        ),
        (
            nothing(R.GAIN_TOO_SMALL, MOVE, gain=0.1, cost=9),
            "1 whole partition would win 0.1 of 9",
        ),
        (
            nothing(R.MOVE_TOO_EXPENSIVE, MOVE, gain=2, price=9),
            "1 whole partition costs 9 once and wins 2 a round",
        ),
    ],
    "resize to 3 executors": [
        (
            decision(RESIZE, R.REQUESTED, MOVE, numbers={"executors": 3, "before": 4}),
            "there were 4; 1 partitions change hands",
        ),
        (
            decision(RESIZE, R.SAME_NUMBER, numbers={"executors": 3, "before": 3}),
            "there are 3 already",
        ),
    ],
    "lost 0": [(decision(K.LOST, R.EXECUTOR_DIED, MOVE), "its 1 partitions go to the others")],
    "regained 0": [(decision(K.REGAINED, R.EXECUTOR_IS_BACK), "it is back, without partitions")],
    "decide without all reports": [
        (decision(K.MISSING_REPORT, R.NO_REPORT, executors=(2, 3)), "no report from [2, 3]")
    ],
    "report ignored": [
        (decision(K.IGNORED_REPORT, R.LATE_OR_UNKNOWN), "late or unknown: 0"),
        (
            decision(
                K.IGNORED_REPORT,
                R.UNUSABLE_NUMBERS,
                numbers={"numerator": float("nan"), "received": -1.0},
            ),
            "0 reported nan and -1",
        ),
    ],
}
ALL = [(one, words, why) for words, some in EXAMPLES.items() for one, why in some]


@pytest.mark.parametrize(("one", "words", "why"), ALL, ids=[one.reason.value for one, *_ in ALL])
def test_a_decision_in_words(one, words, why):
    assert (what(one), reason(one)) == (words, why)
    assert describe(one) == f"round 7: {words} ({why})"


def test_every_kind_and_every_reason_has_an_example():
    assert {one.kind for one, *_ in ALL} == set(DecisionKind)
    assert {one.reason for one, *_ in ALL} == set(Reason)


@pytest.mark.parametrize(
    ("cut", "moves", "words"),
    [
        ("split_rows", 0, "the first rows of p1"),
        ("split_rows", 1, "the last rows of p1"),
        ("split_columns", 0, "the first columns of p1"),
        ("split_columns", 1, "the last columns of p1"),
    ],
)
def test_a_split_says_which_side_moves(cut, moves, words):
    pieces = [
        (cells, {1 if i == moves else 0: 64}) for i, cells in enumerate(getattr(LEFT.cells, cut)(1))
    ]
    one = decision(K.CHANGE, R.ABOVE_LEVEL, split(LEFT, pieces, 9), costs=(-2.0, 2.0))
    assert reason(one) == f"2 to 1: {words}"


def test_each_change_has_its_line_and_the_first_to_a_receiver_its_reason():
    share = reshared(CELL, {0: 32, 2: 32}, 11)
    one = decision(
        K.CHANGE,
        R.ABOVE_LEVEL,
        MOVE,
        moved(RIGHT, 0, 1, 10),
        share,
        executors=(0, 1, 2),
        costs=(-9.0, 4.0, 5.0),
    )
    assert lines(one) == [
        ("move p1@0 into p9@1", "4 to 1: 2 whole partitions"),
        ("move p2@0 into p10@1", ""),
        ("share p3@0 into p11@0+2", "5 to 2: a share of a cell of p3"),
    ]
    assert reason(one) == "4 to 1: 2 whole partitions; 5 to 2: a share of a cell of p3"


def test_json_has_the_fields_and_their_text():
    one = decision(K.CHANGE, R.ABOVE_LEVEL, MOVE, costs=(-0.5, 0.5))
    assert json.loads(json.dumps(decision_json(one))) == {
        "round": 7,
        "kind": "change",
        "what": "move p1@0 into p9@1",
        "reason": "0.5 to 1: 1 whole partition",
        "code": "above_level",
        "executors": [0, 1],
        "costs": [-0.5, 0.5],
        "numbers": {},
        "made": True,
        "changes": [
            {
                "kind": "move",
                "what": "move p1@0 into p9@1",
                "retired": [1],
                "created": [9],
                "reason": "0.5 to 1: 1 whole partition",
            }
        ],
    }


@pytest.mark.parametrize(
    "one", [refuse(R.PLAN_CHANGED), nothing(R.GAIN_TOO_SMALL, MOVE, gain=1, cost=2)]
)
def test_what_was_not_made_says_so(one):
    entry = decision_json(one)
    assert (entry["made"], len(entry["changes"])) == (False, 1)


def test_numbers_that_json_does_not_have_are_null():
    one = keep(R.NO_LOAD, numerator=float("nan"), received=float("inf"), gain=1.0)
    assert decision_json(one)["numbers"] == {"numerator": None, "received": None, "gain": 1.0}
