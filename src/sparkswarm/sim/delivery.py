"""Reliable channels over an unreliable network: in order, exactly once.

Owns sequence numbers, acknowledgements and retransmission between one machine and its peers.
A channel is one-way. Its sender numbers the messages of a *session* and repeats them until the
receiver has acknowledged them; the receiver delivers them in order.

Incarnations: a machine that restarts has lost its channels and increments its incarnation. Every
frame names the incarnation that it is for. If the receiver is another incarnation it says so,
and the sender opens a new session with all unacknowledged messages. So a message is delivered
at most once to an incarnation, but may be delivered again to the next one: receivers must
detect such duplicates with their durable state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from sparkswarm.sim.clock import MILLISECOND
from sparkswarm.sim.network import Frame

FIRST_WAIT = 30 * MILLISECOND
"""First retransmission timeout; doubled each time."""

LONGEST_WAIT = 120 * MILLISECOND
"""Longest retransmission timeout."""

BURST = 32
"""Maximum number of messages in one retransmission."""

SESSIONS = 10_000
"""The n-th session of a channel has the number incarnation x SESSIONS + n."""


class Carrier(Protocol):
    """The machine of an endpoint."""

    name: str
    incarnation: int

    def carry(self, target: str, frame: Frame) -> None:
        """Give a frame to the network."""

    def after(self, delay: int, action: Callable[..., None], *arguments: Any) -> None:
        """Schedule an action; it is dropped if this incarnation crashes before."""

    def deliver(self, source: str, payload: Any) -> None:
        """Handle a message."""


class _Outgoing:
    """The sender's end of a channel."""

    __slots__ = ("armed", "incarnation", "next_number", "session", "unacknowledged", "wait")

    def __init__(self, session: int) -> None:
        self.session = session
        self.incarnation = 1
        self.next_number = 1
        self.unacknowledged: deque[tuple[int, Any]] = deque()
        self.armed = False
        self.wait = FIRST_WAIT


class _Incoming:
    """The receiver's end of a channel."""

    __slots__ = ("early", "expected", "session")

    def __init__(self, session: int) -> None:
        self.session = session
        self.expected = 1
        self.early: dict[int, Any] = {}


class Endpoint:
    """All channels of one incarnation of a machine."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._outgoing: dict[str, _Outgoing] = {}
        self._incoming: dict[str, _Incoming] = {}

    def send(self, target: str, payload: Any) -> None:
        """Send a message that is delivered once and in order, if the peer is up."""
        out = self._outgoing.get(target)
        if out is None:
            out = _Outgoing(self._carrier.incarnation * SESSIONS)
            self._outgoing[target] = out
        number = out.next_number
        out.next_number += 1
        out.unacknowledged.append((number, payload))
        self._carrier.carry(target, ("data", out.session, number, out.incarnation, payload))
        self._arm(target, out)

    def cast(self, target: str, payload: Any) -> None:
        """Send a message that may be lost, duplicated or overtaken."""
        self._carrier.carry(target, ("cast", payload))

    def receive(self, source: str, frame: Frame) -> None:
        """Take a frame from the network."""
        match frame:
            case ("cast", payload):
                self._carrier.deliver(source, payload)
            case ("data", session, number, incarnation, payload):
                self._data(source, session, number, incarnation, payload)
            case ("ack", session, number, incarnation):
                self._acknowledged(source, session, number, incarnation)

    def _data(self, source: str, session: int, number: int, meant: int, payload: Any) -> None:
        mine = self._carrier.incarnation
        if meant != mine:
            self._carrier.carry(source, ("ack", session, 0, mine))
            return
        incoming = self._incoming.get(source)
        if incoming is None or incoming.session < session:
            incoming = self._incoming[source] = _Incoming(session)
        elif session < incoming.session:
            return
        if number == incoming.expected:
            # Counted before delivery, because the handler may use this channel.
            incoming.expected += 1
            self._carrier.deliver(source, payload)
            while incoming.expected in incoming.early:
                payload = incoming.early.pop(incoming.expected)
                incoming.expected += 1
                self._carrier.deliver(source, payload)
        elif number > incoming.expected:
            incoming.early[number] = payload
        self._carrier.carry(source, ("ack", session, incoming.expected - 1, mine))

    def _acknowledged(self, peer: str, session: int, number: int, incarnation: int) -> None:
        out = self._outgoing.get(peer)
        if out is None or session != out.session:
            return
        if incarnation > out.incarnation:
            self._begin_session(peer, out, incarnation)
            return
        waiting = out.unacknowledged
        while waiting and waiting[0][0] <= number:
            waiting.popleft()
            out.wait = FIRST_WAIT

    def _begin_session(self, peer: str, out: _Outgoing, incarnation: int) -> None:
        """Open a new session with a restarted peer, with all unacknowledged messages."""
        payloads = [payload for _, payload in out.unacknowledged]
        out.session += 1
        out.incarnation = incarnation
        out.unacknowledged = deque(enumerate(payloads, start=1))
        out.next_number = len(payloads) + 1
        out.wait = FIRST_WAIT
        self._repeat(peer, out)

    def _repeat(self, peer: str, out: _Outgoing) -> None:
        for number, payload in list(out.unacknowledged)[:BURST]:
            self._carrier.carry(peer, ("data", out.session, number, out.incarnation, payload))
        self._arm(peer, out)

    def _arm(self, peer: str, out: _Outgoing) -> None:
        if not out.armed and out.unacknowledged:
            out.armed = True
            self._carrier.after(out.wait, self._timeout, peer, out.unacknowledged[0][0])

    def _timeout(self, peer: str, oldest: int) -> None:
        """Retransmit if the message that was the oldest is still unacknowledged."""
        out = self._outgoing[peer]
        out.armed = False
        if out.unacknowledged and out.unacknowledged[0][0] <= oldest:
            out.wait = min(2 * out.wait, LONGEST_WAIT)
            self._repeat(peer, out)
        else:
            self._arm(peer, out)
