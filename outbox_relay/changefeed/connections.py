"""Connections to either kind of database, by the form of the connection string."""

from __future__ import annotations

import re
from importlib import import_module
from types import ModuleType
from typing import Any

from outbox_relay.changefeed.errors import SetupError
from outbox_relay.changefeed.statements import AsyncSession, Session


def is_postgresql(url: str) -> bool:
    """Return True if `url` is a URL of PostgreSQL."""
    return url.startswith(("postgresql://", "postgres://"))


def is_sqlserver(url: str) -> bool:
    """Return True if `url` is a connection string of SQL Server or Azure SQL: `Server=…;…`."""
    return re.search(r"(?i)(^|;)\s*(server|addr|address)\s*=", url) is not None


def connect(url: str, **options: Any) -> Session:
    """Open a sync session.

    Args:
        url: `postgresql://user@host/database`, or `Server=…;Database=…;…` for SQL Server.
        options: Further parameters of the driver, such as `password`.

    Raises:
        SetupError: The string is of neither form, or the driver is not installed.
        DatabaseError: The server cannot be reached, or refuses.
    """
    session: Session = _sessions(url).connect(url, **options)
    return session


async def connect_async(url: str, **options: Any) -> AsyncSession:
    """Open an async session. See `connect` for the arguments and errors."""
    session: AsyncSession = await _sessions(url).connect_async(url, **options)
    return session


def _sessions(url: str) -> ModuleType:
    if is_postgresql(url):
        return import_module("outbox_relay.changefeed.postgresql.sessions")
    if is_sqlserver(url):
        return import_module("outbox_relay.changefeed.sqlserver.sessions")
    # The string is not shown: it may hold a password.
    raise SetupError("the connection string is neither postgresql://user@host/database nor Server=…;Database=…;…")
