"""The database of an SQL outbox: one shared session, and more for readers that need their own.

Every call of a session ends in time, also on a server that does not answer any more. The server's own statement
timeout does not end a statement of a server that is frozen, and keepalives do not notice one: its kernel still
acknowledges what it is sent. So every wait is bounded here as well.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from azure.core.exceptions import AzureError

from outbox_relay.changefeed import AsyncConsumer, ChangefeedError, Claim, DatabaseError, SetupError
from outbox_relay.changefeed.connections import connect_async, is_postgresql
from outbox_relay.changefeed.statements import AsyncSession, Dialect, Result, Statement
from relay.config.settings import SqlFeed
from relay.core.errors import FeedError, RelayError, ServiceError, first_line
from relay.core.remedy import CHECK, INSTALL

logger = logging.getLogger(__name__)

FAILURES = (ChangefeedError, AzureError, OSError)
"""The errors of a session: of the database, of the token, and of the network."""

CALL_TIMEOUT_S = 10.0
"""Maximum seconds of a statement on the shared session; waiting for it takes at most twice as long."""

# https://learn.microsoft.com/azure/postgresql/flexible-server/how-to-connect-with-managed-identity
_TOKEN_SCOPE = "https://ossrdbms-aad.database.windows.net/.default"
_AZURE_HOST = ".postgres.database.azure.com"

# Seconds after which the server ends a statement, and after which it is taken for silent.
_STATEMENT_S = 60
_SILENT_S = _STATEMENT_S + 5.0

# Seconds for a connection: the default, and the maximum that the URL may set.
_CONNECT_S = 15
_MAX_CONNECT_S = 60

# Seconds for a token and for further addresses of the server, in addition to one connection.
_MARGIN_S = 10.0

# Settings that the drivers' defaults would override: the URL decides.
_KEPT = ("connect_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count")

# Seconds in which a driver asks the server to cancel a statement, and closes a connection.
_CLOSING_S = 15.0

# Seconds between two looks at whether anyone still needs the answer.
_LOOK_EVERY_S = 0.5

_ending: set[asyncio.Task[None]] = set()
"""Sessions that are being closed; the event loop alone would not keep their tasks."""

ResultT = TypeVar("ResultT")


class Database:
    """Connections to the database of an SQL outbox. Create one per process; it connects on first use."""

    def __init__(self, settings: SqlFeed, *, call_timeout_s: float | None = CALL_TIMEOUT_S) -> None:
        """Create the database's connection.

        `call_timeout_s`: maximum seconds of a statement on the shared session; None for no limit.
        """
        self.quarantine_table = settings.quarantine_table
        self._settings = settings
        self._call_timeout_s = math.inf if call_timeout_s is None else call_timeout_s
        self._turn = asyncio.Lock()
        self._session: BoundedSession | None = None

    async def connect(self) -> BoundedSession:
        """Open a separate session. Raises FAILURES."""
        return await connect(self._settings)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """The shared session, for one user at a time; opened again if it was lost. Raises FAILURES."""
        await self._await_turn()
        try:
            if self._session is None or self._session.lost:
                self._session = BoundedSession(await self.connect(), self._call_timeout_s)
            yield self._session
        except DatabaseError as error:
            if error.lost:
                await self._close()
            raise
        finally:
            self._turn.release()

    @asynccontextmanager
    async def session_for(self, table: str, kind: type[RelayError]) -> AsyncIterator[AsyncSession]:
        """Open the shared session for work on a table of the relay. Raises `kind` with the remedy."""
        try:
            async with self.session() as session:
                yield session
        except FAILURES as error:
            # Not the driver's own words, which may show a part of the connection string.
            raise kind(
                f"the table {table} cannot be read or written: {first_line(error)} Check SQL, and the rights of "
                "this identity. If there is no such table: ",
                INSTALL,
                ".",
            ) from error

    async def _await_turn(self) -> None:
        """Wait for the users before. Raises DatabaseError if that takes too long."""
        limit_s = 2 * self._call_timeout_s
        try:
            async with asyncio.timeout(None if limit_s == math.inf else limit_s):
                await self._turn.acquire()
        except TimeoutError as error:
            raise DatabaseError(f"other users have waited for the server for {limit_s:g} s") from error

    async def claim(self, shard_id: int) -> Claim:
        """Return the claim of a shard as it is stored, with the position up to which it was published.

        Raises FeedError.
        """
        try:
            async with self.session() as session:
                (claim,) = await AsyncConsumer(session, self._settings.feed, self._settings.consumer).claims(
                    [shard_id]
                )
        except FAILURES as error:
            raise FeedError(
                f"old events must be compared with the stored cursor of shard {shard_id}, which could not be "
                f"read: {first_line(error)}"
            ) from error
        return claim

    async def close(self) -> None:
        async with self._turn:
            await self._close()

    async def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


@contextmanager
def explaining(feed: SqlFeed, grants: str | None = None) -> Iterator[None]:
    """Raise FAILURES as a ServiceError that says what to check, and what a role that is refused needs."""
    try:
        yield
    except FAILURES as error:
        needs = ""
        if grants and isinstance(error, DatabaseError) and not error.lost:
            needs = f". The reader's role needs: {grants}"
        raise ServiceError(
            f"the SQL outbox {feed.feed} cannot be read or written: {first_line(error)} Check SQL, SQL_FEED, and "
            "the rights of this login: ",
            CHECK,
            needs,
        ) from error


async def connect(settings: SqlFeed) -> BoundedSession:
    """Open a session in which each statement is a transaction, and every call ends in time. Raises FAILURES.

    SQL Server's driver asks for tokens itself, as `Authentication=ActiveDirectory…` in its connection string says.
    """
    given = parameters(settings.connection_string)
    options = _options(given) if is_postgresql(settings.connection_string) else {}
    limit_s = float(options.get("connect_timeout", _CONNECT_S)) + _MARGIN_S
    try:
        async with asyncio.timeout(limit_s):
            if needs_token(settings.connection_string):
                async with settings.identity.credential() as credential:
                    options["password"] = (await credential.get_token(_TOKEN_SCOPE)).token
            session = await connect_async(settings.connection_string, **options)
    except TimeoutError as error:
        raise DatabaseError(f"the server did not answer within {limit_s:g} s", lost=True) from error
    return BoundedSession(session, _SILENT_S)


def needs_token(connection_string: str) -> bool:
    """Return True for a URL of a PostgreSQL server of Azure, without a password. Raises SetupError."""
    given = parameters(connection_string)
    hosts = str(given.get("host", "")).lower().split(",")
    return "password" not in given and all(host.endswith(_AZURE_HOST) for host in hosts)


def parameters(connection_string: str) -> dict[str, Any]:
    """Return the settings in a URL of PostgreSQL, by libpq's names; none for SQL Server.

    Raises SetupError if it is malformed; the driver's own message would show a part of it, such as the
    password.
    """
    if not is_postgresql(connection_string):
        return {}
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        # changefeed says what to install.
        return {}
    try:
        given = conninfo_to_dict(connection_string)
    except (ProgrammingError, UnicodeError):
        raise SetupError(_MALFORMED) from None
    hosts, ports = str(given.get("host", "")).split(","), str(given.get("port", "")).split(",")
    # A password that is not encoded ends up in one of these, and in the errors that name them.
    misplaced = "@" in str(given.get("dbname", "")) and "%40" not in connection_string
    if misplaced or any("@" in host for host in hosts) or any(port and not port.isdecimal() for port in ports):
        raise SetupError(_MALFORMED)
    return given


_MALFORMED = (
    "SQL is no URL of PostgreSQL. Write postgresql://user:password@host:5432/database, with %25 for %, %40 for @, "
    "%2F for /, %3A for : and %20 for a space in user, password and database"
)


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the driver's options in addition to the URL."""
    options = {name: given[name] for name in _KEPT if name in given}
    timeout = str(options.get("connect_timeout", _CONNECT_S))
    if not timeout.isdecimal() or not 1 <= int(timeout) <= _MAX_CONNECT_S:
        raise SetupError(f"connect_timeout of SQL is no whole number of seconds from 1 to {_MAX_CONNECT_S}")
    of_server = str(given.get("options", ""))
    if "statement_timeout" in of_server:
        raise SetupError(
            f"options of SQL sets statement_timeout, which is always {_STATEMENT_S} s: leave it out of the URL"
        )
    if str(given.get("client_encoding", "utf8")).lower().replace("-", "") not in ("utf8", "auto"):
        raise SetupError("client_encoding of SQL is not UTF8, as which rows are read: leave it out of the URL")
    options["options"] = f"-c statement_timeout={_STATEMENT_S}s {of_server}".strip()
    options["client_encoding"] = "UTF8"
    return options


class BoundedSession:
    """A session whose calls raise DatabaseError (`lost`) if the server does not answer in time.

    A call that was cut off or cancelled leaves the connection in an unknown state, so the session is
    closed and refuses every later call.
    """

    def __init__(self, session: AsyncSession, limit_s: float, needed: Callable[[], bool] = lambda: True) -> None:
        """Bound the calls of a session.

        Args:
            session: The session to use, which is closed with this one. A bounded session gives its connection, and
                the limits are those given here.
            limit_s: Maximum seconds of a call; a wait for a notification may take its own time in addition.
            needed: Whether the answer is still of use; if it is not, the call is cut off.
        """
        shared = session._connection if isinstance(session, BoundedSession) else None
        self._connection: _Connection = shared or _Connection(session)
        self._limit_s = limit_s
        self._needed = needed

    @property
    def dialect(self) -> Dialect:
        return self._connection.session.dialect

    @property
    def lost(self) -> bool:
        """True if every further call is refused."""
        return self._connection.lost

    async def execute(self, statement: Statement, /) -> Result:
        return await self._bounded(self._connection.session.execute(statement), self._limit_s)

    async def listen(self, channel: str, /) -> None:
        await self._bounded(self._connection.session.listen(channel), self._limit_s)

    async def notified(self, timeout_s: float, payload: str | None = None, /) -> bool:
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
            # Even if the answer has just come: a transaction may be open.
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
    """The common part of bounded sessions with different limits."""

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
