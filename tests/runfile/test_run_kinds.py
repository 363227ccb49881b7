"""Applications, windows and their sinks in a run file: made, or reported as mistakes."""

import pytest

from sparkswarm import (
    Aggregates,
    Bytes,
    Count,
    Events,
    Nearest,
    PairFunction,
    Sliding,
    Subscriptions,
    Tumbling,
)
from sparkswarm.runfile.reader import parse_run_file
from sparkswarm.runfile.schema import SinkSpec

from .test_reader import RIGHT, mistakes, with_line

TOLD = "[summaries]\nkind = 'noop'\n"
ANSWERED = "[answers]\nkind = 'console'\nrows = 3\n"
SUBSCRIPTIONS = "[application]\nkind = 'subscriptions'\n"
AGGREGATES = f"{TOLD}[point_columns]\ntime = 't'\n[application]\nkind = 'aggregates'\n"
TIMED = "[point_columns]\ntime = 't'\n"
EVENTS = f"{TIMED}[events]\nkind = 'noop'\n"
OWN = f"[application]\nclass = '{__name__}"


def is_multiple(point, query):
    return point["id"] % query["factor"] == 0


multiples = PairFunction(is_multiple, {"factor": "LONG"})
not_callable = 3


class Nearby(PairFunction):
    """An application with arguments, to be named in a file."""

    def __init__(self, radius, names=()):
        if radius < 0:
            raise ValueError("a radius is not negative")
        super().__init__(is_multiple, {"factor": "LONG"})
        self.radius, self.names = radius, names


# -- what is right -----------------------------------------------------------------------------


def test_subscriptions_from_a_file():
    run = parse_run_file(
        f"{RIGHT}{SUBSCRIPTIONS}keywords = 'message'\n"
        "columns = { speed = 'number', kind = 'text' }"
    )
    assert isinstance(run.application, Subscriptions)
    assert run.application.point_columns == ("speed", "kind", "message")


def test_aggregates_of_subscriptions_from_a_file():
    run = parse_run_file(
        f"{RIGHT}{AGGREGATES}columns = ['speed']\nwatermark_delay = '4 s'\n"
        "[application.of]\nkind = 'subscriptions'\n[application.of.columns]\nkind = 'text'"
    )
    assert isinstance(run.application, Aggregates)
    assert (run.application.columns, run.application.watermark_delay) == (("speed",), 4_000_000)
    assert run.application.of.point_columns == ("kind",)
    assert (run.sink, run.summaries, run.answers) == (SinkSpec("noop"), SinkSpec("noop"), None)


def test_an_application_of_ones_own_from_a_file():
    run = parse_run_file(f"{RIGHT}{OWN}:Nearby'\narguments = {{ radius = 2, names = ['a', 'b'] }}")
    assert isinstance(run.application, Nearby)
    assert (run.application.radius, run.application.names) == (2, ["a", "b"])
    assert parse_run_file(f"{RIGHT}{OWN}:multiples'").application is multiples


@pytest.mark.parametrize(
    ("line", "window"),
    [
        ("sliding = '10 minutes'", Sliding(600_000_000)),
        ("tumbling = '1 h'", Tumbling(3_600_000_000)),
        ("count = 5", Count(5)),
        ("bytes = 1000", Bytes(1000)),
    ],
)
def test_windows_from_a_file(line, window):
    run = parse_run_file(f"{RIGHT}{ANSWERED}[window]\n{line}")
    assert run.window == window
    assert run.answers == SinkSpec("console", rows=3)


def test_events_from_a_file():
    run = parse_run_file(
        f"{RIGHT}{TIMED}[events]\nkind = 'noop'\ndwell = '1 m'\ninside = true\ncross = 2.5\n"
        "[nearest]\nkind = 'console'\nwithin_m = 50.0\n[positions]\nkind = 'noop'"
    )
    nearest = Nearest(within_m=50.0)
    assert run.reported == Events("1 m", inside=True, nearest=nearest, cross=2.5)
    assert (run.events, run.nearest) == (SinkSpec("noop"), SinkSpec("console"))
    assert run.positions == SinkSpec("noop")
    assert parse_run_file(RIGHT).reported is None


def test_a_sink_is_not_needed_where_there_is_another():
    text = RIGHT.partition("[sink]")[0] + ANSWERED + "[window]\ncount = 5"
    assert parse_run_file(text).sink is None


# -- what is wrong -----------------------------------------------------------------------------

WRONG = {
    "[application]\nkind = 'sum'": '[application] kind must be one of "subscriptions", "aggreg',
    "[application]": '[application] kind is missing: "subscriptions" or "aggregates"; or a cl',
    "[application]\nkind = 'subscriptions'\nclass = 'a:B'": "kind and class exclude each other",
    SUBSCRIPTIONS + "watermark_delay = '1 s'": 'delay is not for kind "subscriptions", which has',
    SUBSCRIPTIONS + "columns = ['a']": 'must be a table of names and kinds, such as { speed = "nu',
    SUBSCRIPTIONS + "columns = { a = 'int' }": "cannot be of the kind 'int'; choose one of number",
    SUBSCRIPTIONS + "columns = { a = 1 }": "columns must be a list of strings, or a table of str",
    SUBSCRIPTIONS + "columns = 'a'": 'must be a list of strings, or a table of strings, got "a"',
    AGGREGATES + "columns = { a = 'number' }": 'of kind "aggregates" must be a list of strings',
    AGGREGATES + "keywords = 'm'": 'keywords is not for kind "aggregates", which has columns',
    AGGREGATES
    + "watermark_delay = 5": 'delay must be a time such as "90 s" or "10 minutes", got 5',
    AGGREGATES + "delay = '5 s'": "[application] delay was renamed to watermark_delay",
    AGGREGATES + "watermark = '5 s'": "there is no key watermark; did you mean watermark_delay?",
    "[application]\nclass = 'nowhere'": 'class must be a place such as "package.module:Name", got',
    "[application]\nclass = 'no.where:X'": "no.where:X was not found: ModuleNotFoundError: No mod",
    OWN + ":Nearer'": "Nearer was not found: AttributeError",
    OWN + ":not_callable'": "is of type int, which cannot be called",
    OWN + ":Nearby'": "cannot be made: TypeError",
    EVENTS + "dwell = '0 s'": "[events] dwell must be a time such as",
    EVENTS + "silent = '1 h'": "[events] there is no key silent; did you mean silent_after?",
    EVENTS + "rows = 3": '[events] rows is for kind "console", and kind is "noop"',
    "[queries]\npath = 'a.json'\nformat = 'fences'": "so it is for [preload] only",
    "[preload]\npath = 'a.json'\nformat = 'fences'\noptions.it = 3": "has no option it, only id",
    f"{ANSWERED}[window]\nsliding = '0 s'": 'or "10 minutes", more than 0, got "0 s"',
    f"{ANSWERED}[window]\ncount = 0": "[window] count must be a whole number of at least 1, got 0",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_is_named_with_its_line_and_what_is_allowed(line):
    text, number = with_line(line)
    (found,) = mistakes(text)
    assert found.startswith(f"run.toml:{number}: ")
    assert WRONG[line] in found


@pytest.mark.parametrize(
    ("text", "number", "said"),
    [
        (AGGREGATES.replace(TOLD, ""), 8, "Aggregates has summaries: the table [summaries]"),
        (AGGREGATES.replace("time = 't'", ""), 10, "[point_columns] time is missing: aggregates"),
        (TOLD, 6, "[summaries] needs a stateful application, such as"),
        (ANSWERED, 6, "[answers] needs a table [window]"),
        ("[window]\ncount = 1", 6, "[window] needs a table [answers]"),
        (f"{ANSWERED}[window]", 9, "needs one of sliding, tumbling, count, bytes, got none"),
        (f"{ANSWERED}[window]\nsiding = '1 s'", 10, "no key siding; did you mean sliding?"),
        (f"{ANSWERED}[window]\ncount = 1\nbytes = 1", 9, "got count and bytes"),
        (
            f"{SUBSCRIPTIONS}[application.of]\nkind = 'subscriptions'",
            8,
            '[application] an inner application is for kind "aggregates", not for kind "subscrip',
        ),
        (f"{AGGREGATES}[application.of]\nkind = 'aggregates'", 10, "keeps state itself"),
        (f"{AGGREGATES}[application.of]\nknd = 'aggregates'", 13, "did you mean kind?"),
        ('[summaries]\nkind = "parquet"', 6, "[summaries] path is missing"),
        (
            f"{OWN}:multiples'\narguments = {{ a = 1 }}",
            7,
            "is of type PairFunction, which cannot be called",
        ),
        (f"{OWN}:Nearby'\narguments = {{ radius = -1 }}", 7, "ValueError: a radius is not"),
        (
            f"{OWN}:is_multiple'\narguments = {{ point = {{ id = 4 }}, query = {{ factor = 2 }} }}",
            7,
            "makes a bool, which is no Application",
        ),
    ],
)
def test_what_does_not_go_together_is_named_with_its_line(text, number, said):
    found = mistakes(RIGHT + text)
    assert any(line.startswith(f"run.toml:{number}: ") and said in line for line in found), found


def test_an_application_that_cannot_be_made_is_told_once():
    assert len(mistakes(RIGHT + TOLD + "[application]\nclass = 'no.where:X'")) == 1


def test_a_window_needs_points():
    text = RIGHT.replace("points", "queries") + ANSWERED + "[window]\ncount = 1"
    assert mistakes(text) == ["run.toml:9: [window] needs a table [points]"]


WRONG_TOGETHER = {
    "[events]\nkind = 'noop'": "[point_columns] time is missing: events need the times of points",
    f"{TIMED}[events]": "[events] kind is missing",
    EVENTS + "cross = 0": "[events] cross must be the length of the longest line",
    f"{EVENTS}cross = 1.0\n[application]\nkind = 'subscriptions'": "beside an [application]",
    f"{EVENTS}[nearest]\nkind = 'noop'\nwithin = 1\nwithin_m = 1": "[nearest] only one of within",
    f"{TIMED}[positions]\nkind = 'noop'": "[positions] needs a table [events]",
    "[preload]\nformat = 'fences'": '[preload] path is missing: format "fences" needs a file',
}


@pytest.mark.parametrize("tables", WRONG_TOGETHER)
def test_what_does_not_go_together_is_named(tables):
    (found,) = mistakes(RIGHT + tables)
    assert WRONG_TOGETHER[tables] in found
