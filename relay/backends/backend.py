"""The backend of a stream: what the app needs of its source, whichever it is.

`open_backends` is the only place of the relay that chooses between the sources. A further source is a package with
a `Backend` of its own, and a line in `_BACKENDS`. `outbox_relay.operator.backends` adds what commands need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from relay.config.settings import Settings

if TYPE_CHECKING:
    import azure.functions as func

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

    def add_functions(self, app: func.FunctionApp) -> None:
        """Add the functions that relay the stream to the app."""

    def open_store(self) -> Items:
        """Open the quarantine store, which is in the outbox's own database."""

    def open_timelines(self) -> Timelines:
        """Open the store of the generations of the outbox's rules."""


# A process waits for its imports before its first event, so each backend is imported for its own outbox alone.
def _cosmos(settings: Settings) -> Backend:
    from relay.backends.cosmos.backend import CosmosBackend

    return CosmosBackend(settings)


def _sql(settings: Settings) -> Backend:
    from relay.backends.sql.backend import SqlBackend

    return SqlBackend(settings)


_BACKENDS: Mapping[str, Callable[[Settings], Backend]] = {"cosmos": _cosmos, "sql": _sql}


def open_backends(settings: Settings) -> list[Backend]:
    """Return the backend of each source of a stream."""
    return [_BACKENDS[source](settings.with_source(source)) for source in settings.sources]
