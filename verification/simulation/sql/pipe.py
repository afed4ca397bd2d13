"""One direction of a connection: what is written arrives in that order, once, and late while the line is cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from verification.simulation.rpc_channel import RpcChannel
from verification.simulation.world import Process

# Seconds between two tries of the kernel that repeats what does not get through.
_AGAIN_S = 1.0


class Pipe:
    """From a process to a service, or back."""

    def __init__(self, process: Process, line: RpcChannel, *, is_back: bool) -> None:
        """`is_back`: what arrives is called in the process, once it runs; else at the service, at once."""
        self._process = process
        self._line = line
        self._is_back = is_back
        self._written: deque[tuple[float, Callable[..., None], tuple[Any, ...]]] = deque()

    def write(self, act: Callable[..., None], *args: Any) -> None:
        """Call `act` when it arrives."""
        self._written.append((self._line.world.now + self._line.delay_s(), act, args))
        if len(self._written) == 1:
            self._expect()

    def _expect(self) -> None:
        world = self._line.world
        world.outside.at(max(world.now, self._written[0][0]), self._arrive)

    def _arrive(self) -> None:
        process = self._process
        if process.is_alive and process.name in self._line.cut:
            self._line.world.outside.after(_AGAIN_S, self._arrive)
            return
        _, act, args = self._written.popleft()
        if self._written:
            self._expect()
        if not self._is_back:
            act(*args)
        elif process.is_alive:
            process.loop.call_soon(act, *args)
