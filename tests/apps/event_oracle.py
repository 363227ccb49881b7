"""The rules of events in plain Python, object by object and fix by fix: the oracle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Fix(NamedTuple):
    """A fix of an object, with the fences that contain it and when each expires."""

    object: Any
    time: int
    x: float
    y: float
    fences: dict[int, int]


@dataclass
class Known:
    """What is known of one object."""

    time: int
    place: tuple[float, float]
    fences: dict[int, list[Any]] = field(default_factory=dict)
    """By fence: since when, until when it exists, whether dwell was told."""


@dataclass
class EventOracle:
    """Objects, and what happens to them batch by batch; durations in microseconds, 0 is none."""

    silent: int
    dwell: int = 0
    inside: bool = False
    cross: float = 0
    crossed: Callable[[tuple[float, ...], int], Iterable[int]] = lambda leg, time: ()
    """Which fences a leg crosses that ends at a time."""
    objects: dict[Any, Known] = field(default_factory=dict)
    late: int = 0
    repeated: int = 0
    long_legs: int = 0

    def batch(
        self, fixes: list[Fix], changes: dict[int, bool], clock: int
    ) -> list[tuple[Any, ...]]:
        """Return the events of a batch; ``changes`` says of changed fences whether they exist."""
        told: list[tuple[Any, ...]] = []
        for name, known in self.objects.items():
            for fence in sorted(known.fences.keys() & changes.keys()):
                reason = "replaced" if changes[fence] else "removed"
                told.append(self._ended(name, known, fence, reason))
        for fix in sorted(fixes, key=_order):
            told += self._fix(fix, clock)
        for name, known in list(self.objects.items()):
            silent = known.time < clock - self.silent
            for fence, (_, until, _) in sorted(known.fences.items()):
                if silent or until <= clock:
                    reason = "silent" if silent else "expired"
                    told.append(self._ended(name, known, fence, reason))
            if silent:
                del self.objects[name]
        return told

    def _ended(self, name: Any, known: Known, fence: int, reason: str) -> tuple[Any, ...]:
        since = known.fences.pop(fence)[0]
        return (name, fence, "exit", reason, known.time, *known.place, None, None,
                (known.time - since) / 1e6)  # fmt: skip

    def _fix(self, fix: Fix, clock: int) -> list[tuple[Any, ...]]:
        told: list[tuple[Any, ...]] = []
        known = self.objects.get(fix.object)
        if fix.time < clock - self.silent or (known and fix.time < known.time):
            self.late += 1
            return []
        if known and fix.time == known.time:
            self.repeated += 1
            return []
        if known and fix.time - known.time > self.silent:
            told += [self._ended(fix.object, known, f, "silent") for f in sorted(known.fences)]
            known = None
        before = known.place if known else (None, None)
        places = (*before, fix.x, fix.y)
        if self.cross and known and before != (fix.x, fix.y):
            if math.dist(before, (fix.x, fix.y)) > self.cross:
                self.long_legs += 1
            else:
                for fence in self.crossed(places, fix.time):
                    told.append((fix.object, fence, "cross", None, fix.time, *places, None))
        now: dict[int, list[Any]] = {}
        stays = known.fences if known else {}
        for fence in sorted(stays.keys() - fix.fences.keys()):
            since, until, _ = stays[fence]
            if until <= fix.time:
                told.append(self._ended(fix.object, known, fence, "expired"))
                continue
            spent = (fix.time - since) / 1e6
            told.append((fix.object, fence, "exit", "left", fix.time, *places, spent))
        for fence, until in sorted(fix.fences.items()):
            if fence not in stays:
                now[fence] = [fix.time, until, False]
                told.append((fix.object, fence, "enter", None, fix.time, *places, 0.0))
                continue
            since, _, dwelt = stays[fence]
            spent = fix.time - since
            if self.dwell and not dwelt and spent >= self.dwell:
                dwelt = True
                told.append((fix.object, fence, "dwell", None, fix.time, *places, spent / 1e6))
            now[fence] = [since, until, dwelt]
            if self.inside:
                told.append((fix.object, fence, "inside", None, fix.time, *places, spent / 1e6))
        self.objects[fix.object] = Known(fix.time, (fix.x, fix.y), now)
        return told


def _order(fix: Fix) -> tuple[Any, ...]:
    return fix.time, fix.x, fix.y, sorted(fix.fences)
