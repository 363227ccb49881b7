"""A simulated machine: inbox, speed, timers, crash and restart.

The base of sources, GlobalIndex machines, executors and the sink. A crash loses everything that
is in memory; ``start`` restores what is in the durable store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparkswarm.sim.delivery import Endpoint
from sparkswarm.sim.network import Frame

if TYPE_CHECKING:
    from sparkswarm.sim.cluster import World


class Machine:
    """Handles messages one at a time, in the order of their arrival.

    Parameters
    ----------
    name
        Its address.
    world
        Clock, network, store and journal, shared by all machines.
    """

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.up = True
        self.incarnation = 1
        self.slowness = 1
        self._free_at = 0
        self._endpoint = Endpoint(self)

    # -- overridden by each kind of machine -------------------------------------------------

    def start(self) -> None:
        """Start, or restart after a crash, from the durable store."""

    def handle(self, source: str, message: Any) -> None:
        """Handle one message."""
        raise NotImplementedError

    def cost(self, message: Any) -> int:
        """Return the processing time of a message, in microseconds."""
        return 0

    # -- sending and waiting ------------------------------------------------------------------

    def send(self, target: str, message: Any) -> None:
        """Send reliably and in order."""
        self._endpoint.send(target, message)

    def cast(self, target: str, message: Any) -> None:
        """Send unreliably: the message may be lost, duplicated or overtaken."""
        self._endpoint.cast(target, message)

    def after(self, delay: int, action: Callable[..., None], *arguments: Any) -> None:
        """Schedule an action; it is dropped if this incarnation crashes before."""
        self.world.clock.after(delay, self._fire, self.incarnation, action, arguments)

    def _fire(
        self, incarnation: int, action: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        if self.up and incarnation == self.incarnation:
            action(*arguments)

    # -- called by the network and the channels -----------------------------------------------

    def carry(self, target: str, frame: Frame) -> None:
        """Give a frame to the network, unless this machine is down."""
        if not self.up:
            return
        self.world.network.send(self.name, target, frame)

    def receive(self, source: str, frame: Frame) -> None:
        """Take a frame from the network, unless this machine is down."""
        if self.up:
            self._endpoint.receive(source, frame)

    def deliver(self, source: str, payload: Any) -> None:
        """Handle a message after those before it."""
        if not self.up:
            return
        now = self.world.clock.now
        cost = self.cost(payload) * self.slowness
        if cost == 0 and self._free_at < now:
            self.handle(source, payload)
            return
        self._free_at = max(now, self._free_at) + cost
        self.after(self._free_at - now, self.handle, source, payload)

    # -- faults -----------------------------------------------------------------------------

    def crash(self) -> None:
        """Stop, and lose everything that is not durable."""
        self.up = False

    def restart(self) -> None:
        """Start again as the next incarnation."""
        self.up = True
        self.incarnation += 1
        self._free_at = self.world.clock.now
        self._endpoint = Endpoint(self)
        self.start()
