"""Deletes what the feed's retention policy allows, now and then, while the worker reads."""

from __future__ import annotations

import asyncio
import logging

from azure.core.exceptions import AzureError

from changefeed import AsyncFeed, ChangefeedError
from relay.errors import first_line
from relay.sql.bounded import BoundedSession
from relay.sql.shard import Connect

# Seconds between two looks at what is due, and maximum seconds of one deletion.
_EVERY_S = 60.0
_LIMIT_S = 60.0

logger = logging.getLogger(__name__)


async def carry_out_retention(connect: Connect, table: str) -> None:
    """Delete what is due, on a session that nothing else waits for, until cancelled.

    The policy is stored with the feed (`python -m relay install --keep`), and the database deletes no more than it
    allows and every consumer has read.
    """
    while True:
        await asyncio.sleep(_EVERY_S)
        try:
            session = BoundedSession(await connect(), _LIMIT_S)
            try:
                while await AsyncFeed(session, table).carry_out_retention():
                    # Readers and writers go first.
                    await asyncio.sleep(0.1)
            finally:
                await session.close()
        except (ChangefeedError, AzureError, OSError) as error:
            logger.warning("relay_retention_unavailable: %s It is tried again.", first_line(error))
