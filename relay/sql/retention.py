"""Deletes what the feed's retention policy allows, now and then, while the worker reads."""

from __future__ import annotations

import asyncio
import logging

from azure.core.exceptions import AzureError

from changefeed import AsyncFeed, ChangefeedError
from relay.errors import described, first_line
from relay.sql.bounded import BoundedSession
from relay.sql.shard import Connect

# Seconds before the first look at what is due. The timer runs a worker for one tick only, so it has to be less.
_FIRST_AFTER_S = 10.0

# Seconds between two looks, and maximum seconds of one deletion.
_EVERY_S = 60.0
_LIMIT_S = 60.0

logger = logging.getLogger(__name__)


async def carry_out_retention(connect: Connect, table: str) -> None:
    """Delete what is due, on sessions that nothing else waits for, until cancelled.

    The policy is stored with the feed (`python -m relay install --keep`), and the database deletes no more than it
    allows and every consumer has read.
    """
    await asyncio.sleep(_FIRST_AFTER_S)
    while True:
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
        except Exception as error:  # noqa: BLE001 - a defect must not end retention for as long as the process lives
            logger.error("relay_defect: %s. Retention is tried again.", described(error))
        await asyncio.sleep(_EVERY_S)
