"""Opens the outbox of a running stack."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from local.sending.writer import Writer


@asynccontextmanager
async def open_writer(settings: Mapping[str, str]) -> AsyncIterator[Writer]:
    """A writer for the outbox that the settings of a stack name."""
    if "COSMOS" in settings:
        from local.sending.cosmos import open_cosmos

        async with open_cosmos(settings) as writer:
            yield writer
    else:
        # Only then does it need the database's driver.
        from local.sending.sql import open_sql

        async with open_sql(settings) as other:
            yield other
