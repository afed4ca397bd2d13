"""Puts the relay together for its source and its destination, as the settings say.

A process waits for its imports before its first event, so what only an SQL outbox needs is imported for one alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay.cosmos.containers import Containers
from relay.cosmos.items import CosmosItems
from relay.cosmos.source import CosmosBatch, CosmosSource
from relay.errors import UsageError
from relay.pipeline import Relay
from relay.quarantine.quarantine import StoredQuarantine
from relay.servicebus import messages
from relay.servicebus.publisher import ServiceBusPublisher
from relay.settings import Settings

if TYPE_CHECKING:
    from relay.findings import Finding, Scan
    from relay.sql.source import SqlBatch
    from relay.sql.worker import Worker

CosmosRelay = Relay[CosmosBatch]


@dataclass(frozen=True, slots=True)
class SqlRelay:
    """A relay, and the worker that gives it the pages of an SQL feed."""

    relay: Relay[SqlBatch]
    worker: Worker

    async def close(self) -> None:
        """Close every connection, after the worker has ended."""
        await self.relay.close()


def assemble(settings: Settings) -> CosmosRelay:
    """A relay from Cosmos DB to Service Bus. Nothing is connected until the first event needs it."""
    containers = Containers(settings)
    return Relay(
        CosmosSource(settings.event_type, containers),
        ServiceBusPublisher.from_settings(settings, messages.contract(settings.cloudevents_source)),
        StoredQuarantine(CosmosItems(containers)),
        duplicate_window_s=settings.duplicate_window_s,
        on_poison=settings.on_poison,
        attempt_timeout_s=settings.attempt_timeout_s,
    )


def assemble_sql(settings: Settings) -> SqlRelay:
    """A relay from an SQL feed to Service Bus. Nothing is connected until its worker runs.

    Raises:
        UsageError: The settings name no SQL database.
    """
    from changefeed import MAX_PAGE_SIZE
    from relay.sql.database import Database
    from relay.sql.items import SqlItems
    from relay.sql.source import SqlSource
    from relay.sql.worker import Worker

    if settings.sql is None:
        raise UsageError("SQL is not set: set it to the connection string of the database that has the outbox")
    database = Database(settings.sql)
    relay: Relay[SqlBatch] = Relay(
        SqlSource(settings.event_type, database.cursor),
        ServiceBusPublisher.from_settings(settings, messages.contract(settings.cloudevents_source)),
        StoredQuarantine(SqlItems(database)),
        duplicate_window_s=settings.duplicate_window_s,
        on_poison=settings.on_poison,
        attempt_timeout_s=settings.attempt_timeout_s,
    )
    worker = Worker(
        relay,
        settings.sql,
        database.connect,
        page_size=min(settings.max_items, MAX_PAGE_SIZE),
        poll_delay_s=settings.poll_delay_ms / 1000,
    )
    return SqlRelay(relay, worker)


async def check_outboxes(settings: Settings) -> list[Finding]:
    """What `check` finds of each outbox that is set, with the rights of the caller; it changes nothing."""
    checks = []
    if settings.cosmos is not None:
        from relay.cosmos.check import check

        checks.append(check(settings))
    if settings.sql is not None:
        from relay.sql.check import check as check_sql

        checks.append(check_sql(settings.sql))
    return [finding for findings in await asyncio.gather(*checks) for finding in findings]


async def scan_outboxes(settings: Settings) -> list[Scan]:
    """What is wrong with the documents that the relay has not passed, in each outbox that is set."""
    scans: list[Scan] = []
    if settings.cosmos is not None:
        from relay.cosmos.scan import scan

        scans.append(await scan(settings))
    if settings.sql is not None:
        from relay.sql.scan import scan_sql

        scans.append(await scan_sql(settings.sql, settings.event_type))
    return scans
