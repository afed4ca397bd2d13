"""Creates the table of contacts. That of the events, with its feed, is made by `python -m relay install`."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.schema import CreateSchema

from samples.contacts.sql.tables import contact


async def create_table(engine: AsyncEngine) -> None:
    """Create the table and its schema, if they do not exist."""
    assert contact.schema is not None
    async with engine.begin() as connection:
        await connection.execute(CreateSchema(contact.schema, if_not_exists=True))
        await connection.run_sync(contact.create, checkfirst=True)
