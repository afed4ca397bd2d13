"""Opens the outbox of a running stack."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from local.sending.routed import Outbox
from local.sending.writer import Writer


@asynccontextmanager
async def open_writer(settings: Mapping[str, str], outbox: Outbox) -> AsyncIterator[Writer]:
    """A writer for an outbox of the stack with these settings."""
    if outbox.settings.sql is None:
        from local.sending.cosmos import open_cosmos

        async with open_cosmos(settings, outbox) as writer:
            yield writer
    else:
        # Only then does it need the database's driver.
        from local.sending.sql import open_sql

        async with open_sql(outbox) as other:
            yield other
