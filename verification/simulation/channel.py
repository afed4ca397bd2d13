"""A connection to a service, whose state faults change."""

from __future__ import annotations

from verification.simulation.world import Process, World


class Channel:
    """A connection to a service, for everything that is sent to it or comes back.

    Attributes:
        fastest_s, slowest_s: Seconds that what is sent takes, in either direction.
        cut: Names of processes that reach nothing, and that nothing reaches.
        is_down: Whether the service answers nobody.
        loses: The share of what is sent that gets lost.
    """

    def __init__(self, world: World, name: str, *, fastest_s: float = 0.001, slowest_s: float = 0.02) -> None:
        self.world = world
        self.name = name
        self.fastest_s, self.slowest_s = fastest_s, slowest_s
        self.cut: set[str] = set()
        self.is_down = False
        self.loses = 0.0

    def delay_s(self) -> float:
        """Return the seconds for one way."""
        return self.world.entropy.uniform(self.fastest_s, self.slowest_s)

    def is_open(self, process: Process) -> bool:
        """Return True if something can get through at the moment."""
        return not self.is_down and process.name not in self.cut

    def is_struck(self) -> bool:
        """Return True if what is sent now gets lost."""
        return self.loses > 0 and self.world.entropy.random() < self.loses
