"""A process's sessions with the server: an `AsyncSession` of changefeed over a connection that faults befall.

What is written to a connection arrives in that order. While the line is cut, both kernels repeat it, so a
statement may be carried out long after its process has given up on it, or has been killed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from outbox_relay.changefeed.errors import DatabaseError
from outbox_relay.changefeed.postgresql.dialect import PostgresDialect
from outbox_relay.changefeed.statements import Result, Statement
from verification.simulation.channel import RpcChannel
from verification.simulation.sql.server import Server
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


async def connect(process: Process, line: RpcChannel, server: Server) -> SimulatedSession:
    """Open a session of a process. Raises DatabaseError; a server that cannot be reached does not answer."""
    answered: asyncio.Future[None] = process.loop.create_future()

    def arrive() -> None:
        if line.is_open(process):
            line.world.outside.after(line.delay_s(), deliver)

    def deliver() -> None:
        if process.is_alive and line.is_open(process):
            process.loop.call_soon(settle)

    def settle() -> None:
        if not answered.done():
            answered.set_result(None)

    if line.is_down:
        await asyncio.sleep(line.delay_s())
        raise DatabaseError("connection refused", lost=True)
    line.world.outside.after(line.delay_s(), arrive)
    await answered
    return SimulatedSession(process, line, server)


class SimulatedSession:
    """See `changefeed.statements.AsyncSession`."""

    dialect = PostgresDialect()

    def __init__(self, process: Process, line: RpcChannel, server: Server) -> None:
        self._process = process
        self._line = line
        self._lost: DatabaseError | None = None
        self._closed = False
        self._waiting: set[asyncio.Future[Any]] = set()
        self._notifications: deque[str] = deque()
        self._news: asyncio.Future[None] | None = None
        self._there = Pipe(process, line, is_back=False)
        self._back = Pipe(process, line, is_back=True)
        self.backend = server.open(process.name, self._notify, self._ended)
        process.on_death(self._hang_up)

    async def execute(self, statement: Statement, /) -> Result:
        if self._lost is not None:
            raise self._lost
        answer: asyncio.Future[Result] = self._process.loop.create_future()
        self._send(statement, answer)
        self._waiting.add(answer)
        try:
            return await answer
        except asyncio.CancelledError:
            # The driver asks the server to cancel the statement, and may be too late.
            if self._line.is_open(self._process):
                self._line.world.outside.after(self._line.delay_s(), self._cancel)
            raise
        finally:
            self._waiting.discard(answer)

    async def listen(self, channel: str, /) -> None:
        await self.execute(Statement(f'listen "{channel}"'))

    async def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        ends = self._process.loop.time() + timeout_s
        while True:
            if self._lost is not None:
                raise self._lost
            while self._notifications:
                if self._notifications.popleft() == payload or payload is None:
                    return True
            left_s = ends - self._process.loop.time()
            if left_s <= 0:
                return False
            self._news = self._process.loop.create_future()
            await asyncio.wait((self._news,), timeout=left_s)

    async def close(self) -> None:
        self._hang_up()

    # Towards the server.

    def _send(self, statement: Statement, answer: asyncio.Future[Result]) -> None:
        line, entropy = self._line, self._line.world.entropy
        is_lost = line.loses > 0 and entropy.random() < line.loses
        arrives = not is_lost or entropy.random() < 0.5

        def answered(outcome: Result | Exception) -> None:
            if is_lost:
                self._break()
            else:
                self._back.write(self._settle, answer, outcome)

        def arrive() -> None:
            if arrives:
                self.backend.receive(statement, answered)
            else:
                self._break()

        self._there.write(arrive)

    def _cancel(self) -> None:
        if self.backend.is_open and self._line.is_open(self._process):
            self.backend.cancel()

    def _hang_up(self) -> None:
        """Close the connection; the server learns it behind what was written before."""
        if not self._closed:
            self._closed = True
            self._lost = self._lost or DatabaseError("the connection is closed", lost=True)
            self._there.write(self.backend.client_gone)

    # Towards the process.

    def _notify(self, payload: str) -> None:
        self._back.write(self._take_notification, payload)

    def _take_notification(self, payload: str) -> None:
        self._notifications.append(payload)
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _ended(self) -> None:
        """End the session, as the server does."""
        self._back.write(self._lose)

    def _break(self) -> None:
        """Break the connection: what the server has done stays done."""
        self.backend.client_gone()
        self._back.write(self._lose)

    def _lose(self) -> None:
        self._lost = self._lost or DatabaseError("the connection is lost", lost=True)
        for answer in sorted(self._waiting, key=hash):
            if not answer.done():
                answer.set_exception(self._lost)
        self._wake()

    def _settle(self, answer: asyncio.Future[Result], outcome: Result | Exception) -> None:
        if answer.done():
            return
        if isinstance(outcome, Result):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)
