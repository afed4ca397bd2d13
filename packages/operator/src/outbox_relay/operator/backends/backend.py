"""The backend of a stream with what operators' commands and the console need, whichever the source is.

`open_backend` is the only place of this package that chooses between the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from relay.backends.backend import Backend
from relay.config.settings import Settings
from relay.core.errors import SettingsError, UsageError

if TYPE_CHECKING:
    from outbox_relay.operator.backends.scans import Scan
    from outbox_relay.operator.backends.sql.backend import SqlOperatorBackend
    from outbox_relay.operator.backends.wording import Wording
    from relay.backends.findings import Finding
    from relay.backends.outbox import Canary, NextPage, Outbox

_CHANGEFEED_MISSING = (
    "SQL needs the package outbox-relay-changefeed, which is not installed: "
    "pip install 'outbox-relay-operator[postgresql]', or [sqlserver]"
)


class OperatorBackend(Backend, Protocol):
    """The source of one stream, and ways to look into it, to check it and to test it."""

    @property
    def wording(self) -> Wording:
        """The words for this source in the texts of commands."""

    def open_outbox(self, *, from_beginning: bool = True) -> Outbox:
        """Open the outbox for reading; its news begin with its first event, or behind the relay's positions."""

    def open_canary(self) -> AbstractAsyncContextManager[Canary]:
        """Open the outbox for a smoke test to write to.

        Raises UsageError where the event table lacks a column, and ServiceError.
        """

    async def waiting_since(self) -> int | None:
        """Return when the first change was committed that the stream has not passed; None if nothing waits.

        In seconds since 1970; of an SQL outbox, it may be later. Raises ServiceError.
        """

    async def check(self) -> list[Finding]:
        """Return the findings of `check` about the outbox, with the rights of the caller. Changes nothing."""

    def check_pages(self, pages: Sequence[NextPage]) -> list[Finding]:
        """Return the findings about events of the next pages that wait for too long, if `check` has none."""

    async def scan(self) -> Scan:
        """Return the documents in the outbox that the relay has not passed and will not publish."""


def _cosmos(settings: Settings) -> OperatorBackend:
    from outbox_relay.operator.backends.cosmos.backend import CosmosOperatorBackend

    return CosmosOperatorBackend(settings)


def _sql(settings: Settings) -> SqlOperatorBackend:
    try:
        from outbox_relay.operator.backends.sql.backend import SqlOperatorBackend
    except ModuleNotFoundError as error:
        if error.name != "outbox_relay.changefeed":
            raise
        raise SettingsError([_CHANGEFEED_MISSING]) from error

    return SqlOperatorBackend(settings)


_BACKENDS: Mapping[str, Callable[[Settings], OperatorBackend]] = {"cosmos": _cosmos, "sql": _sql}

SOURCES = tuple(_BACKENDS)
"""The names of the sources, as `--source` gives them."""


def open_backend(settings: Settings, source: str | None = None) -> OperatorBackend:
    """Return the backend of a stream's source: of the named one, or of the only one.

    Raises:
        UsageError: The named one is not set, or both are set and none is named.
    """
    if source is None and len(settings.sources) > 1:
        raise UsageError("COSMOS and SQL are both set: add --source cosmos or --source sql")
    if source is not None and source not in settings.sources:
        raise UsageError(f"--source {source}: {source.upper()} is not set")
    chosen = source or settings.sources[0]
    return _BACKENDS[chosen](settings.with_source(chosen))


def open_backends(settings: Settings) -> list[OperatorBackend]:
    """Return the backend of each source of a stream."""
    return [open_backend(settings, source) for source in settings.sources]


def open_sql_backends(streams: Iterable[Settings]) -> list[SqlOperatorBackend]:
    """Return the SQL backends of the streams, for what only SQL has. Raises UsageError if there is none."""
    found = [_sql(each.with_source("sql")) for each in streams if "sql" in each.sources]
    if not found:
        raise UsageError(
            "SQL is not set, or no outbox of relay.toml is in SQL: set it to the connection string of the "
            "database that has the outbox"
        )
    return found
