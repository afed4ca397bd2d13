"""Commits events to Cosmos DB: a business document and its event in one transactional batch."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from azure.core.exceptions import AzureError
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError, CosmosResourceNotFoundError

from local.sending.event import Commit, Event, NotCommittedError
from local.sending.routed import Outbox
from outbox_relay.outbox.data_object import ID_RULE, can_be_id
from outbox_relay.outbox.execution import keep_session_token
from relay.backends.cosmos.feed import expression
from relay.config.clients import cosmos_client

# Concurrent commits of one key: each makes one of the others try again.
_ATTEMPTS = 20
_CONFLICT, _PRECONDITION_FAILED = 409, 412

Operation = tuple[str, tuple[Any, ...], dict[str, Any]]


@asynccontextmanager
async def open_cosmos(outbox: Outbox) -> AsyncIterator[CosmosWriter]:
    """A writer for the container of an outbox."""
    async with AsyncExitStack() as closing:
        client = cosmos_client(outbox.settings.in_cosmos.connection)
        closing.push_async_callback(client.close)
        try:
            await closing.enter_async_context(client)
        except AzureError as error:
            raise NotCommittedError(f"Cosmos DB does not answer: {error.message}") from error
        database = client.get_database_client(outbox.settings.in_cosmos.database)
        yield CosmosWriter(database.get_container_client(outbox.settings.in_cosmos.container), outbox)


class CosmosWriter:
    """See `writer.Writer`.

    The business document of a key has the id `sent-KEY`, or one with a digest of a key that no id can hold, the
    fields of its last event, and that event's number. It is replaced on condition of its ETag, so that the numbers
    have no gap and follow the order of the commits. An outbox whose rules would take it for an event gets none.
    """

    def __init__(self, container: ContainerProxy, outbox: Outbox) -> None:
        self._container = container
        self._outbox = outbox
        self._fields = outbox.settings.selection.fields

    async def commit(self, event: Event, /) -> Commit:
        if not can_be_id(event.id):
            raise NotCommittedError(f"The id '{event.id}' {ID_RULE}: give another --id.")
        for _ in range(_ATTEMPTS):
            try:
                stored = await self._stored(event.partition_key)
                last = await self._last(event.partition_key) if stored is None else stored["sequence"]
                sequence = int(last or 0) + 1
                made = self._outbox.made(event, sequence)
                results = await self._container.execute_item_batch(
                    [*self._save(event, sequence, stored), ("create", (made.stored,), {})],
                    partition_key=event.partition_key,
                )
            except CosmosBatchOperationError as error:
                if error.status_code not in (_CONFLICT, _PRECONDITION_FAILED):
                    raise NotCommittedError(f"Cosmos DB refused the event: {error.message}") from error
                keep_session_token(self._container, error.headers)
                found = await self._stored_event(event)
                if found is not None:
                    return found
            except CosmosHttpResponseError as error:
                raise NotCommittedError(f"Cosmos DB refused the event: {error.message}") from error
            except AzureError as error:
                raise NotCommittedError(f"Cosmos DB does not answer: {error.message}") from error
            else:
                keep_session_token(self._container, results.get_response_headers())
                return Commit(made.document, sequence)
        raise NotCommittedError(f"Others keep committing events of {event.partition_key}: try again.")

    async def _stored(self, key: str) -> dict[str, Any] | None:
        try:
            return dict(await self._container.read_item(_id(key), key))
        except CosmosResourceNotFoundError:
            return None

    async def _last(self, key: str) -> int | None:
        """Return the number of the key's last event; other writers may have numbered some."""
        place = expression(self._fields.of_document("sequence")[0])
        query = f"SELECT VALUE MAX({place}) FROM c"
        found = [last async for last in self._container.query_items(query, partition_key=key)]
        return found[0] if found and isinstance(found[0], int) else None

    async def _stored_event(self, event: Event) -> Commit | None:
        """Return the event if it is stored, as when the response to an attempt was lost, or else None.

        Raises:
            NotCommittedError: Another event has its id.
        """
        try:
            stored = await self._container.read_item(event.id, event.partition_key)
        except CosmosResourceNotFoundError:
            return None
        document = self._fields.document(stored)
        if document.created_at != event.created_at:
            raise NotCommittedError(f"There is an event '{event.id}' already: give another --id.")
        return Commit(document, int(document.fields["sequence"]))

    def _save(self, event: Event, sequence: int, stored: Mapping[str, Any] | None) -> list[Operation]:
        """Return the operation that stores the business document, or none."""
        document: dict[str, Any] = {
            "id": _id(event.partition_key),
            "type": "sent",
            "data": dict(event.fields),
            "sequence": sequence,
        }
        holder = document
        *way, last = self._fields.of_document("key")[0].names
        for name in way:
            holder = holder.setdefault(name, {})
        holder[last] = event.partition_key
        if self._outbox.taker(self._fields.document(document)) is not None:
            return []
        if stored is None:
            return [("create", (document,), {})]
        return [("replace", (document["id"], document), {"if_match_etag": stored["_etag"]})]


def _id(key: str) -> str:
    """Return the id of a key's business document."""
    identifier = f"sent-{key}"
    if can_be_id(identifier):
        return identifier
    return f"sent-{hashlib.sha256(key.encode(errors='surrogatepass')).hexdigest()}"
