"""The backend of an SQL outbox, whose feed a worker reads: a timer of the app, or a process of its own."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import azure.functions as func

from outbox_relay.changefeed import MAX_PAGE_SIZE
from relay.backends import assembly
from relay.backends.sql.database import Database
from relay.backends.sql.quarantine import SqlItems
from relay.backends.sql.source import SqlBatch, SqlSource, SqlSourceInTime
from relay.backends.sql.worker import SCHEDULE, Worker, read_until_next_tick
from relay.config.settings import Settings
from relay.core.errors import UsageError
from relay.core.pipeline import Relay

if TYPE_CHECKING:
    from relay.quarantine.items import Items
    from relay.routes.history import StreamRules
    from relay.routes.rulebook import Timelines


class SqlBackend:
    """An SQL outbox (`relay.backends.backend.Backend`), and its installation."""

    name = "sql"
    has_rows = True

    def __init__(self, settings: Settings) -> None:
        """Create the backend. Raises UsageError where the settings name no SQL database."""
        if settings.feed is None:
            raise UsageError("SQL is not set: set it to the connection string of the database that has the outbox")
        self.settings = settings
        self._feed = settings.feed
        self.shards: int | None = self._feed.shards

    @cached_property
    def relay(self) -> Relay[SqlBatch]:
        """The process's relay of the stream, to close after its worker has ended."""
        source = SqlSource(self.settings.selection, self._database.claim)
        if self._rules is not None:
            source = SqlSourceInTime(self.settings.selection, self._database.claim, self._rules)
        return assembly.assemble(self.settings, source, SqlItems(self._database))

    @cached_property
    def worker(self) -> Worker:
        """The worker that gives the relay the pages of the feed. It connects when it runs."""
        return Worker(
            self.relay,
            self._feed,
            self._database.connect,
            page_size=min(self.settings.policy.max_items, MAX_PAGE_SIZE),
            poll_delay_s=self.settings.policy.poll_delay_ms / 1000,
            rules=self._rules,
        )

    @cached_property
    def _database(self) -> Database:
        return Database(self._feed)

    @cached_property
    def _rules(self) -> StreamRules | None:
        return assembly.rules_in_time(self.settings, lambda: self._timelines(self._database))

    def add_functions(self, app: func.FunctionApp) -> None:
        @app.timer_trigger(schedule=SCHEDULE, arg_name="timer", run_on_startup=True, use_monitor=False)
        @app.function_name(self.settings.function_name("relay_sql"))
        async def relay_feed(timer: func.TimerRequest) -> None:
            """Publish from the SQL feed until shortly before the next tick; the worker stores the cursors."""
            await read_until_next_tick(self.worker)

    def open_store(self) -> Items:
        return SqlItems(Database(self._feed, call_timeout_s=None))

    def open_timelines(self) -> Timelines:
        return self._timelines(Database(self._feed))

    def _timelines(self, database: Database) -> Timelines:
        from relay.backends.sql.timelines import SqlTimelines

        return SqlTimelines(database, self._feed)
