"""The sink: reads the executors' result logs, each entry once.

Owns the position up to which each log has been read. It is outside the cluster and does not
crash. Entries are deduplicated by their *position* in a log, which makes delivery survive
restarts. The same result at two positions counts twice, and the oracle reports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkswarm.sim.machine import Machine
from sparkswarm.sim.tuples import Beat, Results

if TYPE_CHECKING:
    from sparkswarm.sim.cluster import World


class Sink(Machine):
    """Collects results and passes them to the oracle."""

    def __init__(self, world: World) -> None:
        super().__init__("sink", world)
        self._read: dict[tuple[int, int], int] = {}
        self._lives = [0] * world.executors

    def handle(self, source: str, message: Any) -> None:
        """Take results; on a heartbeat, read the logs of executors that were declared dead."""
        match message:
            case Results():
                executor = int(source.removeprefix("ex"))
                self._take(executor, message.life, message.position, list(message.results))
            case Beat():
                self._read_logs_of_the_dead(message.lives)

    @property
    def has_read_all(self) -> bool:
        """Whether every log has been read to its end."""
        return all(
            self._read.get((executor, life), 0) == len(durable.results)
            for executor, lives in enumerate(self.world.store.durables)
            for life, durable in enumerate(lives)
        )

    def _read_logs_of_the_dead(self, lives: tuple[int, ...]) -> None:
        for executor, life in enumerate(lives):
            while self._lives[executor] < life:
                over = self._lives[executor]
                log = self.world.store.durables[executor][over].results
                self._take(executor, over, 0, log)
                self._lives[executor] += 1

    def _take(self, executor: int, life: int, position: int, results: list[Any]) -> None:
        read = self._read.get((executor, life), 0)
        if position > read:
            raise AssertionError(f"the log of executor {executor} has a gap before {position}")
        for result in results[read - position :]:
            self.world.oracle.result(result)
        self._read[executor, life] = max(read, position + len(results))
