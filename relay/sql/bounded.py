"""A session of which every call ends in time, also on a server that does not answer any more.

The server's own statement timeout does not end a statement of a server that is frozen, and keepalives do not
notice one: its kernel still acknowledges what it is sent. So every wait is bounded here as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from changefeed import ChangefeedError, DatabaseError
from changefeed.statements import AsyncSession, Dialect, Result, Statement
from relay.errors import first_line

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

# Seconds in which a driver asks the server to cancel a statement, and closes a connection.
_CLOSING_S = 15.0

# Seconds between two looks at whether anyone still needs the answer.
_LOOK_EVERY_S = 0.5

_ending: set[asyncio.Task[None]] = set()
"""Sessions that are being closed; the event loop alone would not keep their tasks."""


class BoundedSession:
    """A session whose calls raise DatabaseError (`lost`) where the server does not answer in time.

    A call that was cut off or cancelled leaves the connection in a state that is not known, so the session is
    closed and refuses every later call.
    """

    def __init__(self, session: AsyncSession, limit_s: float, needed: Callable[[], bool] = lambda: True) -> None:
        """
        Args:
            session: The session to use, which is closed with this one. A bounded session gives its connection, and
                the limits are those given here.
            limit_s: Maximum seconds of a call; a wait for a notification may take its own time in addition.
            needed: Whether the answer is still of use; where it is not, the call is cut off.
        """
        shared = session._connection if isinstance(session, BoundedSession) else None
        self._connection: _Connection = shared or _Connection(session)
        self._limit_s = limit_s
        self._needed = needed

    @property
    def dialect(self) -> Dialect:
        """As the session's."""
        return self._connection.session.dialect

    @property
    def lost(self) -> bool:
        """Whether every further call is refused."""
        return self._connection.lost

    async def execute(self, statement: Statement, /) -> Result:
        """Carry out one statement. Raises ChangefeedError."""
        return await self._bounded(self._connection.session.execute(statement), self._limit_s)

    async def listen(self, channel: str, /) -> None:
        """Receive the notifications of this channel. Raises ChangefeedError."""
        await self._bounded(self._connection.session.listen(channel), self._limit_s)

    async def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
        """Wait for a notification, of this payload if one is given. Raises ChangefeedError."""
        waiting = self._connection.session.notified(timeout_s, payload)
        return await self._bounded(waiting, timeout_s + self._limit_s)

    async def close(self) -> None:
        """Close the session. It raises nothing, and returns before a server that does not answer."""
        if not self.lost:
            await asyncio.wait((self._connection.end("the session was closed"),), timeout=_LOOK_EVERY_S)

    async def _bounded(self, call: Coroutine[Any, Any, ResultT], limit_s: float) -> ResultT:
        if self.lost:
            call.close()
            raise DatabaseError(self._connection.why, lost=True)
        loop = asyncio.get_running_loop()
        ends = loop.time() + limit_s
        task = loop.create_task(call)
        try:
            while not task.done() and (left_s := ends - loop.time()) > 0 and self._needed():
                await asyncio.wait((task,), timeout=min(left_s, _LOOK_EVERY_S))
        except asyncio.CancelledError:
            # Even where the answer has just come: a transaction may be open.
            self._cut_off(task, "a call was cancelled")
            raise
        if task.done():
            return self._result(task)
        late = f"the server did not answer within {limit_s:g} s"
        self._cut_off(task, late if self._needed() else "no longer needed")
        raise DatabaseError(self._connection.why, lost=True)

    def _cut_off(self, task: asyncio.Task[Any], why: str) -> None:
        task.cancel()
        self._connection.end(f"{why}: the session is discarded", task)

    def _result(self, task: asyncio.Task[ResultT]) -> ResultT:
        try:
            return task.result()
        except DatabaseError as error:
            if error.lost:
                self._connection.end(str(error))
            raise
        except ChangefeedError:
            raise
        except BaseException as error:
            self._connection.end(first_line(error))
            raise


class _Connection:
    """What bounded sessions with different limits have in common."""

    def __init__(self, session: AsyncSession) -> None:
        self.session = session
        self.lost = False
        self.why = ""
        """Why it was lost, which a later call says again."""

    def end(self, why: str, last_call: asyncio.Task[Any] | None = None) -> asyncio.Task[None]:
        """Close the session in the background, after its last call has ended."""
        self.lost = True
        self.why = self.why or why
        ending = asyncio.get_running_loop().create_task(_close(self.session, last_call))
        _ending.add(ending)
        ending.add_done_callback(_ending.discard)
        return ending


async def _close(session: AsyncSession, last_call: asyncio.Task[Any] | None) -> None:
    try:
        if last_call is not None:
            # The driver still reads from the socket.
            await asyncio.wait((last_call,), timeout=_CLOSING_S)
            if last_call.done() and not last_call.cancelled():
                last_call.exception()
        async with asyncio.timeout(_CLOSING_S):
            await session.close()
    except Exception as error:  # noqa: BLE001 - a driver may raise anything here
        # There is nothing to be done about it: the server ends the session when the connection ends.
        logger.debug("relay_session_not_closed: %s", first_line(error))
