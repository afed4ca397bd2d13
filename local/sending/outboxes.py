"""Opens the outbox of a running stack."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from local.sending.event import Writer
from local.sending.routed import Outbox


@asynccontextmanager
async def open_writer(outbox: Outbox) -> AsyncIterator[Writer]:
    """A writer for an outbox."""
    if outbox.has_rows:
        # Only then does it need the database's driver.
        from local.sending.sql import open_sql

        async with open_sql(outbox) as writer:
            yield writer
    else:
        from local.sending.cosmos import open_cosmos

        async with open_cosmos(outbox) as other:
            yield other
