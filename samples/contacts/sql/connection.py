"""The connection to the database, from the relay's settings SQL and SQL_SHARDS."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from samples.contacts.settings import SettingMissing
from samples.contacts.sql.schema import create_table
from samples.contacts.sql.unit_of_work import SqlUnitOfWork

_CONNECTIONS = 16


@asynccontextmanager
async def open_sql(environment: Mapping[str, str] = os.environ) -> AsyncGenerator[Callable[[], SqlUnitOfWork]]:
    """Open the database, and create the table of contacts; what is yielded begins a unit of work.

    Raises:
        SettingMissing: SQL is not set.
    """
    url = environment.get("SQL")
    if not url:
        raise SettingMissing("Set SQL to the URL of a database, such as postgresql://user@host/database.")
    # A connection that has ended, as the database was restarted, is replaced before it is used.
    engine = create_async_engine(_sqlalchemy_url(url), pool_size=_CONNECTIONS, pool_pre_ping=True)
    try:
        await create_table(engine)
        yield partial(SqlUnitOfWork, engine, shards=int(environment.get("SQL_SHARDS") or 1))
    finally:
        await engine.dispose()


def _sqlalchemy_url(url: str) -> URL:
    """Return the URL as SQLAlchemy spells it, with the driver's name.

    See https://docs.sqlalchemy.org/dialects/postgresql.
    """
    return make_url(url).set(drivername="postgresql+psycopg")
