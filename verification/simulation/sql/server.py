"""The server: one backend for each session, which carries out its statements one after another.

A client that is gone does not end a statement under way: the server notices when it answers. Whoever ends the
session at the server's side rolls back what it was doing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from outbox_relay.changefeed.errors import ChangefeedError, DatabaseError, FeedBusyError
from outbox_relay.changefeed.statements import Result, Statement
from verification.simulation.sql.locks import Lock
from verification.simulation.sql.statements import Noted, Statements, Steps
from verification.simulation.sql.tables import ClaimRow, Tables, Transaction
from verification.simulation.world import World

Answer = Callable[[Result | Exception], None]


class Server:
    """A database server with one feed.

    Attributes:
        backends: The sessions that are open.
        slowest_s: Maximum seconds between two steps of a statement.
        lock_timeout_s: Seconds for which a reader waits for a lock, which is a setting of its function.
        noted: Called with the session's process, and with the row of a claim before and after a change.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.tables = Tables(world.entropy, world.outside.wall)
        self.statements = Statements(self.tables, self.lock_of, world.entropy.shuffle)
        self.backends: dict[int, Backend] = {}
        self.slowest_s = 0.002
        self.lock_timeout_s = 10.0
        self.noted: Callable[[str, ClaimRow, ClaimRow], None] = lambda *_: None
        self._begun = 0
        self._locks: dict[tuple[str, object], Lock] = {}

    def lock_of(self, table: str, row: object) -> Lock:
        """Return the lock of a table's rows of a shard, or of another row."""
        return self._locks.setdefault((table, row), Lock(self.world.outside))

    def open(self, client: str, notify: Callable[[str], None], ended: Callable[[], None]) -> Backend:
        """Begin a session of a process. It gets notifications, and learns when the server ends the session."""
        self._begun += 1
        backend = Backend(self, self._begun, client, notify, ended)
        self.backends[backend.number] = backend
        return backend

    def commit(self, transaction: Transaction) -> None:
        """Commit a writer's transaction, and notify who listens."""
        transaction.commit()
        if self.statements.channel is None:
            return
        for shard in dict.fromkeys(row.shard for row in transaction.rows):
            for backend in list(self.backends.values()):
                if backend.listens:
                    backend.notify(str(shard))

    def end_all(self) -> None:
        """End every session, as when the server stops."""
        for backend in list(self.backends.values()):
            backend.end()


class Backend:
    """One session at the server."""

    def __init__(
        self,
        server: Server,
        number: int,
        client: str,
        notify: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:
        self.number = number
        self.client = client
        self.notify = notify
        self.listens = False
        self.is_open = True
        self.waits_for: Lock | None = None
        self._is_leaving = False
        self._server = server
        self._ended = ended
        self._queue: deque[tuple[Statement, Answer]] = deque()
        self._steps: Steps | None = None
        self._answer: Answer | None = None
        self._locks: list[Lock] = []

    def receive(self, statement: Statement, answer: Answer) -> None:
        """Carry out a statement once those before it are done."""
        self._queue.append((statement, answer))
        self._next()

    def cancel(self) -> None:
        """Cancel what is under way, if it still is."""
        if self._steps is not None:
            self._steps.close()
            self._done(DatabaseError("canceling statement due to user request (SQLSTATE 57014)"))

    def end(self) -> None:
        """End the session, and roll back what is under way."""
        if not self.is_open:
            return
        self._close()
        self._queue.clear()
        if self._steps is not None:
            self._steps.close()
            self._steps = self._answer = None
        self._release()
        self._ended()

    def client_gone(self) -> None:
        """Note that the client has closed the connection: what has come before is still carried out."""
        self._is_leaving = True
        self._next()

    def _close(self) -> None:
        self.is_open = False
        self._server.backends.pop(self.number, None)

    def _next(self) -> None:
        if self._answer is not None or not self.is_open:
            return
        if not self._queue:
            if self._is_leaving:
                self._close()
            return
        statement, self._answer = self._queue.popleft()
        if statement.sql.startswith("listen "):
            self.listens = True
            self._done(Result((), (), 0))
            return
        noted: Noted = lambda before, row: self._server.noted(self.client, before, row)  # noqa: E731
        try:
            result = self._server.statements.carry_out(statement, noted)
        except ChangefeedError as error:
            self._done(error)
            return
        if isinstance(result, Result):
            self._done(result)
        else:
            self._steps = result
            self._advance(None)

    def _advance(self, error: Exception | None) -> None:
        steps = self._steps
        if steps is None or not self.is_open:
            return
        self.waits_for = None
        try:
            step = steps.send(None) if error is None else steps.throw(error)
        except StopIteration as done:
            self._done(done.value)
        except ChangefeedError as raised:
            self._done(raised)
        else:
            self._wait(steps, step)

    def _wait(self, steps: Steps, step: Lock | None) -> None:
        world = self._server.world

        def go_on(error: Exception | None = None) -> None:
            # What waited may be another statement by now.
            if self._steps is steps:
                self._advance(error)

        if step is None:
            world.outside.after(world.entropy.uniform(0, self._server.slowest_s), go_on)
            return
        self._locks.append(step)
        self.waits_for = step
        late = FeedBusyError("another reader holds the lock of this shard. Try again.")
        step.acquire(self, go_on, self._server.lock_timeout_s, lambda: go_on(late))

    def _done(self, outcome: Any) -> None:
        answer, self._answer, self._steps = self._answer, None, None
        self._release()
        if answer is not None:
            answer(outcome)
        self._next()

    def _release(self) -> None:
        self.waits_for = None
        locks, self._locks = self._locks, []
        for lock in locks:
            lock.release(self)
