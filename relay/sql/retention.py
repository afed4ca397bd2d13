"""Deletes what the feed's retention policy allows, now and then, while the worker reads."""

from __future__ import annotations

import asyncio
import logging
import time

from azure.core.exceptions import AzureError

from changefeed import AsyncFeed, ChangefeedError
from relay.errors import first_line
from relay.sql.bounded import BoundedSession
from relay.sql.shard import Connect
from relay.unforeseen import described

# Seconds between two looks at what is due, and maximum seconds of one deletion.
_EVERY_S = 60.0
_LIMIT_S = 60.0

logger = logging.getLogger(__name__)


class Retention:
    """One for a worker, each of whose runs may be shorter than the time between two looks.

    The policy is stored with the feed (`python -m relay install --keep`), and the database deletes no more than it
    allows and every consumer has read.
    """

    def __init__(self, connect: Connect, table: str) -> None:
        self._connect = connect
        self._table = table
        self._due = time.monotonic() + _EVERY_S

    async def carry_out(self) -> None:
        """Delete what is due, on sessions that nothing else waits for, until cancelled."""
        while True:
            await asyncio.sleep(max(0.0, self._due - time.monotonic()))
            try:
                await self._delete()
            except (ChangefeedError, AzureError, OSError) as error:
                logger.warning("relay_retention_unavailable: %s It is tried again.", first_line(error))
            except Exception as error:  # noqa: BLE001 - a defect must not end it for good
                logger.error("relay_defect: %s. Retention is tried again.", described(error))
            self._due = time.monotonic() + _EVERY_S

    async def _delete(self) -> None:
        session = BoundedSession(await self._connect(), _LIMIT_S)
        try:
            while await AsyncFeed(session, self._table).carry_out_retention():
                # Readers and writers go first.
                await asyncio.sleep(0.1)
        finally:
            await session.close()
