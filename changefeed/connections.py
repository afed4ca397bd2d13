"""Connections to either kind of database, by the form of the connection string."""

from __future__ import annotations

from typing import Any

from changefeed.errors import SetupError
from changefeed.statements import AsyncSession, Session


def is_postgresql(url: str) -> bool:
    """Whether this is PostgreSQL's URL; else it is taken for a connection string of SQL Server."""
    return url.startswith(("postgresql://", "postgres://"))


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
    raise SetupError(_FORMS)


async def connect_async(url: str, **options: Any) -> AsyncSession:
    """An async session; as `connect`."""
    if is_postgresql(url):
        from changefeed.postgresql import sessions

        return await sessions.connect_async(url, **options)
    raise SetupError(_FORMS)


# It is not shown: it may hold a password.
_FORMS = "the connection string is neither postgresql://user@host/database nor Server=…;Database=…;…"
