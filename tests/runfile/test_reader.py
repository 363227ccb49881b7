"""Run files: what is right is read, what is wrong is reported with its line."""

import dataclasses
import re
import tomllib

import pytest

from sparkswarm import (
    Aggregates,
    ConfigError,
    Events,
    Nearest,
    PointColumns,
    QueryColumns,
    Sliding,
    Subscriptions,
    SwarmConfig,
)
from sparkswarm.runfile.cli import example_file
from sparkswarm.runfile.reader import RunFileError, parse_run_file, read_run_file
from sparkswarm.runfile.schema import (
    SECTIONS,
    MetricsSpec,
    SinkSpec,
    SourceSpec,
    keys_tables,
    toml,
)

RIGHT = """checkpoint = "c"
[points]
format = "rate"
[sink]
kind = "noop"
"""


def mistakes(text):
    with pytest.raises(RunFileError) as caught:
        parse_run_file(text, "run.toml")
    return str(caught.value).splitlines()


def with_line(line, text=RIGHT):
    """Return a right file with one line more at its end, and the number of that line."""
    whole = text + line
    return whole, whole.count("\n") + 1


# -- what is right -----------------------------------------------------------------------------


def test_the_example_has_no_mistakes_and_names_every_table():
    run = parse_run_file(example_file())
    assert run.swarm.executors == 4
    assert run.points.options == {"rowsPerBatch": "5000", "limit": "30000", "badRows": "0.001"}
    assert run.trigger == {"availableNow": True}
    for name in SECTIONS:
        if name and not name.startswith("history"):  # for one rival policy
            assert f"[{name}]" in example_file()


def test_what_the_example_has_in_comments_is_right_too():
    """Uncomment everything, the alternatives in place of what they stand for."""
    text = re.sub(r"^# (?=\[\w|\w+ = )", "", example_file(), flags=re.MULTILINE)
    text = re.sub(r"^available_now.*$", "", text, flags=re.MULTILINE)
    run = parse_run_file(text)
    assert run.preload == SourceSpec(table="preload", format="parquet", path="/data/queries")
    assert run.query_columns == QueryColumns(expires="until", order="sequence")
    assert run.quarantine == SinkSpec("parquet", "sparkswarm-example/bad")
    assert run.trigger == {"processingTime": "10 seconds"}
    assert run.conf == {"spark.driver.memory": "4g"}
    assert run.point_columns.time == "ts"
    assert isinstance(run.application, Aggregates)
    assert isinstance(run.application.of, Subscriptions)
    assert run.window == Sliding("10 minutes")
    assert run.summaries == SinkSpec("parquet", "sparkswarm-example/summaries")
    assert run.answers == SinkSpec("parquet", "sparkswarm-example/answers")
    assert run.reported == Events("5 minutes", "1 hour", nearest=Nearest(3, within=0.5))
    assert run.events == SinkSpec("parquet", "sparkswarm-example/events")
    assert run.nearest == SinkSpec("parquet", "sparkswarm-example/nearest")
    assert run.positions == SinkSpec("parquet", "sparkswarm-example/positions")


def test_everything_that_may_be_said():
    run = parse_run_file(
        """
checkpoint = "c"
name = "n"
[swarm]
bounds = [0, 0, 1, 2]
grid = [3, 4]
policy = "static_history"
min_gain = 1
shared_cells = false
[spark]
master = "local[1]"
app_name = "a"
[spark.conf]
spark.ui.enabled = false
"spark.driver.memory" = "1g"
[points]
format = "kafka"
select = ["a", "b"]
options.kafka.bootstrap.servers = "h:1"
options.maxOffsetsPerTrigger = 5
[queries]
format = "json"
path = "q"
schema = "id INT"
[preload]
format = "csv"
options = { header = true }
[history.points]
format = "parquet"
path = "p"
[history.queries]
format = "parquet"
path = "q"
[point_columns]
id = "i"
include = ["k"]
[query_columns]
order = "o"
[sink]
kind = "console"
rows = 3
results = "pairs"
[quarantine]
kind = "console"
[trigger]
processing_time = "1 minute 30 seconds"
[metrics]
host = "0.0.0.0"
"""
    )
    assert run.swarm == SwarmConfig(
        bounds=(0, 0, 1, 2), grid=(3, 4), policy="static_history", min_gain=1, shared_cells=False
    )
    assert (run.checkpoint, run.name, run.master, run.app_name) == ("c", "n", "local[1]", "a")
    assert run.conf == {"spark.ui.enabled": False, "spark.driver.memory": "1g"}
    options = {"kafka.bootstrap.servers": "h:1", "maxOffsetsPerTrigger": "5"}
    assert run.points == SourceSpec(
        table="points", format="kafka", options=options, select=("a", "b")
    )
    assert run.queries == SourceSpec(table="queries", format="json", path="q", schema="id INT")
    assert run.preload.options == {"header": "true"}
    assert [source.path for source in run.history] == ["p", "q"]
    assert run.point_columns == PointColumns(id="i", include=("k",))
    assert run.query_columns == QueryColumns(order="o")
    assert run.sink == SinkSpec("console", rows=3)
    assert run.results == "pairs"
    assert run.quarantine == SinkSpec("console")
    assert run.trigger == {"processingTime": "1 minute 30 seconds"}
    assert run.metrics == MetricsSpec(host="0.0.0.0")


def test_little_is_needed():
    run = parse_run_file(RIGHT)
    assert run.swarm == SwarmConfig()
    assert (run.queries, run.trigger, run.metrics, run.quarantine) == (None,) * 4
    assert run.point_columns == PointColumns()


def test_every_setting_can_be_set():
    for field in dataclasses.fields(SwarmConfig):
        key = SECTIONS["swarm"].key(field.name)
        line = f"{field.name} = {toml(key.default)}"
        assert tomllib.loads(line)
        history = 'format = "rate"\n'
        text = f"{RIGHT}[history.points]\n{history}[history.queries]\n{history}[swarm]\n{line}"
        assert parse_run_file(text).swarm == SwarmConfig()


def test_false_means_no_trigger():
    assert parse_run_file(RIGHT + "[trigger]\navailable_now = false").trigger is None


# -- what is wrong -----------------------------------------------------------------------------

WRONG = {
    "[swarm]\nexecutors = 0": "[swarm] executors must be a whole number from 1 to 100000, got 0",
    "[swarm]\nbeta = 2.5": "[swarm] beta must be a whole number of at least 1, got 2.5",
    "[swarm]\ndecay = 1.5": "[swarm] decay must be a number from 0 to 1, got 1.5",
    "[swarm]\nround_seconds = nan": "[swarm] round_seconds must be a number of at least 0, got nan",
    "[swarm]\nexecutors = true": "[swarm] executors must be a whole number from 1 to 100000",
    "[swarm]\nshared_cells = 1": "[swarm] shared_cells must be true or false, got 1",
    "[swarm]\nbounds = [0, 0, 1]": '[swarm] bounds must be 4 numbers, "usa" or "world"',
    "[swarm]\nbounds = [1, 0, 0, 1]": "bounds need min_x < max_x",
    "[swarm]\ngrid = [10, 0]": "[swarm] bounds",
    '[swarm]\npolicy = "swam"': '[swarm] policy must be one of "swarm", "static_uniform"',
    "[swarm]\nexcutors = 1": "[swarm] there is no key excutors; did you mean executors?",
    "[swarm]\nkeep_batches = 5": "[swarm] keep_batches was renamed to replayable_batches",
    "[point_columns]\nkeep = ['a']": "[point_columns] keep was renamed to include",
    "[swarm]\nport = 1": "[swarm] there is no key port; it is a key of [metrics]",
    "[swarm]\nzzz = 1": "[swarm] there is no key zzz; there are bounds, grid,",
    "[triger]": "there is no table [triger]; did you mean trigger?",
    "[zzz]": "there is no table [zzz]; there are swarm, spark, points",
    "[trigger]\nprocessing_time = 10": '[trigger] processing_time must be a time such as "10 sec',
    '[trigger]\nprocessing_time = "soon"': 'as "10 seconds" or "1 minute", got "soon"',
    "[metrics]\nport = 70000": "[metrics] port must be a whole number from 0 to 65535, got 70000",
    '[metrics]\nhost = " "': '[metrics] host must be a string that is not empty, got " "',
    "[spark]\nconf = { a = [1] }": "[spark] conf must be a table of strings, numbers, true and",
    "[point_columns]\ninclude = 'ts'": 'include must be a list of strings, got "ts"',
    "[point_columns]\ninclude = ['ts', 1]": "[point_columns] include must be a list of strings",
    "[history]\nfoo = 1": "[history] there is no key foo; there are [history.points], [history",
    '[queries]\nformat = "swarm_queries"\noptions = { qeries = 1 }': "did you mean queries?",
    '[queries]\nformat = "swarm_queries"\noptions.churn = 2': "churn must be a number from 0 to 1",
    '[queries]\nformat = "swarm_queries"\noptions.zzz = 2': "the options are ",
    '[quarantine]\nkind = "parquet"\npath = "p"\nrows = 1': '[quarantine] rows is for kind "cons',
    '[quarantine]\nkind = "console"\npath = "p"': '[quarantine] path is for kind "parquet", and',
    '[swarm]\npolicy = "static_history"': 'policy "static_history" needs a table [history.points]',
    "points = 1": "points",  # given twice, in fact
}


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_is_named_with_its_line_and_what_is_allowed(line):
    text, number = with_line(line)
    found = mistakes(text)
    assert found[0].startswith(f"run.toml:{number}: "), found
    assert WRONG[line] in found[0]


@pytest.mark.parametrize(
    ("text", "number", "said"),
    [
        (RIGHT.replace('"c"', '""'), 1, "checkpoint must be a string that is not empty"),
        (RIGHT.replace("checkpoint", "chekpoint"), 1, "there is no key chekpoint; did you mean"),
        (f"executors = 4\n{RIGHT}", 1, "there is no key executors; it is a key of [swarm]"),
        (RIGHT.replace('kind = "noop"', 'kind = "parquet"'), 4, "[sink] path is missing: kind"),
        (RIGHT.replace('kind = "noop"', ""), 4, "[sink] kind is missing."),
        (
            RIGHT.replace('"noop"', '"memory"'),
            5,
            '[sink] kind must be one of "parquet", "kafka", "cons',
        ),
        (RIGHT.replace('format = "rate"', 'path = "p"'), 2, "[points] format is missing."),
        (RIGHT.replace('"rate"', ""), 3, "this is not TOML: invalid value"),
        (f"{RIGHT}[swarm\n", 6, "this is not TOML: expected ']'"),
        (f"{RIGHT}a = 'x", 6, "this is not TOML: "),
        (f"{RIGHT}[sink]\n", 6, "this is not TOML: cannot declare"),
        (f"sink = 1\n{RIGHT.partition('[sink]')[0]}", 1, "sink must be a table, [sink]"),
        (
            f"{RIGHT}[trigger]\nprocessing_time = '1 second'\navailable_now = true",
            8,
            "available_now and processing_time exclude each other",
        ),
        (
            f"{RIGHT.replace('rate', 'swarm_cities')}[trigger]\navailable_now = true",
            2,
            "options.limit is missing: [trigger] available_now needs a stream with an end",
        ),
        (
            f"{RIGHT}[preload]\nformat = 'swarm_queries'\noptions.churn = 0.5",
            6,
            "options.limit is missing: a table that is read once needs a stream with an end",
        ),
    ],
)
def test_a_mistake_anywhere_is_named_with_its_line(text, number, said):
    found = mistakes(text)
    assert any(line.startswith(f"run.toml:{number}: ") and said in line for line in found), found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RIGHT.replace('checkpoint = "c"', ""), "run.toml: checkpoint is missing. A folder"),
        (RIGHT.partition("[sink]")[0], "run.toml: the table [sink] is missing; it needs kind"),
        ('checkpoint = "c"\n[sink]\nkind = "noop"', "neither a table [points] nor [queries]"),
    ],
)
def test_what_is_missing_altogether_has_no_line(text, said):
    assert any(said in line for line in mistakes(text))


def test_all_mistakes_are_named_at_once_in_order():
    text = f"{RIGHT}[swarm]\nbeta = 0\ngird = [1, 1]\ndecay = 2\n[metrics]\nport = -1"
    assert [line.split(":")[1] for line in mistakes(text)] == ["7", "8", "9", "11"]


def test_a_table_with_a_mistake_is_not_quoted_for_it_may_hold_a_password():
    text = RIGHT + '[spark]\nconf = { a = [], password = "hunter2" }'
    assert not any("hunter2" in line for line in mistakes(text))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no\.toml: cannot be read: No such file"):
        read_run_file(tmp_path / "no.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xff")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        read_run_file(tmp_path / "latin.toml")


def test_the_docs_have_every_key():
    page = keys_tables()
    for section in SECTIONS.values():
        assert (f"### `[{section.name}]`" if section.name else "### The top") in page
    for name in ("checkpoint", "processing_time", "maxFilesPerTrigger", "9751"):
        assert name in page
