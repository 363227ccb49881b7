"""Subscriptions match the points that meet their requirements, for columns of all types."""

from __future__ import annotations

import itertools
import math
import pickle
import random
import unicodedata
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkswarm.apps.application import Pairs
from sparkswarm.apps.subscriptions import application as subscriptions
from sparkswarm.apps.subscriptions import keywords as words
from sparkswarm.apps.subscriptions.application import Subscriptions
from sparkswarm.apps.subscriptions.literals import LiteralRanks
from sparkswarm.errors import ConfigError, InputError

KINDS = {"speed": "number", "kind": "text", "active": "boolean", "seen": "time"}
APP = Subscriptions(KINDS, keywords="text")
NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)


def queries_of(rows: list[dict[str, Any]]) -> pa.Table:
    lists = pa.list_(pa.string())
    types = {"id": pa.int64(), "where": pa.string(), "all_of": lists, "any_of": lists}
    columns = {
        name: pa.array([row.get(name) for row in rows], kind) for name, kind in types.items()
    }
    columns["id"] = pa.array(range(100, 100 + len(rows)), pa.int64())
    return pa.table(columns)


def points_of(**columns: Any) -> pa.Table:
    n = len(next(iter(columns.values())))
    given = {"id": np.arange(n), "x": np.zeros(n), "y": np.zeros(n)}
    return pa.table({**given, **columns})


def all_pairs(points: pa.Table, queries: pa.Table) -> Pairs:
    n, m = points.num_rows, queries.num_rows
    return Pairs(np.repeat(np.arange(n), m), np.tile(np.arange(m), n))


def decide(app: Subscriptions, points: pa.Table, rows: list[dict[str, Any]]) -> list[list[bool]]:
    """Return for each point and each query whether they match."""
    queries = queries_of(rows)
    assert not any(app.reject(queries))
    built, pairs = app.build(queries), all_pairs(points, queries)
    answers = app.match(built, points, pairs)
    assert answers.dtype == np.bool_
    # The same among many points that are in no pair.
    among = Pairs(pairs.points + points.num_rows, pairs.queries)
    many = pa.concat_tables([points] * 4)
    assert app.match(built, many, among).tolist() == answers.tolist()
    return answers.reshape(points.num_rows, len(rows)).tolist()


def matching(app: Subscriptions, points: pa.Table, **query: Any) -> list[int]:
    return [i for i, (matches,) in enumerate(decide(app, points, [query])) if matches]


# -- all at once, against rows taken one by one ------------------------------------------------

Row = dict[str, Any]
TYPES = {
    "speed": pa.float64(),
    "kind": pa.string(),
    "active": pa.bool_(),
    "seen": pa.timestamp("us", "UTC"),
    "text": pa.string(),
}


def known(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


WHERES: list[tuple[str | None, Callable[[Row], bool]]] = [
    (None, lambda p: True),
    ("", lambda p: True),
    (" \n", lambda p: True),
    (
        "speed > 50 and kind in ('taxi','bus')",
        lambda p: known(p["speed"]) and p["speed"] > 50 and p["kind"] in ("taxi", "bus"),
    ),
    (
        "not (speed > 50 and kind in ('taxi','bus'))",
        lambda p: (
            (known(p["speed"]) and p["speed"] <= 50)
            or (p["kind"] is not None and p["kind"] not in ("taxi", "bus"))
        ),
    ),
    ("speed is null or active", lambda p: not known(p["speed"]) or p["active"] is True),
    ("active = false", lambda p: p["active"] is False),
    ("speed != 0.5", lambda p: known(p["speed"]) and p["speed"] != 0.5),
    ("speed not between 0 and 0.5", lambda p: known(p["speed"]) and not 0 <= p["speed"] <= 0.5),
    ("kind >= 'c' and kind < 'é'", lambda p: p["kind"] is not None and "c" <= p["kind"] < "é"),
    ("kind != ''", lambda p: p["kind"] not in (None, "")),
    ("seen >= '2024-01-31T12:00:00Z'", lambda p: p["seen"] is not None and p["seen"] >= NOON),
    ("seen is not null and kind is null", lambda p: p["seen"] is not None and p["kind"] is None),
]
ALPHABET = "aB1_ ,#\n" + "éÉ\u0301日क\u0940ß"
VOCABULARY = ["a", "A", "b", "ab", "é", "e\u0301", "É", "日", "की", "क", "_", "1", "a b", "ß"]

SPEEDS = [None, math.nan, 0.0, -0.0, 0.5, 50.0, 51.0, math.inf, -3.0]
NAMES = [None, "", "taxi", "bus", "car", "d", "éa", "日本"]
TIMES = [None, NOON, NOON - timedelta(microseconds=1), datetime.max.replace(tzinfo=UTC)]


def some_point(rng: random.Random) -> Row:
    text = "".join(rng.choices(ALPHABET, k=rng.randrange(12)))
    return {
        "speed": rng.choice(SPEEDS),
        "kind": rng.choice(NAMES),
        "active": rng.choice([None, False, True]),
        "seen": rng.choice(TIMES),
        "text": rng.choice([None, text, text, text]),
    }


def some_query(rng: random.Random) -> Row:
    where, holds = rng.choice(WHERES)
    lists = ([], None, None, rng.choices(VOCABULARY, k=1), rng.choices(VOCABULARY, k=3))
    return {
        "where": where,
        "holds": holds,
        "all_of": rng.choice(lists[:4]),
        "any_of": rng.choice(lists),
    }


def spelled(text: str) -> str:
    return unicodedata.normalize("NFC", text).lower()


def words_in(text: str) -> set[str]:
    letters = (c if c == "_" or unicodedata.category(c)[0] in "LMN" else " " for c in spelled(text))
    return set("".join(letters).split(" ")) - {""}


def meets(point: Row, query: Row, has: set[str]) -> bool:
    everything = {spelled(word) for word in query["all_of"] or []}
    some = {spelled(word) for word in query["any_of"] or []}
    return query["holds"](point) and everything <= has and (not some or bool(some & has))


@given(st.integers(0, 2**32), st.sampled_from([0, 1, 4, 16]), st.integers(1, 12), st.booleans())
def test_pairs_are_decided_as_rows_one_by_one(seed: int, n: int, m: int, listed: bool) -> None:
    rng = random.Random(seed)
    points = [some_point(rng) for _ in range(n)]
    queries = [some_query(rng) for _ in range(m)]
    chosen = [(rng.randrange(n), rng.randrange(m)) for _ in range(rng.randrange(10 * n + 1))]
    if rng.random() < 0.5:
        chosen.sort()
    has = [words_in(p["text"] or "") for p in points]
    columns = {name: pa.array([p[name] for p in points], kind) for name, kind in TYPES.items()}
    if listed:
        tags = [None if p["text"] is None else p["text"].split(",") for p in points]
        columns["text"] = pa.array(tags, pa.list_(pa.string()))
        has = [{spelled(tag) for tag in each or []} - {""} for each in tags]
    built = APP.build(queries_of(queries))
    if built is None:
        assert not any((q["where"] or "").strip() or q["all_of"] or q["any_of"] for q in queries)
        return
    pairs = Pairs(*np.array(chosen, np.int64).reshape(-1, 2).T.copy())
    found = APP.match(built, points_of(**columns), pairs).tolist()
    assert found == [meets(points[p], queries[q], has[p]) for p, q in chosen]


# -- columns of all types ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.int8(), pa.uint32(), pa.int32(), pa.int64()),
        *(pa.float16(), pa.float32(), pa.float64()),
        *(pa.decimal128(10, 2), pa.decimal256(50, 0)),
        pa.dictionary(pa.int8(), pa.float64()),
    ],
    ids=str,
)
def test_numbers_of_every_type(kind: pa.DataType) -> None:
    values = [None, 0, 49, 50, 51, 52]
    if pa.types.is_decimal(kind):
        values = [None if v is None else Decimal(v) for v in values]
    elif not pa.types.is_integer(kind):
        values = [None if v is None else float(v) for v in values]
    points = points_of(speed=pa.array(values, kind))
    assert matching(APP, points, where="speed > 50") == [4, 5]
    assert matching(APP, points, where="speed <= 50.5 and speed >= 48.5") == [2, 3]
    assert matching(APP, points, where="speed in (50, 51.0, 51.5)") == [3, 4]
    assert matching(APP, points, where="speed is null") == [0]
    assert matching(APP, points, where="speed < 1e30 and speed > -1e30") == [1, 2, 3, 4, 5]
    assert matching(APP, points, where="speed > 1e30 or speed < -1e30") == []


def test_whole_numbers_keep_all_their_digits() -> None:
    large = 2**53
    whole = points_of(speed=pa.array([large, large + 1, 2**63 - 1, -(2**63)], pa.int64()))
    assert matching(APP, whole, where=f"speed = {large + 1}") == [1]
    assert matching(APP, whole, where=f"speed > {large} and speed < 9223372036854775807") == [1]
    assert matching(APP, whole, where="speed >= 9223372036854775807") == [2]
    assert matching(APP, whole, where="speed < 9223372036854775808") == [0, 1, 2, 3]
    assert matching(APP, whole, where="speed <= -9223372036854775808") == [3]
    assert matching(APP, whole, where="speed < -9.3e18 or speed = 9007199254740993.0") == [0]


def test_a_float_is_not_a_whole_number_that_it_is_only_close_to() -> None:
    floats = points_of(speed=[2.0**53 + step for step in (0, 2, 4)])
    # Both lie between floats: one is nearer to that below, the other to that above.
    for between, below in ((2**53 + 1, [0]), (2**53 + 3, [0, 1])):
        assert matching(APP, floats, where=f"speed = {between}") == []
        assert matching(APP, floats, where=f"speed < {between}") == below
        assert matching(APP, floats, where=f"not speed <= {between}") == [*range(len(below), 3)]
        assert matching(APP, floats, where=f"speed < {between} or speed = {2**53}") == below


def test_nan_is_as_unknown_as_null() -> None:
    points = points_of(speed=pa.array([math.nan, None, math.inf, -math.inf]))
    assert matching(APP, points, where="speed > 0 or speed <= 0") == [2, 3]
    assert matching(APP, points, where="speed != 5") == [2, 3]
    assert matching(APP, points, where="not speed in (5)") == [2, 3]
    assert matching(APP, points, where="speed is null") == [0, 1]
    assert matching(APP, points, where="speed is not null") == [2, 3]


def test_decimals_are_the_nearest_float() -> None:
    digits = [f"{i / 1000:.3f}" for i in range(0, 100_000, 37)]
    points = points_of(speed=pa.array(map(Decimal, digits), pa.decimal128(38, 9)))
    for i in range(0, len(digits), 100):
        assert matching(APP, points, where=f"speed = {digits[i]}") == [i]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_texts_of_every_type(kind: pa.DataType) -> None:
    points = points_of(kind=pa.array(["taxi", None, "", "bus", "日本", "taxi"], kind))
    assert matching(APP, points, where="kind = 'taxi'") == [0, 5]
    assert matching(APP, points, where="kind not in ('taxi', 'tram')") == [2, 3, 4]
    assert matching(APP, points, where="kind < 'taxi'") == [2, 3]
    assert matching(APP, points, where="kind > 'car' or kind is null") == [0, 1, 4, 5]
    tagged = Subscriptions({}, keywords="kind")
    assert matching(tagged, points, any_of=["TAXI", "日本"]) == [0, 4, 5]


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")]
    + [pa.timestamp("us", "America/New_York")],
    ids=str,
)
def test_times_of_every_unit(kind: pa.DataType) -> None:
    naive = kind.tz is None
    times = [NOON - timedelta(seconds=1), NOON, NOON + timedelta(seconds=1), None]
    times += [datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)]
    values = [t.replace(tzinfo=None) if naive and t else t for t in times]
    points = points_of(seen=pa.array(values, kind))
    assert matching(APP, points, where="seen > '2024-01-31T12:00:00Z'") == [2]
    assert matching(APP, points, where="seen = '2024-01-31T07:00:00-05:00'") == [1]
    assert matching(APP, points, where="seen < '1970-01-01'") == [4]
    assert matching(APP, points, where="seen is null") == [3]


def test_days_microseconds_and_times_too_far_to_count() -> None:
    days = points_of(seen=[date(2024, 1, 31), date(2024, 2, 1), None])
    assert matching(APP, days, where="seen >= '2024-02-01'") == [1]
    # The time of points is in microseconds, and not in point_columns.
    app = Subscriptions({"time": "time"})
    assert app.point_columns == ()
    counted = points_of(time=[0, 1_706_702_400_000_000])
    assert matching(app, counted, where="time = '2024-01-31T12:00:00Z'") == [1]
    far = points_of(seen=pa.array([2**62, -(2**62), 0], pa.int64()).cast(pa.timestamp("s")))
    assert matching(APP, far, where="seen > '9999-12-31'") == [0]
    assert matching(APP, far, where="seen < '0001-01-01'") == [1]
    fine = points_of(seen=pa.array([-1, 0], pa.int64()).cast(pa.timestamp("ns")))
    assert matching(APP, fine, where="seen < '1970-01-01'") == [0]


def test_a_column_of_nothing_but_null_fits_every_kind() -> None:
    nothing = pa.nulls(2)
    points = points_of(speed=nothing, kind=nothing, active=nothing, seen=nothing, text=nothing)
    for name in KINDS:
        assert matching(APP, points, where=f"{name} is null") == [0, 1]
        assert matching(APP, points, where=f"{name} is not null") == []
    assert matching(APP, points, where="not active or kind > '' or speed < 5") == []
    assert matching(APP, points, any_of=["a"]) == []


@pytest.mark.parametrize("pieces", [0, 1, 3])
def test_points_in_pieces_and_parts_of_tables(pieces: int) -> None:
    speed = [None, 60.0, 40.0, 70.0, 80.0]
    kind = ["bus", "taxi", "taxi", None, "Taxi stand"]
    whole = points_of(speed=speed, kind=kind, text=kind).slice(1)
    parts = [whole.slice(i, 2) for i in range(0, whole.num_rows, 2)] if pieces > 1 else [whole]
    points = pa.concat_tables(parts) if pieces else whole.schema.empty_table()
    fast = matching(APP, points, where="speed > 50 and (kind is null or kind > 'a')")
    assert fast == ([0, 2] if pieces else [])
    assert matching(APP, points, all_of=["taxi"]) == ([0, 1, 3] if pieces else [])
    queries = queries_of([{}, {"where": "speed > 50", "all_of": ["taxi"]}, {}]).slice(1)
    built = APP.build(queries)
    answers = APP.match(built, points, all_pairs(points, queries))
    assert answers.tolist() == ([True, True, False, True, False, True, True, True] * bool(pieces))


# -- keywords ----------------------------------------------------------------------------------


def test_words_of_a_text_and_of_lists() -> None:
    app = Subscriptions({}, keywords="words")
    texts = ["Flood in New York!", "#flood,river;FLOODED", "", None, "new_york", "e\u0301te ÉTÉ"]
    points = points_of(words=texts)
    assert app.point_columns == ("words",)
    assert matching(app, points, all_of=["flood"]) == [0, 1]
    assert matching(app, points, all_of=["york", "New"]) == [0]
    assert matching(app, points, any_of=["flooded", "york", "york"]) == [0, 1]
    assert matching(app, points, all_of=["flood"], any_of=["river", "sea"]) == [1]
    assert matching(app, points, any_of=["new_york"]) == [4]
    assert matching(app, points, all_of=["new york"]) == []
    assert matching(app, points, all_of=["été"]) == [5]
    lists = pa.array([["New York", "flood"], ["flood"], [], None, [None, "FLOOD", "flood", ""]])
    for kind in (pa.list_(pa.string()), pa.large_list(pa.large_string())):
        points = points_of(words=lists.cast(kind))
        assert matching(app, points, all_of=["new york"]) == [0]
        assert matching(app, points, all_of=["flood"]) == [0, 1, 4]
        assert matching(app, points, any_of=["york"]) == []


def test_what_lies_under_a_null_does_not_count() -> None:
    texts = pa.array(["flood", "flood", "Flut é"])
    first_only = pa.py_buffer(bytes([0b001]))
    hidden = pa.Array.from_buffers(pa.string(), 3, [first_only, *texts.buffers()[1:]])
    assert hidden.to_pylist() == ["flood", None, None]
    points = points_of(text=hidden, kind=hidden)
    assert matching(APP, points, any_of=["flood", "é"]) == [0]
    assert matching(APP, points, where="kind > 'a'") == [0]
    lists = pa.ListArray.from_arrays([0, 1, 2, 3], texts)
    offsets = lists.buffers()[1]
    hidden = pa.ListArray.from_buffers(lists.type, 3, [first_only, offsets], children=[texts])
    assert matching(APP, points_of(text=hidden), any_of=["flood", "flut é"]) == [0]


def test_lists_and_texts_without_words_ask_for_nothing() -> None:
    points = points_of(text=["a", None])
    rows = [{"all_of": [], "any_of": []}, {"all_of": ["a"], "any_of": []}, {"any_of": ["a"]}, {}]
    assert decide(APP, points, rows) == [[True] * 4, [True, False, False, True]]


def test_large_vocabularies_are_found_whole() -> None:
    many = [f"w{i}" for i in range(5000)]
    points = points_of(text=[f"{word} other" for word in [*many, "w5000", "w"]])
    queries = queries_of([{"all_of": [word]} for word in many] + [{"any_of": many}])
    built = APP.build(queries)
    own = np.arange(5000)
    assert APP.match(built, points, Pairs(own, own)).all()
    assert not APP.match(built, points, Pairs(own, (own + 1) % 5000)).any()
    found = APP.match(built, points, Pairs(np.arange(5002), np.full(5002, 5000)))
    assert found.tolist() == [True] * 5000 + [False] * 2


def test_words_whose_hashes_collide_are_told_apart() -> None:
    # A hash table with one free slot: nearly all lookups collide.
    names = ["a", "ab", "b", "ba", "c", "abc", ""]
    starts, data = words._bytes_of(pa.array(names, pa.large_string()))
    slots = np.full(8, -1, np.int32)
    words._fill(starts, data, slots)
    assert sorted(slots) == [-1, *range(7)]
    vocabulary = words.Vocabulary(slots, starts, data)
    column = pa.chunked_array([["b ab", "zz c a d", "abc ba abcd", " "]])
    begin, numbers = words.find_keywords(column, "text", vocabulary)
    found = [[names[n] for n in numbers[a:b]] for a, b in itertools.pairwise(begin)]
    assert found == [["b", "ab"], ["c", "a"], ["abc", "ba"], []]


def test_bytes_that_are_no_text_stop_nothing() -> None:
    raw = pa.array([b"flood \xff\xfe", b"\xff", b"flood", None], pa.binary())
    broken = raw.view(pa.string())
    points = points_of(text=broken, kind=broken)
    assert matching(APP, points, all_of=["flood"]) == [0, 2]
    assert matching(APP, points, where="kind >= 'flood'") == [0, 1, 2]
    queries = queries_of([{}] * 4).set_column(1, "where", broken)
    lists = pa.ListArray.from_arrays([0, 1, 2, 3, 4], broken)
    refused = APP.reject(queries.set_column(2, "all_of", lists))
    assert refused[0] == "where: unexpected '\ufffd' at 7"
    assert refused[2] == "where: unknown column 'flood' at 1 (there are speed, kind, active, seen)"
    assert refused[3] == "all_of: a keyword is null or empty"


# -- who pays ----------------------------------------------------------------------------------


def test_a_lot_without_predicates_is_not_built() -> None:
    rows = [{}, {"where": "  "}, {"all_of": []}, {"any_of": []}]
    assert APP.build(queries_of(rows)) is None
    assert APP.build(queries_of([])) is None
    assert APP.build(queries_of([*rows, {"any_of": ["a"]}])) is not None
    lacking = pa.table({"id": [1], **{name: pa.nulls(1) for name in APP.query_columns}})
    assert APP.build(lacking) is None
    assert APP.reject(lacking) == [None]


def test_columns_are_not_looked_at_where_no_query_asks() -> None:
    built = APP.build(queries_of([{}, {"where": "speed > 1"}, {"all_of": ["a"]}]))
    bare = points_of(x=[0.0, 1.0])
    assert APP.match(built, bare, Pairs(np.array([0, 1]), np.array([0, 0]))).tolist() == [True] * 2
    for query in (1, 2):
        with pytest.raises(InputError, match="points have no column"):
            APP.match(built, bare, Pairs(np.array([0, 1]), np.array([0, query])))


@pytest.mark.parametrize(("wanted", "prepared"), [(1, 1), (4, 4), (5, 10), (10, 10)])
def test_only_the_points_that_count_are_prepared(
    wanted: int, prepared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    ranks = LiteralRanks.ranks
    monkeypatch.setattr(
        LiteralRanks, "ranks", lambda self, column: seen.append(len(column)) or ranks(self, column)
    )
    points = points_of(speed=np.arange(10.0), text=["odd" if i % 2 else "even" for i in range(10)])
    built = APP.build(queries_of([{}, {"where": "speed >= 7", "all_of": ["odd"]}]))
    asking = np.arange(10 - wanted, 10)[::-1]
    pairs = Pairs(np.append(np.arange(10), asking), np.repeat([0, 1], [10, wanted]))
    answers = APP.match(built, points, pairs)
    assert answers.tolist() == [True] * 10 + [i >= 7 and i % 2 == 1 for i in asking.tolist()]
    assert seen == [prepared]


def test_each_distinct_condition_and_word_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    parse = subscriptions.parse
    monkeypatch.setattr(subscriptions, "parse", lambda *a: read.append(a[0]) or parse(*a))
    texts = ["speed > 1", "speed > 2", None]
    built = APP.build(queries_of([{"where": texts[i % 3]} for i in range(300)]))
    assert sorted(read) == ["speed > 1", "speed > 2"]
    assert len(built.tests.steps) == 2
    built = APP.build(queries_of([{"all_of": ["a", "b"], "any_of": ["a", "A", "a"]}]))
    assert (built.vocabulary.size, len(built.tests.keywords)) == (2, 3)


# -- what is rejected --------------------------------------------------------------------------


def test_queries_are_refused_with_a_reason() -> None:
    rows = [
        {"where": "sped > 50"},
        {"where": "speed > "},
        {"where": "speed > 50", "all_of": ["a"]},
        {"any_of": ["a", None]},
        {"any_of": [""]},
        {"where": "speed >", "all_of": [None]},
        {},
    ]
    assert APP.reject(queries_of(rows)) == [
        "where: unknown column 'sped' at 1 (did you mean speed?)",
        "where: expected a literal at 9",
        None,
        "any_of: a keyword is null or empty",
        "any_of: a keyword is null or empty",
        "where: expected a literal at 8",
        None,
    ]
    wordless = Subscriptions(KINDS).reject(queries_of([{"all_of": ["a"]}, {"all_of": []}]))
    assert wordless == [
        "all_of: points have no keywords; name their column in Subscriptions",
        None,
    ]


@pytest.mark.parametrize("row", [{"where": "speed > 50"}, {"all_of": ["a"]}])
def test_stored_queries_that_no_longer_fit_are_named(row: Row) -> None:
    with pytest.raises(InputError, match=r"stored query 101 does not fit.*before"):
        Subscriptions({"kind": "text"}).build(queries_of([{}, row]))


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"column speed .* 'float'; choose one of number, text"):
        Subscriptions({"speed": "float"})


@pytest.mark.parametrize(
    ("where", "column"),
    [
        ("speed > 5", pa.array(["5"])),
        ("speed > 5", pa.array([True])),
        ("speed > 5", pa.array([5], pa.uint64())),
        ("kind = 'a'", pa.array([5])),
        ("active", pa.array([1])),
        ("active", pa.array([1.0])),
        ("seen < '2024-01-01'", pa.array(["2024-01-01"])),
        ("seen < '2024-01-01'", pa.array([1.0])),
    ],
)
def test_a_column_of_another_kind_is_refused(where: str, column: pa.Array) -> None:
    name = where.split()[0]
    with pytest.raises(InputError, match=f"column {name} of the points is declared as"):
        matching(APP, points_of(**{name: column}), where=where)


def test_columns_of_other_types_are_refused() -> None:
    with pytest.raises(InputError, match="column text of the points has the keywords"):
        matching(APP, points_of(text=[5]), any_of=["a"])
    with pytest.raises(InputError, match="column where must be a string"):
        APP.reject(queries_of([{}]).set_column(1, "where", pa.array([5])))
    with pytest.raises(InputError, match="column any_of must be a list of strings"):
        APP.reject(queries_of([{}]).set_column(3, "any_of", pa.array(["a"])))


def test_it_travels() -> None:
    app = pickle.loads(pickle.dumps(APP))
    assert app.point_columns == ("speed", "kind", "active", "seen", "text")
    assert matching(app, points_of(text=["a", "b"]), all_of=["b"]) == [1]


@pytest.mark.parametrize(
    ("columns", "keywords", "found", "words"),
    [
        ({"speed": "number"}, None, pa.string(), "column speed .* is declared as number, but it"),
        ({"speed": "boolean"}, None, pa.int64(), "declared as boolean, but it is int64; cast it"),
        ({"speed": "time"}, None, pa.float64(), "declared as time, but it is double"),
        ({"speed": "text"}, None, pa.int32(), "declared as text, but it is int32"),
        ({}, "speed", pa.int32(), "column speed of the points has the keywords, but it is int32"),
    ],
)
def test_a_column_of_another_kind_is_refused_when_the_run_starts(columns, keywords, found, words):
    application = Subscriptions(columns, keywords)
    with pytest.raises(InputError, match=words):
        application.bind(pa.schema([("x", pa.float64()), ("speed", found)]))
    application.bind(pa.schema([("x", pa.float64())]))


def test_columns_of_their_kinds_are_accepted_when_the_run_starts():
    application = Subscriptions(
        {"n": "number", "t": "text", "b": "boolean", "w": "time"}, keywords="k"
    )
    types = [pa.decimal128(9, 2), pa.large_string(), pa.bool_(), pa.timestamp("us", "UTC")]
    for keywords in (pa.string(), pa.list_(pa.string())):
        schema = pa.schema([*zip("ntbw", types, strict=True), ("k", keywords)])
        assert application.bind(schema) is application
