"""The commands ``sparkswarm run`` and ``sparkswarm explain``: options, output, exit codes.

Exit codes of ``run``: 0 the run ended, 1 it failed, 2 the file or the usage is wrong, 130 it was
interrupted and stopped cleanly. Of ``explain``: 1 if the checkpoint is damaged or not one.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.logging import RichHandler
from rich.text import Text

from sparkswarm.errors import ConfigError, InputError, SparkswarmError
from sparkswarm.spark.failures import cause_of
from sparkswarm.terminal import JsonOption, exit_on_error, stderr, write_json

if TYPE_CHECKING:
    from sparkswarm.observe.progress import Progress
    from sparkswarm.protocol.messages import Decision
    from sparkswarm.protocol.plan import Plan

FAILED, WRONG, INTERRUPTED = 1, 2, 130

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
logger = logging.getLogger(__name__)


def run(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG.toml", help="Run file; see docs/reference/run-file.md."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check the file without starting anything.")
    ] = False,
    example: Annotated[
        bool, typer.Option("--example", help="Print a complete file that can be run as it is.")
    ] = False,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="With --example: a file that uses Kafka.")
    ] = False,
    json_to: JsonOption = None,
) -> None:
    """Run a stream from a file that contains its sources, settings and sinks.

    Ctrl-C and SIGTERM stop it after the current batch; the same command continues it.

    Exit codes: 0 the run ended, 1 it failed, 2 the file is wrong, 130 it was interrupted.
    """
    if example:
        sys.stdout.write(example_file("kafka.toml" if kafka else "example.toml"))
        return
    if config is None:
        raise typer.BadParameter("name a run file, or use --example to see one")
    from sparkswarm.runfile.reader import read_run_file

    with _exit_codes():
        contents = read_run_file(config)
    if check:
        stderr.print(f"{config}: no mistakes", highlight=False, markup=False, soft_wrap=True)
        return
    from sparkswarm.runfile.job import interruptible, running, status_json, wait

    with _exit_codes(), _reporting() as report:
        # Signal handlers last: Spark installs its own when it starts.
        with running(contents, [report.batch], report.show) as handle, interruptible() as interrupt:
            has_ended = wait(handle, interrupt)
            if not has_ended:
                report.show("stopping after the current batch; press Ctrl-C again to stop at once")
        status = handle.status()
    stderr.print(str(status), highlight=False, markup=False, soft_wrap=True)
    write_json(json_to, status_json(status))
    if not has_ended:
        stderr.print("interrupted; the same command continues the run")
        raise typer.Exit(INTERRUPTED)


def explain(
    checkpoint: Annotated[str, typer.Argument(help="The checkpoint of a run, a folder or a URI.")],
    partitions: Annotated[
        int, typer.Option(min=0, help="Maximum number of partitions to list.")
    ] = 20,
    decisions: Annotated[
        int, typer.Option(min=0, help="Maximum number of decisions to list.")
    ] = 20,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file and verify its checksum.")
    ] = False,
    json_to: JsonOption = None,
) -> None:
    """Show what a checkpoint contains: plan, decisions, stored files, rejected rows.

    Only reads, needs no Spark, and may be used while the run is active.

    Exit code 1 if the checkpoint is damaged or the folder is not a checkpoint.
    """
    from sparkswarm.observe.checkpoint import explain_checkpoint
    from sparkswarm.observe.tables import render

    with exit_on_error():
        found = explain_checkpoint(checkpoint, verify)
    if json_to != "-":
        for part in render(found, partitions, decisions):
            stderr.print(part, highlight=False)
    write_json(json_to, found.to_json())
    if not found.is_whole:
        raise typer.Exit(FAILED)


def example_file(name: str = "example.toml") -> str:
    """Return a complete run file with comments."""
    return (files("sparkswarm.runfile") / name).read_text(encoding="utf-8")


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Turn exceptions into messages and exit codes."""
    try:
        yield
    except SparkswarmError as error:
        _print_error(str(error))
        is_wrong = isinstance(error, ConfigError | InputError)
        raise typer.Exit(WRONG if is_wrong else FAILED) from error
    except KeyboardInterrupt:
        stderr.print("interrupted; the current batch runs again when the run is continued")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        # From Spark or a source: the whole trace goes to the log, its cause to the terminal.
        logger.exception("the run failed")
        _print_error(f"the run failed: {cause_of(error)}")
        raise typer.Exit(FAILED) from error


def _print_error(text: str) -> None:
    for line in text.splitlines():
        stderr.print(Text.assemble(("error: ", "bold red"), line), soft_wrap=True)


class _Reporter:
    """Reports progress: in a line that is updated on a terminal, else in log lines."""

    def __init__(self, update: Callable[[str], None] | None) -> None:
        self._update = update
        self._last = ""

    def show(self, text: str) -> None:
        if self._update is None or text.startswith("metrics at "):
            logger.info("%s", text)
        if self._update is not None:
            self._update(text)

    def batch(self, progress: Progress, plan: Plan, decisions: Sequence[Decision]) -> None:
        """Report a batch; without a terminal the engine's own log lines do."""
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
def _reporting() -> Iterator[_Reporter]:
    package = logging.getLogger("sparkswarm")
    before = package.level, package.propagate
    handler: logging.Handler
    if stderr.is_terminal:
        handler = RichHandler(console=stderr, show_path=False, markup=False)
        package.setLevel(logging.WARNING)
        logger.setLevel(logging.INFO)
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        package.setLevel(logging.INFO)
    package.addHandler(handler)
    package.propagate = False
    try:
        if stderr.is_terminal:
            with stderr.status("") as status:
                yield _Reporter(lambda text: status.update(_cut(text, stderr.width)))
        else:
            yield _Reporter(None)
    finally:
        package.removeHandler(handler)
        package.setLevel(before[0])
        package.propagate = before[1]
