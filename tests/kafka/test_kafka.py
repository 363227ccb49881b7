"""Between Kafka topics: whatever is killed, a reader of committed messages sees each match once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from sparkswarm.runfile.cli import example_file

from . import events_driver_main, kafka_driver_main
from .broker import CONNECTOR, Broker
from .kafka_driver_main import AFTER_COMMIT, BEFORE_COMMIT

pytestmark = pytest.mark.kafka

PATIENCE = 400
"""Seconds that a driver may take."""

KILLED = -9
POINTS, BATCH = 120, 40


class Fences:
    """Fences and points that were sent, and the matches that they must have."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._fences: dict[int, tuple[float, float, float, float]] = {}
        self._next = 0
        self.expected: Counter[tuple[int, tuple[int, ...]]] = Counter()

    def operations(self, number: int) -> list[dict]:
        """Register some fences and unregister some of those that there are."""
        gone = self._rng.sample(sorted(self._fences), len(self._fences) // 3)
        rows = [{"op": "unregister", "id": fence} for fence in gone]
        for fence in gone:
            del self._fences[fence]
        for _ in range(number):
            x, y = self._rng.uniform(-170, 150), self._rng.uniform(-80, 60)
            edges = x, y, x + self._rng.uniform(5, 60), y + self._rng.uniform(5, 60)
            fence = len(self._fences) + 1000 * (self._next + 1)
            self._fences[fence] = edges
            names = ("min_x", "min_y", "max_x", "max_y")
            rows.append({"op": "register", "id": fence, **dict(zip(names, edges, strict=True))})
        return rows

    def points(self, number: int) -> list[dict]:
        """Return points, some of them invalid; remember what they match."""
        rows = []
        for _ in range(number):
            self._next += 1
            x, y = self._rng.uniform(-180, 180), self._rng.uniform(-90, 90)
            rows.append({"id": self._next, "x": x, "y": y, "ts": "2026-11-18T10:00:00Z"})
            found = [
                fence
                for fence, (x0, y0, x1, y1) in self._fences.items()
                if x0 <= x <= x1 and y0 <= y <= y1
            ]
            if found:
                self.expected[self._next, tuple(sorted(found))] += 1
        return [*rows, {"id": None, "x": 1.0, "y": 1.0}]


class Run:
    """A run of the shipped example between topics of its own."""

    def __init__(self, broker: Broker, folder: Path, name: str) -> None:
        self._broker, self._folder, self.name = broker, folder, name
        broker.create_topics(*(f"{name}-{topic}" for topic in ("points", "fences", "matches")))
        self.file = folder / "kafka.toml"
        self.file.write_text(self._contents("checkpoint"))

    def with_checkpoint(self, checkpoint: str) -> None:
        """Go on with another checkpoint."""
        self.file.write_text(self._contents(checkpoint))

    def _contents(self, checkpoint: str) -> str:
        jars = ",".join(map(str, sorted(CONNECTOR.glob("*.jar"))))
        conf = {
            "spark.jars": jars,
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
        }
        replaced = {
            "sparkswarm-kafka/checkpoint": str(self._folder / checkpoint),
            'spark.jars.packages = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"': "\n".join(
                f'{key} = "{value}"' for key, value in conf.items()
            ),
            "localhost:9092": self._broker.servers,
            '"points"\n': f'"{self.name}-points"\n',
            '"fences"\n': f'"{self.name}-fences"\n',
            '"matches"\n': f'"{self.name}-matches"\n',
            '"matches-writer"': f'"{self.name}-writer"',
            "100000      # size of a batch": str(BATCH),
            'processing_time = "2 seconds"': "available_now = true",
            "local[*]": "local[2]",
        }
        text = example_file("kafka.toml")
        for old, new in replaced.items():
            assert old in text, old
            text = text.replace(old, new)
        return text

    def send(self, topic: str, rows: list[dict]) -> None:
        """Send rows, those of one id in their order."""
        producer = Producer({"bootstrap.servers": self._broker.servers})
        for row in rows:
            producer.produce(f"{self.name}-{topic}", json.dumps(row), str(row["id"]))
        assert producer.flush(60) == 0

    def drive(self, *kill: object) -> tuple[int, str]:
        """Run to the end, natural or not; return the exit code and the log."""
        process = self.start(*kill)
        try:
            code = process.wait(PATIENCE)
        finally:
            self.end(process)
        return code, self.log

    @property
    def log(self) -> str:
        return (self._folder / "driver.log").read_text()

    def start(self, *kill: object) -> subprocess.Popen[bytes]:
        with open(self._folder / "driver.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, kafka_driver_main.__file__, str(self.file), *map(str, kill)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @staticmethod
    def end(process: subprocess.Popen[bytes]) -> None:
        """End what a driver that was killed leaves behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)

    def matches(self, isolation: str = "read_committed") -> Counter[tuple[int, tuple[int, ...]]]:
        """Return what a consumer of the results sees."""
        found: Counter[tuple[int, tuple[int, ...]]] = Counter()
        for row in self.rows("matches", isolation):
            assert row["ts"] == "2026-11-18T10:00:00.000Z"
            found[row["id"], tuple(sorted(row["query_ids"]))] += 1
        return found

    def rows(self, topic: str, isolation: str = "read_committed") -> list[dict]:
        """Return what a consumer of a topic sees; each row has its id as key."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._broker.servers,
                "group.id": "tests",
                "isolation.level": isolation,
                "enable.partition.eof": True,
            }
        )
        found = []
        consumer.assign(
            [TopicPartition(f"{self.name}-{topic}", p, OFFSET_BEGINNING) for p in range(2)]
        )
        ends = 0
        while ends < 2:
            message = consumer.poll(60)
            assert message is not None
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ends += 1
                continue
            row = json.loads(message.value())
            assert message.key() == str(row.get("id", row.get("object"))).encode()
            found.append(row)
        consumer.close()
        return found


@pytest.fixture
def run(broker, tmp_path, request):
    return Run(broker, tmp_path, f"t{abs(hash(request.node.name)) % 10**8}")


def test_a_restart_goes_on_and_fences_change_in_between(run):
    fences = Fences(1)
    for _ in range(2):
        run.send("fences", fences.operations(30))
        run.send("points", fences.points(POINTS))
        code, log = run.drive()
        assert code == 0, log[-3000:]
        assert run.matches() == fences.expected
    # With nothing new, and with the last batch once more, as after a loss of Spark's commit.
    spark = Path(run.file).parent / "checkpoint" / "spark"
    last = max(int(p.name) for p in (spark / "commits").iterdir() if p.name.isdigit())
    (spark / "commits" / str(last)).unlink()
    (spark / "commits" / f".{last}.crc").unlink(missing_ok=True)
    code, log = run.drive()
    assert code == 0, log[-3000:]
    assert run.matches() == fences.expected
    # A run with a checkpoint of its own begins with batch 0: it is written, not taken for the old.
    run.with_checkpoint("another")
    code, log = run.drive()
    assert code == 0, log[-3000:]
    assert sum(run.matches().values()) > sum(fences.expected.values())


def test_a_driver_killed_in_mid_batch_leaves_each_match_once(run):
    fences = Fences(2)
    run.send("fences", fences.operations(30))
    run.send("points", fences.points(POINTS))
    for place, transaction in ((BEFORE_COMMIT, 2), (AFTER_COMMIT, 1)):
        code, log = run.drive(place, 0, transaction)
        assert code == KILLED, log[-3000:]
        assert not run.matches() - fences.expected
    code, log = run.drive()
    assert code == 0, log[-3000:]
    assert run.matches() == fences.expected
    # The first transaction that was cut off did send rows: they were aborted, not missing.
    assert sum(run.matches("read_uncommitted").values()) > sum(fences.expected.values())


def test_a_broker_killed_in_mid_batch_leaves_each_match_once(run, broker):
    fences = Fences(3)
    run.send("fences", fences.operations(30))
    run.send("points", fences.points(POINTS))
    process = run.start(BEFORE_COMMIT, broker.pid, 2)
    try:
        broker.wait_for_its_end()
        broker.start()
        code = process.wait(PATIENCE)
    finally:
        run.end(process)
    if code != 0:  # it gave up: what was open is decided at the restart
        code, log = run.drive()
        assert code == 0, log[-3000:]
    assert run.matches() == fences.expected


def test_events_go_to_a_topic_once_and_unread_rows_are_counted(run, broker, tmp_path):
    """One object that goes in and out of a fence around (0, 0)."""
    inside, outside = (0.0, 0.0), (100.0, 60.0)
    places = [outside, inside, inside, outside, inside]
    rows = [
        {"id": 7, "x": x, "y": y, "ts": f"2026-11-18T10:0{minute}:00Z"}
        for minute, (x, y) in enumerate(places)
    ]
    run.send("points", rows)
    command = [events_driver_main.__file__, broker.servers, run.name, str(tmp_path), "1"]
    said = []
    for _ in range(2):  # the second start has nothing to add
        done = subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        said.append(json.loads(done.stdout.splitlines()[-1]))
    # Each batch is told what the one before it left behind; the first knows of none.
    assert [n for n in said[0]["unread"] if n is not None] == [4, 3, 2, 1]
    assert said[0]["last"] == 0
    wanted = [("enter", 1), ("exit", 3), ("enter", 4)]
    found = [
        (row["event"], int(row["time"][15]))
        for row in sorted(run.rows("matches"), key=lambda row: row["time"])
        if row["event"] in ("enter", "exit")
    ]
    assert found == wanted
    assert all((row["object"], row["fence"]) == (7, 1) for row in run.rows("matches"))


def test_of_two_drivers_with_one_transactional_id_the_older_one_fails(run, broker):
    from sparkswarm.spark.kafka_sink import KafkaSink

    def open_writer():
        return KafkaSink(broker.servers, f"{run.name}-matches", "fenced")._open()[0]

    first = open_writer()
    first.begin_transaction()
    first.produce(f"{run.name}-matches", "lost")
    second = open_writer()
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        first.commit_transaction(60)
    second.begin_transaction()
    second.commit_transaction(60)
    assert not run.matches()
