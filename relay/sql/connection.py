"""Sessions on the SQL outbox, with a token in place of a password where the server is Azure's."""

from __future__ import annotations

import asyncio
from typing import Any

from changefeed import DatabaseError, SetupError
from changefeed.connections import connect_async, is_postgresql
from relay.settings import SqlFeed
from relay.sql.bounded import BoundedSession

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

# What the drivers' defaults would override: the URL decides.
_KEPT = ("connect_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count")


async def connect(settings: SqlFeed) -> BoundedSession:
    """A session in which each statement is a transaction, and every call ends in time.

    SQL Server's driver asks for tokens itself, as `Authentication=ActiveDirectory…` in its connection string says.

    Raises:
        changefeed.ChangefeedError: The server cannot be reached, or refuses.
        azure.core.exceptions.AzureError: There is no token for this identity.
    """
    given = parameters(settings.connection_string)
    options = _options(given) if is_postgresql(settings.connection_string) else {}
    limit_s = float(options.get("connect_timeout", _CONNECT_S)) + _MARGIN_S
    try:
        async with asyncio.timeout(limit_s):
            if _lacks_password(given):
                async with settings.identity.credential() as credential:
                    options["password"] = (await credential.get_token(_TOKEN_SCOPE)).token
            session = await connect_async(settings.connection_string, **options)
    except TimeoutError as error:
        raise DatabaseError(f"the server did not answer within {limit_s:g} s", lost=True) from error
    return BoundedSession(session, _SILENT_S)


def needs_token(connection_string: str) -> bool:
    """Whether this is the URL of a PostgreSQL server of Azure, without a password. Raises SetupError."""
    return _lacks_password(parameters(connection_string))


def parameters(connection_string: str) -> dict[str, Any]:
    """What a URL of PostgreSQL sets, by libpq's names; nothing for SQL Server.

    Raises:
        changefeed.SetupError: It is malformed. The driver's own message would show a part of it, such as the
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
    """What is passed to the driver in addition to the URL."""
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


def _lacks_password(given: dict[str, Any]) -> bool:
    hosts = str(given.get("host", "")).lower().split(",")
    return "password" not in given and all(host.endswith(_AZURE_HOST) for host in hosts)
