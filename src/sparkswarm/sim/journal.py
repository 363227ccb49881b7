"""The journal of a run: every event as a line of JSON, and the hash of them all.

Owns the text of an event. The hash is how two runs are shown to be the same, so the text says
all that an event says, floats to the last bit, and nothing that differs between machines.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, TextIO

from sparkswarm.sim.network import Frame
from sparkswarm.sim.snapshot_chain import Results
from sparkswarm.sim.tuples import Ahead


class Journal:
    """Note what happens.

    Parameters
    ----------
    to
        Where to write lines; None keeps only the hash.
    """

    def __init__(self, to: TextIO | None = None) -> None:
        self._to = to
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def trace_hash(self) -> str:
        """The hash of all events so far."""
        return self._hash.hexdigest()

    def frame(self, time: int, source: str, target: str, frame: Frame) -> None:
        """Note a frame that arrives."""
        text = _text(frame)
        self._hash.update(f"{time}|{source}|{target}|{text}\n".encode())
        if self._to is not None:
            self._write({"time": time, "from": source, "to": target, "frame": text})

    def note(self, time: int, who: str, what: str) -> None:
        """Note a decision, a fault or a finding."""
        self._hash.update(f"{time}|{who}|{what}\n".encode())
        if self._to is not None:
            self._write({"time": time, "who": who, "what": what})

    def _write(self, line: dict[str, Any]) -> None:
        assert self._to is not None
        self._to.write(json.dumps(line) + "\n")


def _text(frame: Frame) -> str:
    """Return what a frame says; arrays are given by their bytes."""
    payload = frame[-1]
    if isinstance(payload, Ahead):
        takeover, queries = payload
        held = [(h.partition, h.statistics.values.tobytes().hex()) for h in takeover.holdings]
        return f"{frame[:-1]} Ahead {takeover.m_high} {takeover.round} {held} {queries}"
    if isinstance(payload, Results):
        points = payload.points.tobytes().hex()
        return f"{frame[:-1]} Results {payload.number} {payload.step} {payload.part} {points}"
    return repr(frame)
