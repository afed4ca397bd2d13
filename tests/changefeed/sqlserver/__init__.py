"""Servers with T-SQL: the backend of the contract suite, and what they have for themselves."""

from __future__ import annotations

import atexit
from functools import cache

from tests.changefeed.sqlserver.backend import SERVICE, TsqlBackend, TsqlDatabase


def open_backend(connection_string: str) -> TsqlBackend:
    """The feed of app.event in the database of this process, empty."""
    return TsqlBackend(_database(connection_string))


@cache
def _database(connection_string: str) -> TsqlDatabase:
    database = TsqlDatabase(connection_string, SERVICE, sessions=14)
    atexit.register(database.drop)
    return database
