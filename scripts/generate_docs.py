"""Write the pages of docs/ that come from the code: ``make docs``.

A test compares the pages with what this script would write, so they cannot drift.
"""

from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from typer.main import get_command

from sparkswarm.cli import app
from sparkswarm.config import settings_table
from sparkswarm.observe.metrics import METRICS, metrics_table
from sparkswarm.protocol.decision import diagram
from sparkswarm.runfile.cli import example_file
from sparkswarm.runfile.schema import METRICS_PORT, keys_tables
from sparkswarm.spark.session import spark_settings_table

DOCS = Path(__file__).resolve().parent.parent / "docs"


def pages() -> dict[str, str]:
    """Return the content of every generated page, by file name."""
    return {
        "settings.md": f"""# Settings

Generated from `src/sparkswarm/config.py` by `make docs`; change it there. Each setting is a
field of `sparkswarm.SwarmConfig`.

{settings_table()}""",
        "session.md": f"""# The Spark session

Generated from `src/sparkswarm/spark/session.py` by `make docs`; change it there, or its text in
`scripts/generate_docs.py`.

`spark = sparkswarm.session()` gives a Spark session that has what SWARM needs; `app_name`,
`master` and `config`, a mapping of Spark's own settings, are as in Spark. These are set:

{spark_settings_table()}
**What you have set wins**, be it in `config`, in `spark-defaults.conf`, on the command line of
`spark-submit` or in the environment. `config` goes before the others. On a cluster whose machines
keep Python elsewhere, set `PYSPARK_PYTHON` to its place there.

**A session that runs already is returned as it is.** If you made yours in another way,
`sparkswarm.check_session(spark)` returns what it lacks, one finding a setting: what was found,
what is wanted, why, and whether it can still be changed. A static setting cannot; it needs a new
session. What is found is also logged as a warning, once. Spark Connect is refused.

## What is not set, and why

- **Adaptive query execution stays on**, with all its settings. It coalesces shuffles whose number
  of partitions Spark chose. Ours, `repartitionById(n, column)`, names its number, and Spark leaves
  those alone, however small or empty the partitions are; a test sees to it. But if Spark can prove
  before it runs that there are no rows at all, it removes the shuffle, and no Python task runs.
- **The session's time zone.** It changes how timestamps are read and shown as text, which is for
  you to choose; Python workers get the same instants in every zone.
- **Arrow.** `mapInArrow` always uses it: `spark.sql.execution.arrow.pyspark.enabled` is about
  pandas only.
""",
        "decision.md": f"""# The five stages of the decision

Generated from the table `TRANSITIONS` in `src/sparkswarm/protocol/decision.py` by `make docs`.

With `decision="five_stages"` the Coordinator decides as the paper does. A pointer moves right
when throughput rose and left when it did not. Reaching the leftmost stage flips the decision
and puts the pointer back to the start, and so does taking the same decision `beta` times. The
first decision is to do nothing. The names of the stages beside "start" and "flip decision"
are ours; the paper leaves them blank.

```mermaid
{diagram()}```

The default is another decision, by predicted gain: see
[decisions](decisions.md) for why.
""",
        "run.md": f"""# A run from a file

Generated from `src/sparkswarm/run/` by `make docs`; change the keys in `keys.py`, the example in
`example.toml`, and this text in `scripts/generate_docs.py`.

Everything about a run may stand in one file, in [TOML](https://toml.io): sources, settings,
sink, Spark. No Python is needed.

```sh
sparkswarm run --example > run.toml   # a whole file with comments, which runs as it is
sparkswarm run run.toml --check       # looks for mistakes, starts nothing
sparkswarm run run.toml               # runs it, or goes on where it ended
sparkswarm run run.toml --json -      # at the end, the state as JSON
```

**Mistakes** are named with their line and with what is allowed, all of them at once:

```text
error: run.toml:4: [swarm] there is no key excutors; did you mean executors?
error: run.toml:5: [swarm] executors must be a whole number from 1 to 100000, got 0
error: run.toml:9: [points] option rowsPerBatch must be a whole number from 1 to 10^9; got 'many'
```

Options of our own formats are checked too; those of other formats only Spark knows.

**While it runs**, a terminal shows one line that changes with every batch. Where standard error
is no terminal there are log lines instead: one for each batch, one for each decision with its
reason.

**Ctrl-C and SIGTERM** end it after the batch under way; a second Ctrl-C ends it at once. Either
way the same command goes on, and no result is lost or doubled, as
[the engine](engine.md#stopping-and-going-on) promises.

| Exit code | Meaning |
|---|---|
| 0 | The run came to its end. |
| 1 | It failed while running; the last line says why, the lines before it all that Spark said. |
| 2 | The file or the usage is wrong, or a source cannot be read; nothing was run. |
| 130 | It was interrupted. |

## The example

```toml
{example_file()}```

## Tables and keys

Relative paths are relative to where the command is started. In `options` and `conf`, dotted names
may be written with or without quotes: `kafka.bootstrap.servers = "…"` is one option.

A password does not belong into the file; `spark-defaults.conf`, which Spark reads too, can be kept
where only the run can read it.

{keys_tables()}
## Kafka

Spark needs its connector, and messages are bytes that must be taken apart:

```toml
[spark.conf]
spark.jars.packages = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"

[points]
format = "kafka"
select = ["inline(array(from_json(string(value), 'id BIGINT, x DOUBLE, y DOUBLE')))"]

[points.options]
kafka.bootstrap.servers = "host:9092"
subscribe = "points"
maxOffsetsPerTrigger = 100000
```

What is not the JSON that `from_json` expects becomes nulls, and so goes to the quarantine.
""",
        "commands.md": f"""# The command line

Generated from the commands themselves by `make docs`; `sparkswarm COMMAND --help` says the same.
Numbers for machines go to where `--json` says, `-` being standard output; everything for people
goes to standard error. Exit codes: 0 done, 1 an error that is explained, 2 wrong usage, 130
interrupted.

{commands_tables(get_command(app), "sparkswarm")}""",
        "metrics.md": f"""# Metrics

Generated from the table `METRICS` in `src/sparkswarm/metrics.py` by `make docs`; change it there,
or this text in `scripts/generate_docs.py`.

{len(METRICS)} numbers say how a run is. They are served for Prometheus, at this machine's own
address unless told otherwise, because nobody is asked for a password there.

From a [file](run.md):

```toml
[metrics]
port = {METRICS_PORT}
```

From Python:

```py
from sparkswarm.observe.metrics import Metrics

metrics = Metrics()
handle = swarm.start(points, queries, sink=sink, checkpoint=checkpoint, observers=[metrics])
metrics.listen(spark, handle)  # Spark's own numbers as well
served = metrics.serve(port={METRICS_PORT})  # http://127.0.0.1:{METRICS_PORT}/metrics
```

`metrics.values()` returns the same numbers as Python has them. `metrics.rows()` returns the last
batches one by one, each with Spark's own progress of the same batch beside ours.

{metrics_table()}
Numbers marked as Spark's come from a `StreamingQueryListener`, a moment after the batch. Counters
begin with 0 when a run is started again, as Prometheus expects.

## The dashboard

[grafana/sparkswarm.json](grafana/sparkswarm.json) is a dashboard for Grafana: *Dashboards*, *New*,
*Import*, choose the file and your Prometheus. It uses these names only; a test sees to it.

What to be woken by is in [operations.md](operations.md#alerts).
""",
    }


def commands_tables(command: Any, name: str) -> str:
    """Return a section for each command, the commands of a group included."""
    if hasattr(command, "commands"):
        return "\n".join(
            commands_tables(child, f"{name} {inner}") for inner, child in command.commands.items()
        )
    places = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p not in places]
    words = [(p.metavar or p.name.upper()).strip("[]").split("|")[0] for p in places]
    usage = [w if p.required else f"[{w}]" for w, p in zip(words, places, strict=True)]
    names = [f"`{word}`" for word in words] + [_spelt(option) for option in options]
    rows = "".join(
        f"| {name} | {_allowed(p)} | {_default(p)} | {p.help or ''} |\n"
        for name, p in zip(names, [*places, *options], strict=True)
    )
    return (
        f"## `{name}`\n\n{_flowing(command.help)}\n\n"
        f"```sh\n{' '.join([name, *usage, '[OPTIONS]'])}\n```\n\n"
        f"| option | allowed | default | meaning |\n|---|---|---|---|\n{rows}"
    )


def _spelt(option: Any) -> str:
    """Return the names of an option, with the word that stands for its value."""
    value = f" {option.metavar}" if option.metavar else ""
    return ", ".join(f"`{name}{value}`" for name in [*option.opts, *option.secondary_opts])


def _flowing(text: str) -> str:
    """Return a help text with the formatting of a terminal taken out."""
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


def _allowed(parameter: Any) -> str:
    """Return what values a parameter of a command takes, in a few words."""
    kind = parameter.type_descriptor.annotation
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    kind = next((k for k in get_args(kind) if k is not NoneType), kind)
    if parameter.nargs > 1:
        return f"{parameter.nargs} numbers"
    name = {int: "a whole number", float: "a number", Path: "a path"}.get(kind, "")
    low, high = parameter.min, parameter.max
    if low is not None and high is not None:
        return f"{name} from {low} to {high}"
    return name if low is None else f"{name} of at least {low}"


def _default(parameter: Any) -> str:
    """Return the default of a parameter of a command."""
    if parameter.required:
        return "**required**"
    if parameter.default is None or parameter.default is False:
        return ""
    if parameter.default is True:
        return f"`{parameter.opts[0]}`"
    return ",".join(f"`{part}`" for part in str(parameter.default).split(","))


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"wrote docs/{name}")
