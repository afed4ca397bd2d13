"""Connections to either kind of database, by the form of the connection string."""

from __future__ import annotations

import re
from typing import Any

from changefeed.errors import SetupError
from changefeed.statements import AsyncSession, Session


def is_postgresql(url: str) -> bool:
    """Whether this is PostgreSQL's URL."""
    return url.startswith(("postgresql://", "postgres://"))


def is_sqlserver(url: str) -> bool:
    """Whether this is a connection string of SQL Server or Azure SQL: `Server=…;…`."""
    return re.search(r"(?i)(^|;)\s*(server|addr|address)\s*=", url) is not None


def connect(url: str, **options: Any) -> Session:
    """A sync session.

    Args:
        url: `postgresql://user@host/database`, or `Server=…;Database=…;…` for SQL Server.
        options: Further parameters of the driver, such as `password`.

    Raises:
        SetupError: The string is of neither form, or the driver is not installed.
        DatabaseError: The server cannot be reached, or refuses.
    """
    if is_postgresql(url):
        from changefeed.postgresql import sessions

        return sessions.connect(url, **options)
    if is_sqlserver(url):
        from changefeed.sqlserver import sessions as sqlserver_sessions

        return sqlserver_sessions.connect(url, **options)
    raise SetupError(_FORMS)


async def connect_async(url: str, **options: Any) -> AsyncSession:
    """An async session; as `connect`."""
    if is_postgresql(url):
        from changefeed.postgresql import sessions

        return await sessions.connect_async(url, **options)
    if is_sqlserver(url):
        from changefeed.sqlserver import sessions as sqlserver_sessions

        return await sqlserver_sessions.connect_async(url, **options)
    raise SetupError(_FORMS)


# It is not shown: it may hold a password.
_FORMS = "the connection string is neither postgresql://user@host/database nor Server=…;Database=…;…"
