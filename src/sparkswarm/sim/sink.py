"""The sink: it takes the executors' results, each entry of each log once.

Owns how far it has read each log. It is outside the cluster and does not crash. It drops what
it has read already by its *position* in a log, which is how the channel of results survives
restarts; two entries with the same result are two results to it, and the oracle will say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkswarm.sim.machine import Machine
from sparkswarm.sim.tuples import Beat, Results

if TYPE_CHECKING:
    from sparkswarm.sim.cluster import World


class Sink(Machine):
    """Where results go."""

    def __init__(self, world: World) -> None:
        super().__init__("sink", world)
        self._read: dict[tuple[int, int], int] = {}
        self._lives = [0] * world.executors

    def handle(self, source: str, message: Any) -> None:
        """Take results, or news that an executor is dead."""
        match message:
            case Results():
                executor = int(source.removeprefix("ex"))
                self._take(executor, message.life, message.position, list(message.results))
            case Beat():
                self._read_what_the_dead_left(message.lives)

    @property
    def has_read_all(self) -> bool:
        """Whether nothing is left in any log."""
        return all(
            self._read.get((executor, life), 0) == len(durable.results)
            for executor, lives in enumerate(self.world.store.durables)
            for life, durable in enumerate(lives)
        )

    def _read_what_the_dead_left(self, lives: tuple[int, ...]) -> None:
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
