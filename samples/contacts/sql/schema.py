"""Creates the tables, and the feed of events. A deployment would do so; the local stack does it here."""

from __future__ import annotations

from sqlalchemy import create_engine
from sqlalchemy.schema import CreateSchema

import changefeed
from changefeed.errors import SetupError
from changefeed.statements import run
from samples.contacts.sql.connection import sqlalchemy_url
from samples.contacts.sql.tables import EVENT_TABLE, metadata


def create_schema(url: str) -> None:
    """Create what is missing. Raises the errors of SQLAlchemy and of changefeed.

    Args:
        url: `postgresql://user@host/database`.
    """
    engine = create_engine(sqlalchemy_url(url))
    with engine.begin() as connection:
        for schema in sorted({table.schema for table in metadata.sorted_tables if table.schema}):
            connection.execute(CreateSchema(schema, if_not_exists=True))
        metadata.create_all(connection)
    engine.dispose()
    session = changefeed.connect(url)
    try:
        changefeed.install(session)
        try:
            run(session, session.dialect.channel(EVENT_TABLE))
        except SetupError:
            changefeed.setup_feed(session, EVENT_TABLE)
    finally:
        session.close()
