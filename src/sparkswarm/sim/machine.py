"""A machine: an inbox, a pace, timers, and the chance to crash and come back.

Owns what is common to sources, GlobalIndex machines, executors and the sink. A crash takes
everything that a machine keeps in memory: what its ``start`` does not find in the durable
store is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparkswarm.sim.delivery import Endpoint
from sparkswarm.sim.network import Frame

if TYPE_CHECKING:
    from sparkswarm.sim.cluster import World


class Machine:
    """Take messages one at a time, in the order in which they came.

    Parameters
    ----------
    name
        Where others reach it.
    world
        What surrounds it: clock, network, store, journal.
    """

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.up = True
        self.incarnation = 1
        self.slowness = 1
        self._free_at = 0
        self._endpoint = Endpoint(self)

    # -- what a kind of machine says about itself -------------------------------------------

    def start(self) -> None:
        """Begin, or begin again after a crash, with what is durable."""

    def handle(self, source: str, message: Any) -> None:
        """Take one message."""
        raise NotImplementedError

    def cost(self, message: Any) -> int:
        """Return how long a message occupies the machine, in microseconds."""
        return 0

    # -- sending and waiting ------------------------------------------------------------------

    def send(self, target: str, message: Any) -> None:
        """Send reliably and in order."""
        self._endpoint.send(target, message)

    def cast(self, target: str, message: Any) -> None:
        """Send without any promise."""
        self._endpoint.cast(target, message)

    def after(self, delay: int, action: Callable[..., None], *arguments: Any) -> None:
        """Do something later, unless this incarnation has died by then."""
        self.world.clock.after(delay, self._fire, self.incarnation, action, arguments)

    def _fire(
        self, incarnation: int, action: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        if self.up and incarnation == self.incarnation:
            action(*arguments)

    # -- what the network and the channels need -------------------------------------------------

    def carry(self, target: str, frame: Frame) -> None:
        """Give a frame to the network; a machine that is down says nothing."""
        if not self.up:
            return
        self.world.network.send(self.name, target, frame)

    def receive(self, source: str, frame: Frame) -> None:
        """Take a frame from the network; a machine that is down hears nothing."""
        if self.up:
            self._endpoint.receive(source, frame)

    def deliver(self, source: str, payload: Any) -> None:
        """Handle a message as soon as those before it are done."""
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
        """Stop, and forget all that is not durable."""
        self.up = False

    def restart(self) -> None:
        """Come back as the next incarnation."""
        self.up = True
        self.incarnation += 1
        self._free_at = self.world.clock.now
        self._endpoint = Endpoint(self)
        self.start()
