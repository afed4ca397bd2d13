"""The backend of a stream: what the app, the commands and the console need of its source, whichever it is.

`open_backend` is the only place that chooses between the sources. A further source is a package with a `Backend`
of its own, and a line in `_BACKENDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from relay.config.settings import Settings
from relay.core.errors import UsageError

if TYPE_CHECKING:
    import azure.functions as func

    from relay.backends.findings import Finding
    from relay.backends.outbox import Canary, NextPage, Outbox
    from relay.backends.scans import Scan
    from relay.backends.sql.backend import SqlBackend
    from relay.backends.wording import Wording
    from relay.core.pipeline import Relay
    from relay.quarantine.items import Items
    from relay.routes.rulebook import Timelines


class Backend(Protocol):
    """The source of one stream. It connects to nothing; a port that it opens does on its first use.

    Attributes:
        name: The source's name, as `--source` gives it.
        settings: The settings of the stream, with this outbox alone.
        shards: Number of shards of the feed; None for a source without.
        has_rows: Whether the outbox stores rows, whose columns relay.toml names.
    """

    name: str
    settings: Settings
    shards: int | None
    has_rows: bool

    @property
    def relay(self) -> Relay[Any]:
        """The process's relay of the stream, which the first use assembles."""

    @property
    def wording(self) -> Wording:
        """The words for this source in the texts of commands."""

    def add_functions(self, app: func.FunctionApp) -> None:
        """Add the functions that relay the stream to the app."""

    def open_outbox(self, *, from_beginning: bool = True) -> Outbox:
        """Open the outbox for reading; its news begin with its first event, or behind the relay's positions."""

    def open_store(self) -> Items:
        """Open the quarantine store, which is in the outbox's own database."""

    def open_canary(self) -> AbstractAsyncContextManager[Canary]:
        """Open the outbox for a smoke test to write to.

        Raises UsageError where the event table lacks a column, and ServiceError.
        """

    def open_timelines(self) -> Timelines:
        """Open the store of the generations of the outbox's rules."""

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


# A process waits for its imports before its first event, so each backend is imported for its own outbox alone.
def _cosmos(settings: Settings) -> Backend:
    from relay.backends.cosmos.backend import CosmosBackend

    return CosmosBackend(settings)


def _sql(settings: Settings) -> SqlBackend:
    from relay.backends.sql.backend import SqlBackend

    return SqlBackend(settings)


_BACKENDS: Mapping[str, Callable[[Settings], Backend]] = {"cosmos": _cosmos, "sql": _sql}

SOURCES = tuple(_BACKENDS)
"""The names of the sources, as `--source` gives them."""


def open_backend(settings: Settings, source: str | None = None) -> Backend:
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


def open_backends(settings: Settings) -> list[Backend]:
    """Return the backend of each source of a stream."""
    return [open_backend(settings, source) for source in settings.sources]


def open_sql_backends(streams: Iterable[Settings]) -> list[SqlBackend]:
    """Return the SQL backends of the streams, for what only SQL has. Raises UsageError if there is none."""
    found = [_sql(each.with_source("sql")) for each in streams if "sql" in each.sources]
    if not found:
        raise UsageError(
            "SQL is not set, or no outbox of relay.toml is in SQL: set it to the connection string of the "
            "database that has the outbox"
        )
    return found
