"""Conditions on the columns of a point: the language of ``where``, and its compiled form.

Owns the grammar, its meaning, and the steps that a condition is compiled to. It sees no table and
no point: :mod:`sparkswarm.apps.subscriptions.literals` looks at the values of points.

The grammar; the case of words does not matter::

    condition  = both { "or" both }
    both       = single { "and" single }
    single     = "not" single | "(" condition ")" | test
    test       = column                                          (a boolean one)
               | column ( "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) literal
               | column [ "not" ] "in" "(" literal { "," literal } ")"
               | column [ "not" ] "between" literal "and" literal
               | column "is" [ "not" ] "null"
    column     = name | "`" any name "`"
    literal    = number | 'text' | true | false

Null means what it means in SQL: a comparison with null is unknown, ``not`` unknown is unknown,
and unknown is no match. No third truth value is needed for that. ``not`` is pushed down to the
tests, each of which has a negation that is also unknown for null. The rest is ``and`` and ``or``,
which are true exactly if they are true with false in place of unknown.

Values are compared with literals only, so all that matters about a value is its **rank** among
them. With the literals of a column in ascending order, counted from 0, null has rank 0, literal i
has rank 2i + 2, and the values below, between and above the literals have the odd ranks. Every test
then asks whether a rank lies in some ranges of ranks, whatever the type of the column.
"""

from __future__ import annotations

import difflib
import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

import numpy as np

from sparkswarm.compiled import IntArray
from sparkswarm.errors import InputError

KINDS = ("number", "text", "boolean", "time")
"""The kinds of values that a column may hold."""

Value = int | float | str
"""A literal: a number, a string, 0 or 1 for false and true, microseconds since 1970 for a time."""

MAX_LENGTH = 10_000
"""Characters of a condition, by default. Longer ones are rejected: every pair pays for them."""
MAX_DEPTH = 50
"""Nesting of parentheses and ``not``. Deeper conditions are rejected."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A test of one column: an operator of ``_NEGATIONS`` and its literals."""

    column: str
    operator: str
    literals: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class BoolOp:
    """A conjunction or disjunction of conditions."""

    operator: Literal["and", "or"]
    parts: tuple[Condition, ...]


Condition = Comparison | BoolOp

_NEGATIONS = {
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
    "in": "not in",
    "not in": "in",
    "between": "not between",
    "not between": "between",
    "is null": "is not null",
    "is not null": "is null",
}
_ORDERING = {"<", "<=", ">", ">=", "between", "not between"}
_SIGNS = {"=": "in", "!=": "not in", "<>": "not in", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def negate(condition: Condition) -> Condition:
    """Return the condition that is true where this one is false, and unknown where it is."""
    if isinstance(condition, Comparison):
        return Comparison(condition.column, _NEGATIONS[condition.operator], condition.literals)
    operator: Literal["and", "or"] = "or" if condition.operator == "and" else "and"
    return BoolOp(operator, tuple(negate(part) for part in condition.parts))


# -- parsing -----------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number> [+-]? (?: [0-9]+ (?:\.[0-9]*)? | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? )
    | (?P<text> '(?:[^']|'')*' )
    | (?P<name> [^\W\d]\w* )
    | (?P<quoted> `(?:[^`]|``)+` )
    | (?P<sign> <= | >= | != | <> | [=<>(),] )
    | (?P<end> $ )
    | (?P<stray> . )
    )""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"and", "or", "not", "in", "between", "is", "null", "true", "false"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Token(NamedTuple):
    kind: str
    text: str
    position: int
    """Counted from 1."""


def parse(text: str, columns: Mapping[str, str], max_length: int = MAX_LENGTH) -> Condition:
    """Parse a condition; ``columns`` are those that it may use, each with one of :data:`KINDS`.

    Raises
    ------
    InputError
        If it is not a condition; the message says why and at which character, counted from 1.
    """
    if len(text) > max_length:
        raise InputError(f"{len(text)} characters are more than max_condition_length {max_length}")
    return _Parser(text, columns).parse()


def _tokens(text: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(text):
        kind = str(found.lastgroup)
        token = _Token(kind, found[kind], found.start(kind) + 1)
        if kind == "stray":
            what = {"'": "a text", "`": "a name"}.get(token.text)
            problem = f"{what} without an end" if what else f"unexpected {token.text!r}"
            raise InputError(f"{problem} at {token.position}")
        if kind == "name" and token.text.lower() in _WORDS:
            token = _Token("word", token.text.lower(), token.position)
        yield token
        if kind == "end":
            return


class _Parser:
    """A recursive-descent parser, with a method for each rule of the grammar."""

    def __init__(self, text: str, columns: Mapping[str, str]) -> None:
        self._columns = columns
        self._tokens = list(_tokens(text))
        self._position = 0
        self._depth = 0

    def parse(self) -> Condition:
        condition = self._condition()
        if self._next.kind != "end":
            raise self._expected("'and', 'or' or the end")
        return condition

    @property
    def _next(self) -> _Token:
        return self._tokens[self._position]

    def _take(self, *texts: str) -> _Token | None:
        """Consume the next token if it is one of these words and signs."""
        token = self._next
        if token.kind not in ("word", "sign") or token.text not in texts:
            return None
        self._position += 1
        return token

    def _demand(self, text: str) -> None:
        if not self._take(text):
            raise self._expected(f"'{text}'")

    def _expected(self, what: str) -> InputError:
        return InputError(f"expected {what} at {self._next.position}")

    def _condition(self) -> Condition:
        parts = [self._both()]
        while self._take("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else BoolOp("or", tuple(parts))

    def _both(self) -> Condition:
        parts = [self._single()]
        while self._take("and"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else BoolOp("and", tuple(parts))

    def _single(self) -> Condition:
        begin = self._take("not", "(")
        if begin is None:
            return self._test()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InputError(f"nested more than {MAX_DEPTH} deep at {begin.position}")
        if begin.text == "not":
            condition = negate(self._single())
        else:
            condition = self._condition()
            self._demand(")")
        self._depth -= 1
        return condition

    def _test(self) -> Comparison:
        column = self._column()
        if sign := self._take(*_SIGNS):
            return Comparison(column, _SIGNS[sign.text], (self._literal(column),))
        if self._take("is"):
            operator = "is not null" if self._take("not") else "is null"
            self._demand("null")
            return Comparison(column, operator)
        negated = "not " if self._take("not") else ""
        if self._take("in"):
            self._demand("(")
            literals = [self._literal(column)]
            while self._take(","):
                literals.append(self._literal(column))
            self._demand(")")
            return Comparison(column, negated + "in", tuple(literals))
        if self._take("between"):
            low = self._literal(column)
            self._demand("and")
            return Comparison(column, negated + "between", (low, self._literal(column)))
        if negated:
            raise self._expected("'in' or 'between'")
        if self._columns[column] == "boolean":
            return Comparison(column, "in", (1,))
        raise self._expected("a comparison")

    def _column(self) -> str:
        token = self._next
        if token.kind not in ("name", "quoted"):
            raise self._expected("a column")
        quoted = token.kind == "quoted"
        name = token.text[1:-1].replace("``", "`") if quoted else token.text
        if name not in self._columns:
            close = difflib.get_close_matches(name, self._columns, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(self._columns)}"
            raise InputError(f"unknown column '{name}' at {token.position} ({hint})")
        self._position += 1
        return name

    def _literal(self, column: str) -> Value:
        token = self._next
        if token.text == "null" and token.kind == "word":
            raise InputError(f"expected a literal at {token.position} (say 'is null' instead)")
        if token.kind not in ("number", "text") and token.text not in ("true", "false"):
            raise self._expected("a literal")
        self._position += 1
        kind = self._columns[column]
        text = token.text[1:-1].replace("''", "'")
        if token.kind == "number" and kind == "number":
            return _number(token)
        if token.kind == "word" and kind == "boolean":
            return int(token.text == "true")
        if token.kind == "text" and kind == "text":
            return text
        if token.kind == "text" and kind == "time":
            return _microseconds(text, token.position)
        wanted = {"boolean": "true or false", "time": "a time such as '2024-01-31T12:00:00Z'"}
        what = wanted.get(kind, "a number" if kind == "number" else "a text in '...'")
        raise InputError(f"{column} needs {what}, not {token.text}, at {token.position}")


def _number(token: _Token) -> int | float:
    """Return a 64-bit integer if the token is one, else the nearest 64-bit float."""
    if re.fullmatch("[+-]?[0-9]{1,19}", token.text) and -(2**63) <= int(token.text) < 2**63:
        return int(token.text)
    value = float(token.text)
    if math.isinf(value):
        raise InputError(f"too large a number at {token.position}")
    return value


def _microseconds(text: str, position: int) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"'{text}' is not a time such as '2024-01-31T12:00:00Z', at {position}"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(microseconds=1)


# -- compiling ---------------------------------------------------------------------------------

MATCH = -1
"""Instead of a step: the condition is true."""
FAIL = -2
"""Instead of a step: it is not."""

# Columns of Program.steps.
COLUMN = 0
LOW = 1
HIGH = 2
THEN = 3
ELSE = 4

_NULL = 0
_FIRST = 1
_LAST = 2**31 - 1
"""A rank above all others, whatever the number of literals."""


class Operand(NamedTuple):
    """A column that conditions use."""

    name: str
    literals: tuple[Value, ...]
    """The distinct literals that it is compared with, in ascending order."""
    ordered: bool
    """Whether the order of values matters. If not, odd ranks need not be told apart."""


class Program(NamedTuple):
    """Compiled conditions."""

    operands: tuple[Operand, ...]
    firsts: IntArray
    """The first step of each condition, or ``MATCH`` or ``FAIL``."""
    steps: IntArray
    """Shape (n, 5): a column, by its position in ``operands``; the first and the last rank of a
    range; the next step if the rank of the column's value is in the range, and if it is not.
    A step leads to an earlier one, to ``MATCH`` or to ``FAIL``, so evaluation ends."""


def compile_conditions(conditions: Sequence[Condition]) -> Program:
    """Compile conditions; they share the operands."""
    literals: dict[str, set[Value]] = {}
    ordered: set[str] = set()
    for test in _comparisons(conditions):
        literals.setdefault(test.column, set()).update(test.literals)
        if test.operator in _ORDERING:
            ordered.add(test.column)
    operands = tuple(
        Operand(name, tuple(sorted(literals[name])), name in ordered) for name in literals
    )
    writer = _Writer(operands)
    firsts = [writer.write(condition, MATCH, FAIL) for condition in conditions]
    steps = np.array(writer.steps, np.int32).reshape(-1, 5)
    return Program(operands, np.array(firsts, np.int32), steps)


def _comparisons(conditions: Iterable[Condition]) -> Iterator[Comparison]:
    for condition in conditions:
        if isinstance(condition, Comparison):
            yield condition
        else:
            yield from _comparisons(condition.parts)


class _Writer:
    """Writes steps from the last to the first, so that the next step is always known."""

    def __init__(self, operands: Sequence[Operand]) -> None:
        self._operands = {operand.name: (i, operand) for i, operand in enumerate(operands)}
        self.steps: list[tuple[int, int, int, int, int]] = []

    def write(self, condition: Condition, then: int, otherwise: int) -> int:
        """Write the steps that lead to ``then`` or ``otherwise``; return the first of them."""
        if isinstance(condition, Comparison):
            number, operand = self._operands[condition.column]
            ranges = _ranges(condition, operand.literals)
            return self._write_ranges(number, ranges, then, otherwise)
        for part in reversed(condition.parts):
            if condition.operator == "and":
                then = self.write(part, then, otherwise)
            else:
                otherwise = self.write(part, then, otherwise)
        return then if condition.operator == "and" else otherwise

    def _write_ranges(
        self, column: int, ranges: Sequence[tuple[int, int]], then: int, otherwise: int
    ) -> int:
        """Write a binary search of ranges, which are in ascending order and do not overlap."""
        if not ranges:
            return otherwise
        if len(ranges) == 1:
            self.steps.append((column, *ranges[0], then, otherwise))
        else:
            half = len(ranges) // 2
            low = self._write_ranges(column, ranges[:half], then, otherwise)
            high = self._write_ranges(column, ranges[half:], then, otherwise)
            self.steps.append((column, _NULL, ranges[half - 1][1], low, high))
        return len(self.steps) - 1


def _ranges(test: Comparison, literals: Sequence[Value]) -> list[tuple[int, int]]:
    """Return the ranks for which a test is true: first and last of each range, ascending."""
    if test.operator == "is null":
        return [(_NULL, _NULL)]
    ranks = sorted(2 * bisect_left(literals, value) + 2 for value in set(test.literals))
    match test.operator:
        case "is not null":
            return [(_FIRST, _LAST)]
        case "<":
            return [(_FIRST, ranks[0] - 1)]
        case "<=":
            return [(_FIRST, ranks[0])]
        case ">":
            return [(ranks[0] + 1, _LAST)]
        case ">=":
            return [(ranks[0], _LAST)]
        case "in":
            return [(rank, rank) for rank in ranks]
        case "not in":
            firsts = [_FIRST, *(rank + 1 for rank in ranks)]
            return list(zip(firsts, [*(rank - 1 for rank in ranks), _LAST], strict=True))
    low, high = test.literals
    # The literals of a column are of one type, which mypy cannot know.
    empty = low > high  # type: ignore[operator]
    if test.operator == "between":
        return [] if empty else [(ranks[0], ranks[-1])]
    return [(_FIRST, _LAST)] if empty else [(_FIRST, ranks[0] - 1), (ranks[-1] + 1, _LAST)]
