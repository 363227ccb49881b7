"""The simulated network: delays, reorders, loses and duplicates frames.

Owns the links and their faults. It does not look into frames; :mod:`.delivery` builds reliable
channels on top of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparkswarm.sim.clock import Clock

Frame = tuple[Any, ...]
"""What the network carries: its kind (``data``, ``ack``, ``cast``), then its content."""


@dataclass(frozen=True, slots=True)
class Weather:
    """Delay and loss of a network without scheduled faults.

    Attributes
    ----------
    delay, jitter
        A frame takes ``delay`` microseconds and up to ``jitter`` more, drawn for each frame,
        so that frames overtake each other.
    loss, doubling
        The probability that a frame is lost, or arrives twice.
    """

    delay: int = 300
    jitter: int = 700
    loss: float = 0.0
    doubling: float = 0.0


class Network:
    """Carries frames from machine to machine.

    Parameters
    ----------
    clock, rng, weather
        Virtual time, random numbers, and the delay and loss of all links.
    arrive
        Called with (from, to, frame) for each frame that arrives.
    """

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        weather: Weather,
        arrive: Callable[[str, str, Frame], None],
    ) -> None:
        self._clock = clock
        self._draw = rng.random
        self._weather = weather
        self._arrive = arrive
        self._clogged: dict[tuple[str, str], int] = {}
        self._apart: list[frozenset[str]] = []
        self._cut: set[tuple[str, str]] = set()

    def clog(self, link: tuple[str, str], delay: int) -> None:
        """Delay every frame on a link by up to ``delay`` more; 0 ends that."""
        self._clogged[link] = delay

    def cut(self, link: tuple[str, str]) -> None:
        """Lose every frame on a link, one way."""
        self._cut.add(link)

    def mend(self, link: tuple[str, str]) -> None:
        """End a cut."""
        self._cut.discard(link)

    def divide(self, group: frozenset[str]) -> None:
        """Cut a group of machines off from all others."""
        self._apart.append(group)

    def heal(self, group: frozenset[str]) -> None:
        """Reconnect a group that was cut off."""
        self._apart.remove(group)

    def send(self, source: str, target: str, frame: Frame) -> None:
        """Carry a frame, lose it, or carry it twice."""
        draw, weather = self._draw, self._weather
        if self._apart and any((source in group) != (target in group) for group in self._apart):
            return
        if self._cut and (source, target) in self._cut:
            return
        if weather.loss and draw() < weather.loss:
            return
        self._carry(source, target, frame)
        if weather.doubling and draw() < weather.doubling:
            self._carry(source, target, frame)

    def _carry(self, source: str, target: str, frame: Frame) -> None:
        delay = self._weather.delay + int(self._draw() * self._weather.jitter)
        clogged = self._clogged.get((source, target))
        if clogged:
            delay += int(self._draw() * clogged)
        self._clock.after(delay, self._arrive, source, target, frame)
