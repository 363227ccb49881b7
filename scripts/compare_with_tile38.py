"""Compares the events of one trace with those of Tile38, whose server must be on the PATH.

    python scripts/compare_with_tile38.py

Vans walk at random through polygons and circles; one fence is removed on the way. Both are told the
same, in the order of time. Prints which events are the same and which only one of them tells.
Tile38: https://github.com/tidwall/tile38, ``go build ./cmd/tile38-server``.
"""

from __future__ import annotations

import json
import math
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import shapely

import sparkswarm
from sparkswarm import Events, MemorySink, PointColumns, Swarm, SwarmConfig

PORT = 19851
START = datetime(2026, 1, 1, tzinfo=UTC)
VANS, STEPS, REMOVED_AT = 20, 60, 30
REMOVED = "fence-0"
Event = tuple[str, str, str, int]
"""Van, fence, what happened, and at which step."""


class Tile38:
    """A server of its own, and a connection that speaks its protocol."""

    def __init__(self, folder: str) -> None:
        program = shutil.which("tile38-server")
        if program is None:
            sys.exit("tile38-server is not on the PATH; build it with Go and add its folder")
        options = ["-h", "127.0.0.1", "-p", str(PORT), "-d", folder, "-q"]
        self._server = subprocess.Popen([program, *options])

    def connect(self) -> socket.socket:
        """Return a new connection; waits until the server answers."""
        for _ in range(100):
            try:
                return socket.create_connection(("127.0.0.1", PORT), timeout=20)
            except ConnectionRefusedError:
                time.sleep(0.1)
        raise TimeoutError("tile38-server does not answer")

    def stop(self) -> None:
        """End the server."""
        self._server.terminate()
        self._server.wait(20)


def send(connection: socket.socket, *words: object) -> None:
    """Send a command."""
    parts = [str(word).encode() for word in words]
    content = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    connection.sendall(b"*%d\r\n%s" % (len(parts), content))


def receive(reader: Any) -> Any:
    """Return the next answer of the server."""
    line = reader.readline().rstrip(b"\r\n")
    kind, rest = line[:1], line[1:]
    if kind == b"*":
        return [receive(reader) for _ in range(int(rest))]
    if kind == b"$":
        return None if rest == b"-1" else reader.read(int(rest) + 2)[:-2].decode()
    if kind == b"-":
        raise ValueError(rest.decode())
    return rest.decode()


def make_fences() -> dict[str, tuple[Any, float | None]]:
    """Return polygons, and circles as their middle and radius in metres."""
    rng = np.random.default_rng(38)
    fences: dict[str, tuple[Any, float | None]] = {}
    for i in range(12):
        x, y = rng.uniform(-0.5, 0.5, 2)
        angle = np.linspace(0, 2 * math.pi, 9, endpoint=False)
        far = rng.uniform(0.1, 0.25, 9)
        ring = np.stack([x + far * np.cos(angle), y + far * np.sin(angle)], axis=1)
        fences[f"fence-{i}"] = shapely.Polygon(ring.round(6)), None
    for i in range(12, 18):
        middle = shapely.Point(*rng.uniform(-0.5, 0.5, 2).round(6))
        fences[f"fence-{i}"] = middle, float(rng.integers(5_000, 20_000))
    return fences


def make_trace() -> list[list[tuple[str, float, float]]]:
    """Return where each van is at each step."""
    rng = np.random.default_rng(39)
    places = rng.uniform(-0.5, 0.5, (VANS, 2))
    steps = []
    for _ in range(STEPS):
        places = np.clip(places + rng.normal(0, 0.08, places.shape), -0.8, 0.8).round(6)
        steps.append([(f"van-{i}", *place) for i, place in enumerate(places.tolist())])
    return steps


def of_tile38(
    fences: dict[str, tuple[Any, float | None]], trace: list[list[tuple[str, float, float]]]
) -> Counter[Event]:
    """Return the events that Tile38 tells."""
    found: Counter[Event] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        server = Tile38(folder)
        try:
            commands, listener = server.connect(), server.connect()
            answers, messages = commands.makefile("rb"), listener.makefile("rb")

            def tell(*words: object) -> None:
                send(commands, *words)
                receive(answers)

            for name, (shape, metres) in fences.items():
                area: tuple[object, ...] = ("OBJECT", shapely.to_geojson(shape))
                if metres is not None:
                    area = ("CIRCLE", shape.y, shape.x, metres)
                rule = ("FENCE", "DETECT", "enter,exit,inside,cross")
                tell("SETCHAN", name, "INTERSECTS", "vans", *rule, *area)
            for name in [*fences, "end"]:
                send(listener, "SUBSCRIBE", name)
                receive(messages)
            for step, places in enumerate(trace):
                if step == REMOVED_AT:
                    tell("DELCHAN", REMOVED)
                for van, x, y in places:
                    tell("SET", "vans", van, "FIELD", "step", step, "POINT", y, x)
            tell("PUBLISH", "end", "end")
            while True:
                _, name, content = receive(messages)
                if name == "end":
                    return found
                message = json.loads(content)
                step = int(message.get("fields", {}).get("step", 0))
                found[message["id"], name, message["detect"], step] += 1
        finally:
            server.stop()


def of_sparkswarm(
    fences: dict[str, tuple[Any, float | None]], trace: list[list[tuple[str, float, float]]]
) -> Counter[Event]:
    """Return the events that sparkswarm tells."""
    spark = sparkswarm.session(master="local[2]")
    fix, query = "id STRING, x DOUBLE, y DOUBLE, at TIMESTAMP", "geometry STRING, radius_m DOUBLE"
    box = ", ".join(f"{edge} DOUBLE" for edge in ("min_x", "min_y", "max_x", "max_y"))
    with tempfile.TemporaryDirectory() as folder:
        for part, first in enumerate((0, REMOVED_AT)):
            steps = trace[first : STEPS if part else REMOVED_AT]
            rows = [
                (van, x, y, START + timedelta(seconds=first + i))
                for i, places in enumerate(steps)
                for van, x, y in places
            ]
            spark.createDataFrame(rows, fix).coalesce(1).write.parquet(f"{folder}/fixes/{part}")
            gone = [("unregister", REMOVED, *[None] * 6)] if part else []
            if not part:
                gone = [
                    ("register", name, *[None] * 4, shape.wkt, metres)
                    for name, (shape, metres) in fences.items()
                ]
            frame = spark.createDataFrame(gone, f"op STRING, id STRING, {box}, {query}")
            frame.coalesce(1).write.parquet(f"{folder}/fences/{part}")
        reader = spark.readStream.option("maxFilesPerTrigger", 1)
        events = MemorySink()
        config = SwarmConfig(bounds=(-1, -1, 1, 1), grid=(50, 50), executors=2)
        handle = Swarm(spark, config, events=Events(inside=True, cross=2.0)).start(
            reader.schema(fix).parquet(f"{folder}/fixes/*"),
            reader.schema(f"op STRING, id STRING, {box}, {query}").parquet(f"{folder}/fences/*"),
            point_columns=PointColumns(time="at"),
            events=events,
            checkpoint=f"{folder}/checkpoint",
            trigger={"availableNow": True},
        )
        handle.await_termination()
    return Counter(
        (
            row["object"],
            row["fence"],
            "exit" if row["event"] == "exit" and row["reason"] == "left" else
            row["reason"] if row["event"] == "exit" else row["event"],
            round((row["time"] - START).total_seconds()),
        )
        for row in events.table().to_pylist()
    )  # fmt: skip


def main() -> None:
    """Print how many events of each kind are the same, and some of those that are not."""
    fences, trace = make_fences(), make_trace()
    theirs, ours = of_tile38(fences, trace), of_sparkswarm(fences, trace)
    both, alone = ours & theirs, {"sparkswarm": ours - theirs, "Tile38": theirs - ours}
    kinds = sorted({event[2] for event in [*ours, *theirs]})
    print(f"{'':10}{'same':>8}{'sparkswarm':>12}{'Tile38':>8}")
    for kind in kinds:
        numbers = [
            sum(n for event, n in some.items() if event[2] == kind)
            for some in (both, *alone.values())
        ]
        print(f"{kind:10}{numbers[0]:>8}{numbers[1]:>12}{numbers[2]:>8}")
    for name, some in alone.items():
        print(f"only {name}, for example:", *sorted(some)[:6], sep="\n  ")


if __name__ == "__main__":
    main()
