"""Where a smoke test writes its events, and takes them back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from relay.cosmos.containers import explaining
from relay.errors import ServiceError

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

CLEAN_UP_S = 10.0
"""Bounds the clean-up after each event, so that Ctrl-C ends the command."""


class EventOutbox(Protocol):
    """An outbox as a smoke test uses it."""

    async def write(self, document: dict[str, Any], /) -> dict[str, Any]:
        """Commit an event; returns its document as it is stored.

        Raises:
            ServiceError: The outbox cannot be reached, or refuses.
        """

    async def remove(self, document: dict[str, Any], /) -> str | None:
        """Take an event back, within CLEAN_UP_S; returns what is left of it, None if nothing is."""


class CosmosOutbox:
    """The outbox container of Cosmos DB."""

    def __init__(self, container: ContainerProxy) -> None:
        self._container = container

    async def write(self, document: dict[str, Any], /) -> dict[str, Any]:
        """Create the document."""
        with explaining(self._container.id):
            return dict(await self._container.create_item(document))

    async def remove(self, document: dict[str, Any], /) -> str | None:
        """Delete the document, if it has not expired."""
        from azure.cosmos.exceptions import CosmosResourceNotFoundError

        identifier, partition_key = document["id"], document["partitionKey"]
        try:
            async with asyncio.timeout(CLEAN_UP_S):
                with explaining(self._container.id):
                    await self._container.delete_item(identifier, partition_key=partition_key)
        except (ServiceError, TimeoutError) as error:
            if not isinstance(error.__cause__, CosmosResourceNotFoundError):
                return f"document {identifier!r} of {partition_key!r}"
        return None
