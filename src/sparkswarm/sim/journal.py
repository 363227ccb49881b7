"""The journal of a run: every event as a line of JSON, and a hash over all events.

Two runs are the same if their hashes are equal. The text of an event is therefore complete,
with floats to the last bit, and contains nothing that depends on the machine.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, TextIO

from sparkswarm.sim.network import Frame
from sparkswarm.sim.snapshot_chain import ChainResults
from sparkswarm.sim.tuples import Ahead


class SimJournal:
    """Records events.

    Parameters
    ----------
    to
        Output for the lines; None keeps only the hash.
    """

    def __init__(self, to: TextIO | None = None) -> None:
        self._to = to
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def trace_hash(self) -> str:
        """Hash of all events that were recorded."""
        return self._hash.hexdigest()

    def frame(self, time: int, source: str, target: str, frame: Frame) -> None:
        """Record the arrival of a frame."""
        text = _text(frame)
        self._hash.update(f"{time}|{source}|{target}|{text}\n".encode())
        self._write({"time": time, "from": source, "to": target, "frame": text})

    def note(self, time: int, who: str, what: str) -> None:
        """Record a decision, a fault or a finding."""
        self._hash.update(f"{time}|{who}|{what}\n".encode())
        self._write({"time": time, "who": who, "what": what})

    def _write(self, line: dict[str, Any]) -> None:
        if self._to is not None:
            self._to.write(json.dumps(line) + "\n")


def _text(frame: Frame) -> str:
    """Return the text of a frame; arrays are written as their bytes."""
    payload = frame[-1]
    if isinstance(payload, Ahead):
        takeover, queries = payload
        held = [(h.partition, h.statistics.values.tobytes().hex()) for h in takeover.holdings]
        return f"{frame[:-1]} Ahead {takeover.m_high} {takeover.round} {held} {queries}"
    if isinstance(payload, ChainResults):
        points = payload.points.tobytes().hex()
        return f"{frame[:-1]} ChainResults {payload.number} {payload.step} {payload.part} {points}"
    return repr(frame)
