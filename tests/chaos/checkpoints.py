"""Checkpoints that are damaged, older, or continued with other settings."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sparkswarm import (
    ConfigError,
    InputError,
    ParquetSink,
    PointColumns,
    QueryColumns,
    StoreError,
    Swarm,
)
from sparkswarm.store.files import Files
from sparkswarm.store.records import read_json, to_bytes

from ..spark import test_checkpoint_compatibility as older
from ..spark.world import (
    Folders,
    Restless,
    World,
    config,
    expected,
    make_world,
    matches_in,
    start_world,
)
from ..support.damage import cut_short, flip_a_byte, remove
from .trial import Trial

DAMAGES = (cut_short, flip_a_byte, remove)

HINTS = ("restore", "another checkpoint", "damaged", "corrupt", "missing")
"""What an error of ours says of a damaged checkpoint, in one way or another."""


def last_commit(trial: Trial) -> None:
    """Delete the last commit, Spark's or also ours, and start again."""
    spark, world, folders = trial.session(), *_world(trial, 904, 4)
    checkpoint, out = trial.folder / "checkpoint", trial.folder / "out"
    sink = Restless(ParquetSink(str(out)), 1, executors=(3, 5))
    handle = start_world(spark, folders, checkpoint, sink)
    sink.watch(handle)
    handle.await_termination()
    wanted = expected(world).matches
    trial.compare(matches_in(out), wanted, "the first run")
    for number in trial.repeat(20):
        for half in ("spark", "swarm")[: 1 + number % 2]:
            for file in _last(checkpoint / half / "commits"):
                file.unlink()
        trial.tried += 1
        handle = start_world(spark, folders, checkpoint, ParquetSink(str(out)))
        handle.await_termination()
        trial.check(handle.status().batches == 1, "not one batch ran again")
        trial.compare(matches_in(out), wanted, f"after deletion {number}")


def _world(trial: Trial, seed: int, batches: int) -> tuple[World, Folders]:
    world = make_world(seed, batches=batches, points=120, operations=40, preload=60)
    return world, world.write(trial.folder / "world")


def _run_up_to(trial: Trial, folders: Folders, batch: int, checkpoint: Path, out: Path) -> None:
    """Run the batches before one; its files come back afterwards."""
    late = sorted(folders.folder.glob(f"*/0000{batch}*.parquet"))
    for file in late:
        file.rename(trial.folder / f"{file.parent.name}-{file.name}")
    sink = ParquetSink(str(out))
    start_world(trial.session(), folders, checkpoint, sink).await_termination()
    for file in late:
        (trial.folder / f"{file.parent.name}-{file.name}").rename(file)


def _last(folder: Path) -> list[Path]:
    """Return the last record of a folder, with its checksum and whatever else is its own."""
    # A record of ours that a later driver wrote has the driver's number behind its own.
    number = max(int(re.split("[.-]", file.name)[0]) for file in folder.glob("[0-9]*"))
    return [file for file in folder.iterdir() if str(number) in file.name.split(".")] + [
        file for file in folder.glob(f"{number:012d}*.json")
    ]


def damaged_files(trial: Trial) -> None:
    """Cut, flip and delete every file of a checkpoint in turn, and go on with what is left."""
    spark, world, folders = trial.session(), *_world(trial, 905, 4)
    checkpoint, out = trial.folder / "checkpoint", trial.folder / "out"
    _run_up_to(trial, folders, 3, checkpoint, out)
    wanted = expected(world).matches
    cases = [
        (file.relative_to(checkpoint), damage)
        for file in checkpoint.rglob("*")
        if file.is_file() and file.stat().st_size > 0
        for damage in DAMAGES
    ]
    random.Random(905).shuffle(cases)
    trial.whole = len(cases)
    recovered, told = 0, Counter[str]()
    for number in trial.repeat(len(cases)):
        name, damage = cases[number]
        copy = trial.folder / f"copy-{number}"
        shutil.copytree(checkpoint, copy / "checkpoint")
        shutil.copytree(out, copy / "out")
        damage(copy / "checkpoint" / name)
        trial.tried += 1
        error = _go_on(spark, folders, copy)
        got = matches_in(copy / "out")
        what = f"{damage.__name__} {name}"
        if error is None:
            recovered += 1
            trial.compare(got, wanted, what)
        else:
            # What was written before is there still, and nothing wrong was added.
            batches = {row[0] for row in got}
            trial.compare(got, Counter({k: n for k, n in wanted.items() if k[0] in batches}), what)
            told[type(error).__name__] += 1
            if name.parts[0] == "swarm":
                clear = any(hint in str(error) for hint in HINTS)
                trial.check(clear, f"{what}: the error does not say what to do: {error!s:.300}")
        shutil.rmtree(copy)
    errors = ", ".join(f"{count} {kind}" for kind, count in told.most_common())
    trial.notes.append(f"{recovered} recovered; errors: {errors or 'none'}")


def _go_on(spark: Any, folders: Folders, folder: Path) -> Exception | None:
    """Go on with a checkpoint; return what ended it, if it was an error."""
    try:
        sink = ParquetSink(str(folder / "out"))
        start_world(spark, folders, folder / "checkpoint", sink).await_termination()
    except Exception as error:
        return error
    return None


def settings(trial: Trial) -> None:
    """Go on with another grid, bounds, columns, executors, and with other formats."""
    spark, world, folders = trial.session(), *_world(trial, 906, 3)
    checkpoint, out = trial.folder / "checkpoint", trial.folder / "out"
    _run_up_to(trial, folders, 2, checkpoint, out)

    def start(number: int, points: PointColumns | None = None, **changed: Any) -> None:
        copy = trial.folder / f"copy-{number}"
        shutil.copytree(checkpoint, copy / "checkpoint")
        shutil.copytree(out, copy / "out")
        Swarm(spark, config(**{"executors": 3, **changed})).start(
            folders.read_points(spark),
            folders.read_operations(spark),
            sink=ParquetSink(str(copy / "out")),
            checkpoint=str(copy / "checkpoint"),
            point_columns=points or PointColumns(),
            query_columns=QueryColumns(expires="expires"),
            trigger={"availableNow": True},
        ).await_termination()

    refused: list[tuple[str, type[Exception], dict[str, Any]]] = [
        ("grid", ConfigError, {"grid": (40, 32)}),
        ("bounds", ConfigError, {"bounds": (-180.0, -90.0, 180.0, 90.0)}),
        ("id", InputError, {"points": PointColumns(id="no_such_column")}),
    ]
    for number, (word, kind, changed) in enumerate(refused):
        _must_refuse(trial, word, kind, lambda n=number, c=changed: start(n, **c))
    files = Files(str(checkpoint / "swarm"))
    facts = read_json(files, "run.json") or {}
    for number, version in enumerate((1, 99), len(refused)):
        files.write("run.json", to_bytes({**facts, "format": version}))
        _must_refuse(trial, "format", StoreError, lambda n=number: start(n))
    files.write("run.json", to_bytes(facts))
    for executors in (1, 9):
        number = 10 + executors
        start(number, executors=executors)
        trial.tried += 1
        got = matches_in(trial.folder / f"copy-{number}" / "out")
        trial.compare(got, expected(world).matches, f"{executors} executors")
    _older_format(trial, spark)


def _must_refuse(trial: Trial, word: str, kind: type[Exception], start: Any) -> None:
    trial.tried += 1
    try:
        start()
    except kind as error:
        trial.check(word in str(error), f"{word}: the error does not name it: {error}")
    except Exception as error:
        trial.problems.append(f"{word}: {type(error).__name__}: {error!s:.300}")
    else:
        trial.problems.append(f"{word}: was not refused")


def _older_format(trial: Trial, spark: Any) -> None:
    """Go on with the checkpoint that an earlier version wrote."""
    folder = trial.folder / "older"
    checkpoint, stream = folder / "checkpoint", folder / "stream"
    shutil.copytree(older.DATA / "checkpoint", checkpoint)
    older.relocate(checkpoint, stream)
    older.write_stream(stream, range(older.UNDER_WAY, older.BATCHES))
    _, sinks = older.start(spark, checkpoint, stream)
    trial.tried += 1
    for name in sinks._fields:
        got = older.sorted_rows(getattr(sinks, name).table())
        stored = pq.read_table(older.DATA / f"{name}.parquet").to_pylist()
        wanted = [row for row in stored if row["batch_id"] >= older.UNDER_WAY]
        trial.check(got == wanted, f"format 2: {name} are not those of then")
        trial.check(len(got) > 0, f"format 2: there are no {name}")
