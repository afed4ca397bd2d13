"""A connection of a process to the broker: what is sent arrives in order, perhaps late, or it breaks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from verification.simulation.channel import RpcChannel
from verification.simulation.world import Process

# Of what each request loses on a line that loses requests, a connection breaks at this share.
_BREAKS = 0.1

# For how long either side sends again what is not acknowledged, and the pause before the next attempt.
_GIVE_UP_S = 30.0
_AGAIN_S = (0.2, 2.0)


class _Way:
    """One direction."""

    def __init__(self, connection: Connection, unreachable: Callable[[], None]) -> None:
        self._connection = connection
        self._unreachable = unreachable
        self._sent: deque[tuple[float, Callable[[], None]]] = deque()
        self._last_s = 0.0

    def send(self, arrive: Callable[[], None]) -> None:
        world = self._connection.line.world
        self._last_s = max(self._last_s, world.now + self._connection.line.delay_s())
        self._sent.append((world.now, arrive))
        world.outside.at(self._last_s, self._arrive)

    def flush(self) -> None:
        """Deliver everything in flight, in its order."""
        while self._sent:
            self._sent.popleft()[1]()

    def _arrive(self) -> None:
        connection = self._connection
        if connection.is_broken or not self._sent:
            return
        world = connection.line.world
        sent_at, arrive = self._sent[0]
        if connection.line.is_open(connection.process):
            self._sent.popleft()
            arrive()
        elif world.now > sent_at + _GIVE_UP_S:
            connection.is_broken = True
            self._unreachable()
        else:
            world.outside.after(world.entropy.uniform(*_AGAIN_S), self._arrive)


class Connection:
    """A connection.

    Attributes:
        is_broken: Whether nothing passes any more, noticed or not.
    """

    def __init__(
        self, line: RpcChannel, process: Process, lost: Callable[[], None], ended: Callable[[], None]
    ) -> None:
        """`lost` is called in the process, `ended` at the broker, when that side notices that it is broken."""
        self.line = line
        self.process = process
        self.is_broken = False
        self._lost = lost
        self._ended = ended
        self._up = _Way(self, self._tell_process)
        self._down = _Way(self, ended)
        process.on_death(self.abort)

    def up(self, arrive: Callable[[], None]) -> None:
        """Send something to the broker."""
        self._send(self._up, arrive)

    def down(self, arrive: Callable[[], None]) -> None:
        """Send something to the process, which looks at it when it runs."""
        self._send(self._down, lambda: self._hand_over(arrive))

    def abort(self) -> None:
        """Close the socket in the process, or with it: the broker notices, if it can be reached."""
        if not self.is_broken:
            self._up.send(self._end)

    def _end(self) -> None:
        self.is_broken = True
        self._ended()

    def _send(self, way: _Way, arrive: Callable[[], None]) -> None:
        if self.is_broken:
            return
        entropy, loses = self.line.world.entropy, self.line.loses
        if loses and entropy.random() < loses * _BREAKS:
            self._break(way, arrive)
        else:
            way.send(arrive)

    def _break(self, way: _Way, arrive: Callable[[], None]) -> None:
        """Break it, with or without what was sent last; either side may notice at once, or only when it waits."""
        entropy = self.line.world.entropy
        if entropy.random() < 0.5:
            way.flush()
            arrive()
        self.is_broken = True
        if entropy.random() < 0.7:
            self._tell_process()
        if entropy.random() < 0.7:
            self.line.world.outside.after(self.line.delay_s(), self._ended)

    def _tell_process(self) -> None:
        self._hand_over(self._lost)

    def _hand_over(self, act: Callable[[], None]) -> None:
        if self.process.is_alive:
            self.process.loop.call_soon(act)
