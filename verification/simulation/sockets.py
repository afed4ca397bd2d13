"""The ends of connections, as the machines have them: they go on while their processes are frozen.

TCP as far as a program can notice: what is sent arrives in order, in pieces of any size; buffers are limited; what
gets no answer is repeated, until a timeout ends the connection at this end alone; the machine of a process that is
gone sends what was in its buffers. Missing are keep-alive probes, and a limit of throughput.
"""

from __future__ import annotations

import errno
import socket as real
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from verification.simulation.channel import Channel
from verification.simulation.world import Process, World

Address = tuple[str, int]

_FIRST_REPEAT_S, _LONGEST_REPEAT_S = 0.2, 120.0
# As Linux gives up what is never acknowledged (net.ipv4.tcp_retries2 = 15).
_GIVES_UP_AFTER_S = 924.6
# The rest is dropped when a socket is closed with SO_LINGER and 0.
_LINGERS_NOT = struct.pack("ii", 1, 0)
_WHOLE = 0.8
_SHORTEST_S = 1e-6

_END = object()
_RESET = object()


class Network(Protocol):
    """The part of the network that a socket needs."""

    world: World
    capacity: int

    def forget(self, closed: Socket) -> None:
        """Forget a socket that is closed. The socket calls this."""

    def trace(self, receiver: Socket, piece: bytes) -> None:
        """Record a piece that arrives. The socket calls this with everything that does."""


class Socket:
    """One end of a connection.

    Attributes:
        process: Whose it is; None for one that no process has accepted yet.
        peer: The other end, once they are connected.
        way: The way between the two.
        has_ended: The peer has shut down its direction, and everything before that has arrived.
        error: Why the connection ended, if it did not end well.
        on_readable, on_writable: Called in the process, when there is something to read, or room again.
    """

    family, type, proto = real.AF_INET, real.SOCK_STREAM, real.IPPROTO_TCP

    def __init__(self, network: Network, process: Process) -> None:
        self.process = process
        self.peer: Socket | None = None
        self.way: Channel | None = None
        self.has_ended = False
        self.is_closed = False
        self.error: OSError | None = None
        self.on_readable: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.local: Address = ("0.0.0.0", 0)
        self._network = network
        self._received: deque[bytes] = deque()
        self._under_way: deque[tuple[float, Any]] = deque()
        # Sent, and not read by the peer.
        self._outstanding = 0
        self._is_full = False
        self._last_arrival_s = 0.0
        self._silent_since: float | None = None
        self._has_shut_down = False
        self._options: dict[tuple[int, int], Any] = {}

    # What programs ask of a socket.

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        self._options[level, option] = value

    def getsockname(self) -> Address:
        return self.local

    def getpeername(self) -> Address:
        if self.peer is None:
            raise OSError(errno.ENOTCONN, "not connected")
        return self.peer.local

    def setblocking(self, flag: bool) -> None:
        pass

    def close(self) -> None:
        """End both directions, as the machine does too when the process is gone."""
        if self.is_closed:
            return
        self.is_closed = True
        self.on_readable = self.on_writable = None
        self._network.forget(self)
        if self.peer is None or self.error is not None:
            return
        lingers = self._options.get((real.SOL_SOCKET, real.SO_LINGER)) != _LINGERS_NOT
        if not lingers and self._network.world.entropy.random() < 0.5:
            self._under_way.clear()
        if self._received or not lingers:
            self._put(_RESET)
        elif not self._has_shut_down:
            self._put(_END)

    # What a transport does with it.

    @property
    def is_readable(self) -> bool:
        return bool(self._received) or self.has_ended or self.error is not None

    def receive(self) -> bytes:
        """Receive everything that has arrived; empty if nothing has.

        Raises the connection's error, once all is read.
        """
        if not self._received:
            if self.error is not None:
                raise self.error
            return b""
        data = self._received[0] if len(self._received) == 1 else b"".join(self._received)
        self._received.clear()
        assert self.peer is not None
        self.peer._was_read(len(data))
        return data

    def send(self, data: bytes) -> int:
        """Take what there is room for; returns how much that is. Raises the connection's error."""
        if self.error is not None:
            raise self.error
        room = self._network.capacity - self._outstanding
        taken = data if len(data) <= room else data[:room]
        self._is_full = len(taken) < len(data)
        self._outstanding += len(taken)
        entropy = self._network.world.entropy
        if len(taken) > 1 and entropy.random() >= _WHOLE:
            cut = entropy.randrange(1, len(taken))
            self._put(taken[:cut])
            self._put(taken[cut:])
        elif taken:
            self._put(taken)
        return len(taken)

    def shut_down(self) -> None:
        """End this direction; the other one stays open."""
        self._has_shut_down = True
        self._put(_END)

    def fail(self, error: OSError) -> None:
        """End the connection at this end."""
        if self.error is None and not self.is_closed:
            self.error = error
            self._under_way.clear()
            self._notify(self.on_readable)

    # On the way.

    def _put(self, piece: Any) -> None:
        assert self.way is not None
        network = self._network
        self._last_arrival_s = max(self._last_arrival_s, network.world.now + self.way.delay_s())
        self._under_way.append((self._last_arrival_s, piece))
        network.world.outside.at(self._last_arrival_s, self._arrive)

    def _arrive(self) -> None:
        if self._silent_since is None and not self._is_open():
            self._silent_since = self._network.world.now
            self._repeat_after(_FIRST_REPEAT_S)
        if self._silent_since is None:
            self._deliver()

    def _is_open(self) -> bool:
        """Return True if something gets through from either end to the other."""
        assert self.way is not None
        assert self.peer is not None
        return self.way.is_open(self.process) and self.way.is_open(self.peer.process)

    def _repeat_after(self, pause_s: float) -> None:
        assert self._silent_since is not None
        world = self._network.world
        left_s = self._silent_since + self._patience_s() - world.now
        # A shorter time may be nothing, once it is added to the present.
        if left_s < _SHORTEST_S:
            # The peer is not notified.
            self.fail(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
        else:
            world.outside.after(min(pause_s, left_s), self._repeat, pause_s)

    def _patience_s(self) -> float:
        chosen = self._options.get((real.IPPROTO_TCP, real.TCP_USER_TIMEOUT), 0)
        return chosen / 1000 if chosen else _GIVES_UP_AFTER_S

    def _repeat(self, pause_s: float) -> None:
        if not self._under_way:
            return
        if self._is_open():
            self._silent_since = None
            self._deliver()
        else:
            self._repeat_after(min(2 * pause_s, _LONGEST_REPEAT_S))

    def _deliver(self) -> None:
        """Hand over what has arrived by now."""
        now = self._network.world.now
        while self._under_way and self._under_way[0][0] <= now + 1e-9:
            _, piece = self._under_way.popleft()
            assert self.peer is not None
            self.peer._take(piece)

    def _take(self, piece: Any) -> None:
        peer, way = self.peer, self.way
        assert peer is not None
        assert way is not None
        if self.is_closed or self.error is not None:
            self._answer_with_reset()
        elif piece is _RESET:
            self.fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        elif piece is _END:
            self.has_ended = True
            self._notify(self.on_readable)
        else:
            is_struck = way.is_struck()
            if not is_struck or self._network.world.entropy.random() < 0.5:
                self._network.trace(self, piece)
                self._received.append(piece)
                self._notify(self.on_readable)
            if is_struck:
                # Something between the two ends the connection, after or before the piece arrived.
                for each in (self, peer):
                    each.fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def _answer_with_reset(self) -> None:
        """Answer with a reset as soon as the other end sends something: nobody is here any more."""
        peer, way = self.peer, self.way
        assert peer is not None
        assert way is not None
        reset = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        self._network.world.outside.after(way.delay_s(), peer.fail, reset)

    def _was_read(self, size: int) -> None:
        assert self.way is not None
        self._outstanding -= size
        if self._is_full:
            self._is_full = False
            self._network.world.outside.after(self.way.delay_s(), self._has_room)

    def _has_room(self) -> None:
        self._notify(self.on_writable)

    def _notify(self, callback: Callable[[], None] | None) -> None:
        if callback is not None and self.process.is_alive:
            self.process.loop.call_soon(callback)
