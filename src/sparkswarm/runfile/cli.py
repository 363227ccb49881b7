"""The commands ``sparkswarm run`` and ``sparkswarm explain``: words and options.

Exit codes of ``run``: 0 the run came to its end, 1 it failed, 2 the file or the usage is wrong,
130 it was interrupted and ended cleanly. Of ``explain``: 0 all is there, 1 it is no checkpoint
or a damaged one.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.text import Text

from sparkswarm.errors import ConfigError, InputError, SparkswarmError
from sparkswarm.terminal import explained, people, write_json

if TYPE_CHECKING:
    from sparkswarm.observe.progress import Progress
    from sparkswarm.protocol.messages import Decision
    from sparkswarm.protocol.plan import Plan

FAILED, WRONG, INTERRUPTED = 1, 2, 130

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
CAUSE = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)

JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write JSON here; - is stdout.")
]

logger = logging.getLogger(__name__)


def run(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG.toml", help="Run file; see docs/reference/run-file.md."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Look for mistakes in the file, and start nothing.")
    ] = False,
    example: Annotated[
        bool, typer.Option("--example", help="Print a whole file that runs as it is.")
    ] = False,
    json_to: JsonOption = None,
) -> None:
    """Run a stream as a file says: sources, settings, sink, all in one place.

    Ctrl-C and SIGTERM end it after the batch under way; the same command goes on.

    Exit codes: 0 it came to its end, 1 it failed, 2 the file is wrong, 130 it was
    interrupted.
    """
    if example:
        sys.stdout.write(example_file())
        return
    if config is None:
        raise typer.BadParameter("give the file of a run, or --example to see one")
    from sparkswarm.runfile.reader import read_run_file

    with _mistakes(people):
        said = read_run_file(config)
    if check:
        people.print(f"{config}: no mistakes", highlight=False, markup=False, soft_wrap=True)
        return
    from sparkswarm.runfile.job import interruptible, running, status_json, wait

    with _mistakes(people), _voice(people) as voice:
        # Signals last: Spark takes Ctrl-C for itself when it starts.
        with running(said, [voice.batch], voice.say) as handle, interruptible() as interrupt:
            is_over = wait(handle, interrupt)
            if not is_over:
                voice.say("ending after the batch under way; once more ends at once")
        status = handle.status()
    people.print(str(status), highlight=False, markup=False, soft_wrap=True)
    write_json(json_to, status_json(status))
    if not is_over:
        people.print("interrupted; the same command goes on")
        raise typer.Exit(INTERRUPTED)


def explain(
    checkpoint: Annotated[str, typer.Argument(help="A run's checkpoint, a folder or a URI.")],
    partitions: Annotated[int, typer.Option(min=0, help="Partitions to list, at most.")] = 20,
    decisions: Annotated[int, typer.Option(min=0, help="Decisions to list, at most.")] = 20,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file and compare its checksum.")
    ] = False,
    json_to: JsonOption = None,
) -> None:
    """Say what a checkpoint holds: the plan, why it is so, what is stored, what was refused.

    Reads only, without Spark, also while the run goes on.

    Exit code 1 if it is no checkpoint or a damaged one.
    """
    from sparkswarm.observe.checkpoint import explain_checkpoint
    from sparkswarm.observe.tables import render

    with explained():
        found = explain_checkpoint(checkpoint, verify)
    if json_to != "-":
        for part in render(found, partitions, decisions):
            people.print(part, highlight=False)
    write_json(json_to, found.to_json())
    if not found.is_whole:
        raise typer.Exit(FAILED)


def example_file() -> str:
    """Return a run's file that runs as it is, with a comment on everything."""
    return (files("sparkswarm.runfile") / "example.toml").read_text(encoding="utf-8")


@contextmanager
def _mistakes(people: Console) -> Iterator[None]:
    """Turn errors into lines and exit codes."""
    try:
        yield
    except (ConfigError, InputError) as error:
        _tell(people, str(error))
        raise typer.Exit(WRONG) from error
    except SparkswarmError as error:
        _tell(people, str(error))
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt:
        people.print("interrupted; a batch under way comes again when the run goes on")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        # Whatever Spark and its sources raise; all of it, then what matters.
        logger.exception("the run failed")
        _tell(people, f"the run failed: {_cause(str(error))}")
        raise typer.Exit(FAILED) from error


def _tell(people: Console, text: str) -> None:
    for line in text.splitlines():
        people.print(Text.assemble(("error: ", "bold red"), line), soft_wrap=True)


def _cause(text: str) -> str:
    """Return the innermost error that a Java stack trace names."""
    causes = CAUSE.findall(text)
    if not causes:
        return text.strip().splitlines()[0] if text.strip() else "no reason was given"
    name, reason = causes[-1]
    return f"{name}: {reason}"


class _Voice:
    """Tells people what happens: in a line that changes on a terminal, else in log lines."""

    def __init__(self, update: Callable[[str], None] | None) -> None:
        self._update = update
        self._last = ""

    def say(self, text: str) -> None:
        if self._update is None or text.startswith("metrics at "):
            logger.info("%s", text)
        if self._update is not None:
            self._update(text)

    def batch(self, progress: Progress, plan: Plan, decisions: Sequence[Decision]) -> None:
        """Hear of a batch; without a terminal the engine's own log lines say it."""
        if self._update is None:
            return
        changes = [decision for decision in decisions if decision.made]
        if changes:
            from sparkswarm.observe.describe import describe

            self._last = describe(changes[-1])
        line = (
            f"batch {progress.batch}: {progress.points:,} points in {progress.seconds:.2f} s "
            f"({progress.points_per_second:,.0f}/s), balance {progress.balance:.2f}, "
            f"{len(plan.partitions):,} partitions"
        )
        self._update(f"{line}\n{self._last}" if self._last else line)


def _cut(text: str, width: int) -> Text:
    """Return lines that fit beside a spinner."""
    lines = [Text(line) for line in text.splitlines()]
    for line in lines:
        line.truncate(width - 2, overflow="ellipsis")
    return Text("\n").join(lines)


@contextmanager
def _voice(people: Console) -> Iterator[_Voice]:
    ours = logging.getLogger("sparkswarm")
    before = ours.level, ours.propagate
    handler: logging.Handler
    if people.is_terminal:
        handler = RichHandler(console=people, show_path=False, markup=False)
        ours.setLevel(logging.WARNING)
        logger.setLevel(logging.INFO)
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        ours.setLevel(logging.INFO)
    ours.addHandler(handler)
    ours.propagate = False
    try:
        if people.is_terminal:
            with people.status("") as status:
                yield _Voice(lambda text: status.update(_cut(text, people.width)))
        else:
            yield _Voice(None)
    finally:
        ours.removeHandler(handler)
        ours.setLevel(before[0])
        ours.propagate = before[1]
