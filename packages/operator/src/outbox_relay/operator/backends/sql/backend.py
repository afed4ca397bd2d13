"""The operators' side of an SQL outbox: read, check, scan and install it, and write a canary."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from outbox_relay.operator.backends.rules import stored_rules
from outbox_relay.operator.backends.scans import Scan
from outbox_relay.operator.backends.sql import backlog, canary, check, install, reader
from outbox_relay.operator.backends.wording import Wording
from relay.backends.findings import Finding
from relay.backends.outbox import Canary, NextPage, Outbox
from relay.backends.sql.backend import SqlBackend


class SqlOperatorBackend(SqlBackend):
    """An SQL outbox (`outbox_relay.operator.backends.backend.OperatorBackend`), and its installation."""

    @property
    def wording(self) -> Wording:
        return Wording(
            source=f"the feed {self._feed.feed!r}",
            own=f"the consumer {self._feed.consumer!r}, and the quarantine {self._feed.quarantine_table!r}",
            settings=f"SQL_FEED '{self._feed.feed}', SQL_SHARDS '{self._feed.shards}'",
            runs="the relay runs, and what it logged last (action relay_failed, relay_feed_unavailable)",
            positions="cursors",
            reads="reads this feed",
        )

    def open_outbox(self, *, from_beginning: bool = True) -> Outbox:
        rules = stored_rules(self.settings, self.open_timelines)
        return reader.SqlOutbox(self._feed, rules, from_beginning=from_beginning)

    def open_canary(self) -> AbstractAsyncContextManager[Canary]:
        return canary.open_canary(self._feed)

    async def waiting_since(self) -> int | None:
        return await backlog.waiting_since(self._feed)

    async def install(self, *, keep: str, create_table: bool, roles: bool, notify: bool) -> list[str]:
        """Create the relay's objects in the database, as `install_outbox` describes."""
        return await install.install_outbox(
            self._feed,
            keep=keep,
            create_table=create_table,
            roles=roles,
            notify=notify,
            generations=self.settings.rules is not None,
        )

    @property
    def advice(self) -> str:
        """The parts that each event has to have, for whoever has installed the feed."""
        return install.advice_for(self._feed)

    @classmethod
    async def script_of(
        cls,
        backends: Sequence[SqlOperatorBackend],
        *,
        keep: str,
        create_table: bool,
        roles: bool,
        notify: bool,
    ) -> str:
        """Return the statements that `install` of all these backends would run, as `script_of` describes."""
        return await install.script_of(
            [each._feed for each in backends],
            keep=keep,
            create_table=create_table,
            roles=roles,
            notify=notify,
            generations=any(each.settings.rules is not None for each in backends),
        )

    async def check(self) -> list[Finding]:
        return await check.check(self._feed)

    def check_pages(self, pages: Sequence[NextPage]) -> list[Finding]:
        # Its own check says what waits there, also if no reader has given it a position.
        return []

    async def scan(self) -> Scan:
        return await backlog.scan(self._feed, self.settings.policy.on_poison)
