"""Puts the relay together for its source and its destination, as the settings say.

A process waits for its imports before its first event, so what only an SQL outbox needs is imported for one alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relay.cosmos.containers import Containers
from relay.cosmos.quarantine import CosmosItems
from relay.cosmos.source import CosmosBatch, CosmosSource, CosmosSourceInTime
from relay.errors import UsageError
from relay.pipeline import Relay
from relay.ports import BatchT, Source
from relay.quarantine.quarantine import StoredQuarantine
from relay.servicebus import messages
from relay.servicebus.publisher import ServiceBusPublisher
from relay.settings import Settings, SqlFeed
from relay.telemetry import instruments
from relay.telemetry.attempt import RelayTelemetry
from relay.telemetry.gauges import LeaseAges

if TYPE_CHECKING:
    from relay.cosmos.ages import LeaseWatch
    from relay.findings import Finding
    from relay.outbox import Canary, Outbox
    from relay.quarantine.items import Items
    from relay.routes.history import StreamRules
    from relay.routes.rulebook import Timelines
    from relay.scans import Scan
    from relay.sql.database import Database
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
    """Assemble a relay from Cosmos DB to Service Bus. It connects when the first event needs it."""
    containers = Containers(settings)
    rules = _rules(settings, lambda: _timelines(settings, containers))
    source = CosmosSource(settings.selection, containers)
    if rules is not None:
        source = CosmosSourceInTime(settings.selection, containers, rules)
    return _relay(settings, source, CosmosItems(containers))


def assemble_sql(settings: Settings) -> SqlRelay:
    """Assemble a relay from an SQL feed to Service Bus. It connects when its worker runs.

    Raises UsageError where the settings name no SQL database.
    """
    from changefeed import MAX_PAGE_SIZE
    from relay.sql.database import Database
    from relay.sql.quarantine import SqlItems
    from relay.sql.source import SqlSource, SqlSourceInTime
    from relay.sql.worker import Worker

    feed = _feed_of(settings)
    database = Database(feed)
    rules = _rules(settings, lambda: _feed_timelines(feed, database))
    source = SqlSource(settings.selection, database.cursor)
    if rules is not None:
        source = SqlSourceInTime(settings.selection, database.cursor, rules)
    relay = _relay(settings, source, SqlItems(database))
    worker = Worker(
        relay,
        feed,
        database.connect,
        page_size=min(settings.max_items, MAX_PAGE_SIZE),
        poll_delay_s=settings.poll_delay_ms / 1000,
        rules=rules,
    )
    return SqlRelay(relay, worker)


def assemble_watch(settings: Settings) -> LeaseWatch:
    """Assemble the watch that measures how long changes wait in Cosmos DB. It is connected only while it looks."""
    from relay.cosmos.ages import LeaseWatch

    ages = LeaseAges()
    instruments.observe_leases(ages)
    return LeaseWatch(settings, ages, _rules(settings, lambda: _timelines(settings, Containers(settings))))


def _timelines(settings: Settings, containers: Containers) -> Timelines:
    from relay.cosmos.timelines import CosmosTimelines

    return CosmosTimelines(containers, settings.cosmos_container, settings.cosmos_lease_container)


def _feed_timelines(feed: SqlFeed, database: Database) -> Timelines:
    from relay.sql.timelines import SqlTimelines

    return SqlTimelines(database, feed)


def _rules(settings: Settings, timelines: Callable[[], Timelines]) -> StreamRules | None:
    """Return the rules of a stream in time; None where those of its settings count for all events."""
    if settings.rules is None:
        return None
    # Most apps have no generations.
    from relay.routes.history import StreamRules
    from relay.routes.rulebook import Rulebook
    from relay.streams import selection_of

    outbox, destination = settings.outbox, settings.selection.destination
    return StreamRules(
        Rulebook(timelines(), settings.rules.text, since=settings.rules.since),
        lambda rules: selection_of(rules, outbox, destination),
    )


def _relay(settings: Settings, source: Source[BatchT], store: Items) -> Relay[BatchT]:
    return Relay(
        source,
        ServiceBusPublisher.from_settings(
            settings,
            messages.contract(
                settings.cloudevents_source, settings.selection.fields, any_fields=settings.rules is not None
            ),
        ),
        StoredQuarantine(store),
        duplicate_window_s=settings.duplicate_window_s,
        on_poison=settings.on_poison,
        attempt_timeout_s=settings.attempt_timeout_s,
        telemetry=RelayTelemetry(label=settings.label),
    )


def open_outbox(settings: Settings, *, from_beginning: bool = True) -> Outbox:
    """Open the outbox of settings that have one. It connects on the first read.

    Its news begin with its first event, or else behind the relay's positions. Raises UsageError where the settings
    have both outboxes: leave one out, `replace(settings, sql=None)`.
    """
    feed = _only_feed(settings)
    if feed is not None:
        from relay.sql.reader import SqlOutbox

        return SqlOutbox(feed, from_beginning=from_beginning)
    from relay.cosmos.reader import CosmosOutbox

    return CosmosOutbox(settings, from_beginning=from_beginning)


def open_store(settings: Settings) -> Items:
    """Open the quarantine store, which is in the outbox's own database.

    It connects on first use. Raises UsageError if the settings have outboxes of both kinds.
    """
    feed = _only_feed(settings)
    if feed is None:
        return CosmosItems(Containers(settings))
    from relay.sql.database import Database
    from relay.sql.quarantine import SqlItems

    return SqlItems(Database(feed, call_timeout_s=None))


def open_canary(settings: Settings) -> AbstractAsyncContextManager[Canary]:
    """Open the outbox of settings that have one, for a smoke test to write to.

    Raises UsageError where the settings have both, or the event table lacks a column, and ServiceError.
    """
    feed = _only_feed(settings)
    if feed is not None:
        from relay.sql.canary import open_canary as open_sql_canary

        return open_sql_canary(feed)
    from relay.cosmos.reader import open_canary as open_cosmos_canary

    return open_cosmos_canary(settings)


def open_timelines(settings: Settings) -> Timelines:
    """Return the store of the generations of an outbox's rules. Nothing is connected until it is read."""
    feed = _only_feed(settings)
    if feed is None:
        return _timelines(settings, Containers(settings))
    from relay.sql.database import Database

    return _feed_timelines(feed, Database(feed))


async def waiting_since(settings: Settings) -> int | None:
    """Return when the first change was committed that a stream has not passed; None if nothing waits.

    In seconds since 1970; of an SQL outbox, it may be later. Raises ServiceError.
    """
    feed = _only_feed(settings)
    if feed is None:
        from relay.cosmos.ages import waiting_since as since

        return await since(settings)
    from relay.sql.backlog import waiting_since as since_of_feed

    return await since_of_feed(feed)


async def install(settings: Settings, *, keep: str, create_table: bool, roles: bool, notify: bool) -> list[str]:
    """Create the relay's objects in the SQL database, as `relay.sql.install.install_outbox` describes."""
    from relay.sql.install import install_outbox

    return await install_outbox(
        _feed_of(settings),
        keep=keep,
        create_table=create_table,
        roles=roles,
        notify=notify,
        generations=settings.rules is not None,
    )


async def check_outbox(settings: Settings) -> list[Finding]:
    """Return the findings of `check` about the only outbox, with the rights of the caller. Changes nothing."""
    feed = _only_feed(settings)
    if feed is None:
        from relay.cosmos.check import check

        return await check(settings)
    from relay.sql.check import check as check_sql

    return await check_sql(feed)


async def scan_outbox(settings: Settings) -> Scan:
    """Return the documents in the only outbox that the relay has not passed and will not publish."""
    feed = _only_feed(settings)
    if feed is None:
        from relay.cosmos.scan import scan

        return await scan(settings)
    from relay.sql.backlog import scan as scan_sql

    return await scan_sql(feed, settings.on_poison)


def _feed_of(settings: Settings) -> SqlFeed:
    feed = settings.feed
    if feed is None:
        raise UsageError("SQL is not set: set it to the connection string of the database that has the outbox")
    return feed


def _only_feed(settings: Settings) -> SqlFeed | None:
    """Return the SQL outbox, or None if the outbox is in Cosmos DB."""
    if settings.cosmos is not None and settings.sql is not None:
        raise UsageError("COSMOS and SQL are both set, and one of them is needed: add --source cosmos or sql")
    return settings.feed
