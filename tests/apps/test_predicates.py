"""Conditions mean what they mean in SQL; what cannot be parsed is rejected with a reason."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.apps.subscriptions.predicates import (
    COLUMN,
    ELSE,
    HIGH,
    LOW,
    MATCH,
    MAX_DEPTH,
    MAX_LENGTH,
    THEN,
    BoolOp,
    Comparison,
    Program,
    compile_conditions,
    parse,
)
from sparkswarm.errors import InputError

COLUMNS = {
    "speed": "number",
    "kind": "text",
    "active": "boolean",
    "seen": "time",
    "the `in`": "text",
}


# -- an oracle: SQL's three truth values, and values compared by Python --------------------------


class Node:
    """A condition that can be written as text and evaluated independently; None is unknown."""

    def __init__(self, text: str, truth: Any, columns: set[str]) -> None:
        self.text, self.truth, self.columns = text, truth, columns


def sql_not(value: bool | None) -> bool | None:
    return None if value is None else not value


def sql_and(values: list[bool | None]) -> bool | None:
    return False if False in values else None if None in values else True


def sql_or(values: list[bool | None]) -> bool | None:
    return True if True in values else None if None in values else False


COMPARE = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}

POOLS: dict[str, list[Any]] = {
    "speed": [-(2**63), -1.5, 0, 0.1, 1, 49, 50, 2**53, 2**53 + 1, 2**63 - 1, 1e300],
    "kind": ["", "B", "a", "b", "it's", "ab", "é", "日本"],
    "active": [False, True],
    "seen": [datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(2024, 1, 31, 12, tzinfo=UTC)],
}
BETWEEN = {
    "speed": [-7.0, 0.5, 50.5, -1e301, 1e301, 2.0**53],
    "kind": ["A", "aa", "zz"],
    "active": [],
    "seen": [datetime(2000, 1, 1, tzinfo=UTC), datetime(2024, 2, 1, tzinfo=UTC)],
}


def written(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        return f"'{value.isoformat()}'"
    return repr(value).lower()


def any_case(draw: Any, words: str) -> str:
    return "".join(draw(st.sampled_from([c, c.upper()])) for c in words)


@st.composite
def comparisons(draw: Any) -> Node:
    column = draw(st.sampled_from(list(POOLS)))
    literal = st.sampled_from(POOLS[column])
    forms = ["compare", "in", "between", "null"] + (["bare"] if column == "active" else [])
    form = draw(st.sampled_from(forms))
    negated = draw(st.booleans())
    n = any_case(draw, "not ") if negated else ""
    flip = sql_not if negated else (lambda value: value)
    if form == "compare":
        sign, a = draw(st.sampled_from(list(COMPARE))), draw(literal)
        text, ask = f"{column}{sign} {written(a)}", lambda v: COMPARE[sign](v, a)
    elif form == "in":
        some = draw(st.lists(literal, min_size=1, max_size=6))
        listed = " , ".join(map(written, some))
        text = f"{column} {n}{any_case(draw, 'in')}({listed})"
        ask = lambda v: flip(v in some)  # noqa: E731
    elif form == "between":
        a, b = draw(literal), draw(literal)
        words = any_case(draw, "between")
        text = f"{column} {n}{words} {written(a)} {any_case(draw, 'and')} {written(b)}"
        ask = lambda v: flip(a <= v <= b)  # noqa: E731
    elif form == "bare":
        text, ask = column, lambda v: v
    else:
        text = f"{column} {any_case(draw, 'is')} {n}{any_case(draw, 'null')}"
        return Node(text, lambda row: flip(row[column] is None), {column})
    return Node(text, lambda row: None if row[column] is None else ask(row[column]), {column})


def grown(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    @st.composite
    def negation(draw: Any) -> Node:
        part = draw(children)
        return Node(f"not ({part.text})", lambda row: sql_not(part.truth(row)), part.columns)

    @st.composite
    def joined(draw: Any) -> Node:
        parts = draw(st.lists(children, min_size=2, max_size=3))
        word, fold = draw(st.sampled_from([("and", sql_and), ("or", sql_or)]))
        text = f" {any_case(draw, word)} ".join(f"({part.text})" for part in parts)
        columns = functools.reduce(set.union, (part.columns for part in parts))
        return Node(text, lambda row: fold([part.truth(row) for part in parts]), columns)

    return negation() | joined()


VALUES = {name: [None, *POOLS[name], *BETWEEN[name]] for name in POOLS}
ROWS = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()})


def comparable(value: Any) -> Any:
    if isinstance(value, datetime):
        return round((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6)
    return value


def walk(program: Program, condition: int, row: dict[str, Any]) -> bool:
    """Evaluate the steps of a program, with ranks counted one by one."""
    step = program.firsts[condition]
    while step >= 0:
        column, low, high = program.steps[step, [COLUMN, LOW, HIGH]]
        operand = program.operands[column]
        value = comparable(row[operand.name])
        rank = 0
        if value is not None:
            rank = 1 + sum(a < value for a in operand.literals)
            rank += sum(a <= value for a in operand.literals)
            if rank % 2 and not operand.ordered:
                rank = 1
        after = program.steps[step, THEN if low <= rank <= high else ELSE]
        assert after < step
        step = after
    return bool(step == MATCH)


@given(st.lists(st.recursive(comparisons(), grown, max_leaves=8), min_size=1, max_size=3), ROWS)
def test_a_row_matches_exactly_where_sql_says_true(nodes: list[Node], row: dict[str, Any]) -> None:
    program = compile_conditions([parse(node.text, COLUMNS) for node in nodes])
    used = set().union(*(node.columns for node in nodes))
    assert {operand.name for operand in program.operands} == used
    # Each value of each column in turn, the others as they are.
    rows = [row | {name: value} for name in used for value in VALUES[name]]
    for i, node in enumerate(nodes):
        for each in rows:
            assert walk(program, i, each) == (node.truth(each) is True), (node.text, each)


def test_long_lists_are_searched_in_few_steps() -> None:
    numbers = range(0, 1000, 2)
    text = f"speed in ({', '.join(map(str, numbers))})"
    for words, wanted in ((text, True), (text.replace(" in ", " not in "), False)):
        program = compile_conditions([parse(words, COLUMNS)])
        for value in (-1, 0, 1, 498, 499, 998, 999):
            assert walk(program, 0, {"speed": value}) == ((value in numbers) == wanted)
        assert not walk(program, 0, {"speed": None})
        depth: dict[int, int] = {}
        for i, step in enumerate(program.steps):
            depth[i] = 1 + max(depth.get(int(step[THEN]), 0), depth.get(int(step[ELSE]), 0))
        assert max(depth.values()) <= 11


# -- the grammar ---------------------------------------------------------------------------------


def compare(column: str, operator: str, *literals: Any) -> Comparison:
    return Comparison(column, operator, literals)


FAST, SLOW, TAXI = (
    compare("speed", ">", 50),
    compare("speed", "<", 5),
    compare("kind", "in", "taxi"),
)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("speed > 50", FAST),
        ("speed>50or speed<5", BoolOp("or", (FAST, SLOW))),
        ("  speed\n>\t50 AND kind = 'taxi' ", BoolOp("and", (FAST, TAXI))),
        (
            "speed > 50 and kind = 'taxi' or speed < 5",
            BoolOp("or", (BoolOp("and", (FAST, TAXI)), SLOW)),
        ),
        (
            "speed > 50 and (kind = 'taxi' or speed < 5)",
            BoolOp("and", (FAST, BoolOp("or", (TAXI, SLOW)))),
        ),
        ("not speed <= 50 and kind = 'taxi'", BoolOp("and", (FAST, TAXI))),
        ("not not speed > 50", FAST),
        (
            "not (speed > 50 and kind = 'taxi')",
            BoolOp("or", (compare("speed", "<=", 50), compare("kind", "not in", "taxi"))),
        ),
        (
            "speed between -1 and +.5e1 and active",
            BoolOp("and", (compare("speed", "between", -1, 5.0), compare("active", "in", 1))),
        ),
        ("not active", compare("active", "not in", 1)),
        ("active <> FALSE", compare("active", "not in", 0)),
        ("kind = 'it''s'", compare("kind", "in", "it's")),
        ("kind = ''", compare("kind", "in", "")),
        ("`the ``in``` is not null", compare("the `in`", "is not null")),
        ("not `kind` is null", compare("kind", "is not null")),
        ("seen < '1970-01-01T00:00:01.5Z'", compare("seen", "<", 1_500_000)),
        ("seen < '1970-01-01T01:00:00+01:00'", compare("seen", "<", 0)),
        ("seen < '1970-01-02'", compare("seen", "<", 86_400_000_000)),
        ("seen >= '0001-01-01T00:00:00+23:59'", compare("seen", ">=", -62135683140_000_000)),
        ("speed = 9223372036854775807", compare("speed", "in", 2**63 - 1)),
        ("speed = 9223372036854775808", compare("speed", "in", 2.0**63)),
    ],
)
def test_a_text_states_a_condition(text: str, condition: Any) -> None:
    read = parse(text, COLUMNS)
    assert read == condition
    assert repr(read) == repr(condition), "1 and 1.0 are equal, but only one is whole"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sped > 50", "unknown column 'sped' at 1 (did you mean speed?)"),
        (
            "speed > 1 or q = 2",
            "unknown column 'q' at 14 (there are speed, kind, active, seen, the `in`)",
        ),
        ("speed > and", "expected a literal at 9"),
        ("speed > kind", "expected a literal at 9"),
        ("speed >", "expected a literal at 8"),
        ("speed = null", "expected a literal at 9 (say 'is null' instead)"),
        ("kind in ()", "expected a literal at 10"),
        ("kind in ('a' 'b')", "expected ')' at 14"),
        ("kind in 'a'", "expected '(' at 9"),
        ("kind not like 'a'", "expected 'in' or 'between' at 10"),
        ("kind like 'a'", "expected a comparison at 6"),
        ("speed is 5", "expected 'null' at 10"),
        ("speed between 1 or 2", "expected 'and' at 17"),
        ("50 < speed", "expected a column at 1"),
        ("speed > 50 and", "expected a column at 15"),
        ("(speed > 50", "expected ')' at 12"),
        ("speed > 50)", "expected 'and', 'or' or the end at 11"),
        ("speed > 50km", "expected 'and', 'or' or the end at 11"),
        ("and", "expected a column at 1"),
        ("in > 5", "expected a column at 1"),
        ("speed > 5; drop", "unexpected ';' at 10"),
        ("kind = 'taxi", "a text without an end at 8"),
        ("`kind = 'taxi'", "a name without an end at 1"),
        ("speed > '50'", "speed needs a number, not '50', at 9"),
        ("kind = 50", "kind needs a text in '...', not 50, at 8"),
        ("kind = true", "kind needs a text in '...', not true, at 8"),
        ("active = 1", "active needs true or false, not 1, at 10"),
        ("seen > 5", "seen needs a time such as '2024-01-31T12:00:00Z', not 5, at 8"),
        (
            "seen > 'noon'",
            "'noon' is not a time such as '2024-01-31T12:00:00Z', at 8",
        ),
        ("speed < 1e999", "too large a number at 9"),
        ("speed < " + "9" * 5000, "too large a number at 9"),
        ("not " * (MAX_DEPTH + 1) + "active", f"nested more than 50 deep at {4 * MAX_DEPTH + 1}"),
        ("(" * 5000, f"nested more than 50 deep at {MAX_DEPTH + 1}"),
        (
            " " * MAX_LENGTH + "active",
            f"{MAX_LENGTH + 6} characters are more than max_condition_length {MAX_LENGTH}",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_place(text: str, reason: str) -> None:
    with pytest.raises(InputError) as refused:
        parse(text, COLUMNS)
    assert str(refused.value) == reason


def test_depth_counts_what_is_open_not_what_was() -> None:
    text = " and ".join(["(not active)"] * (2 * MAX_DEPTH))
    assert len(parse(text, COLUMNS).parts) == 2 * MAX_DEPTH  # type: ignore[union-attr]


@given(st.text(alphabet="spedknat ()'`=<>!,.0159e-+\n;é", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        condition = parse(text, COLUMNS)
    except InputError:
        return
    compile_conditions([condition])
