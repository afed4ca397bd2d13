"""A store in a container of Cosmos DB: the effect and its record are one transactional batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from outbox_relay.inbox.errors import BatchTooLarge, Conflict, DeadLetter
from outbox_relay.inbox.messages import Message
from outbox_relay.inbox.stores.cosmos_parking import CosmosParking
from outbox_relay.inbox.stores.port import Arrival, ArrivalIn, Blocks, Gap, Identity, Step, advance, entity_of

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

MAX_OPERATIONS = 100
MAX_BYTES = 2 * 1024 * 1024
"""Limits of a transactional batch: https://learn.microsoft.com/azure/cosmos-db/transactional-batch#limitations."""

HANDLED, PROGRESS, GAP = "inboxHandled", "inboxProgress", "inboxGap"
"""The property `type` of the store's documents."""

MAX_SEQUENCE = 2**53 - 1
"""The largest number that JSON has exactly in Cosmos DB, whose numbers are IEEE 754 doubles."""

_MISSING, _EXISTS, _CHANGED = 404, 409, 412

Partition: TypeAlias = str | int | float | bool | Sequence[str | int | float | bool | None]
_SdkOperation: TypeAlias = tuple[str, tuple[Any, ...], dict[str, Any]]
_Document: TypeAlias = dict[str, Any]


class CosmosBatch:
    """The writes of a `once` block, all or nothing, executed when the block ends.

    Attributes:
        partition: The value of the partition key of everything that it writes.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.operations: list[_SdkOperation] = []

    def create(self, document: _Document) -> None:
        """Create a document, which must be new."""
        self.operations.append(("create", (document,), {}))

    def upsert(self, document: _Document) -> None:
        """Create or replace a document."""
        self.operations.append(("upsert", (document,), {}))

    def replace(self, document: _Document, *, etag: str | None = None) -> None:
        """Replace a document, if it still has this ETag: pass the `_etag` of what was read."""
        self.operations.append(("replace", (document["id"], document), _if_match(etag)))

    def patch(
        self,
        identifier: str,
        changes: Sequence[_Document],
        *,
        etag: str | None = None,
        condition: str | None = None,
    ) -> None:
        """Change a document in place.

        Args:
            identifier: The document's id.
            changes: Such as `{"op": "incr", "path": "/times", "value": 1}`.
            etag: The document must still have this ETag.
            condition: A filter that it must meet, such as `from c where c.open`.
        """
        options = _if_match(etag) if condition is None else {**_if_match(etag), "filter_predicate": condition}
        self.operations.append(("patch", (identifier, list(changes)), options))

    def delete(self, identifier: str, *, etag: str | None = None) -> None:
        """Delete a document, if it still has this ETag."""
        self.operations.append(("delete", (identifier,), _if_match(etag)))


@dataclass(frozen=True, slots=True)
class _Progress:
    """The document of an entity's progress as it was read; no ETag if there is none."""

    document: _Document
    etag: str | None
    step: Step
    closed: _Document | None = None


class CosmosStore(CosmosParking):
    """A store in a Cosmos DB container.

    The operations that a block of `once` adds to `arrival.connection` are written with the message, or not at all:
    they are one transactional batch, so they have one partition key.

    Reads within the block go through the container. A document that was read is replaced with its ETag, since
    nothing is locked: of two deliveries that are handled at the same time, the second to end raises `Conflict`.
    The account's consistency is session or stronger.

    A parked key is in the logical partition of its own name, so its discarded messages are skipped by `once` only
    with the default `partition`.

    Args:
        container: Of azure.cosmos.aio. The store's documents are in it, beside those of the handler, and have the
            property `type`: `inboxHandled`, `inboxProgress`, `inboxGap`, `inboxParkedKey` or `inboxParked`.
        consumer: The consumer's name, if several share a container.
        ttl_s: Seconds after which Cosmos DB deletes the record of a message, if the container has time to live
            turned on; see `forget` about how long it is needed.
    """

    def __init__(self, container: ContainerProxy, *, consumer: str = "default", ttl_s: int | None = None) -> None:
        if not consumer:
            raise ValueError("consumer is empty: write a name.")
        if ttl_s is not None and ttl_s < 1:
            raise ValueError(f"ttl_s is {ttl_s} seconds; it must be 1 or more.")
        self._container = container
        self._consumer = consumer
        self._ttl = {} if ttl_s is None else {"ttl": ttl_s}
        self._blocks = Blocks()
        self._paths: list[list[str]] | None = None

    @asynccontextmanager
    async def once(
        self, message: Message, *, entity: str | None = None, partition: Partition | None = None
    ) -> AsyncIterator[ArrivalIn[CosmosBatch]]:
        """See `Store.once`. What is added to `arrival.connection` is written when the block ends.

        Args:
            message: The message.
            entity: As in `Store.once`.
            partition: The value of the partition key of what the handler writes; by default the message's key. All
                deliveries of a message must have the same.

        Raises:
            DeadLetter: As in `Store.once`; also if the sequence is beyond ±(2^53 - 1) (`invalid-sequence`).
            Conflict: Another delivery of the message, or another event of its entity, was handled meanwhile.
                Nothing is written. Let it pass: the message is delivered again.
            BatchTooLarge: There are more than 100 operations, or more than 2 MB.
            CosmosBatchOperationError: An operation of the handler has failed. Nothing is written.
        """
        event, counted = Identity.of(message), entity_of(message, entity)
        batch = CosmosBatch(message.key if partition is None else partition)
        with self._blocks.enter():
            note = await self._note(event, batch.partition)
            if await self._read(note["id"], batch.partition) is not None:
                yield ArrivalIn.of(Arrival(first=False), batch)
                return
            progress = None
            if message.sequence is not None:
                progress = await self._advance(event, counted, message.sequence, batch.partition)
            arrival = Arrival(first=True) if progress is None else progress.step.arrival
            yield ArrivalIn.of(arrival, batch)
            recording: list[_SdkOperation] = [("create", (note,), {})]
            if progress is not None:
                recording += await self._writing(progress, batch.partition)
            await self._execute(recording, batch)

    async def gaps(self) -> list[Gap]:
        """See `Store.gaps`. It queries all partitions."""
        query = "SELECT * FROM c WHERE c.type = @type AND c.consumer = @name"
        found = [
            Gap(each["entity"], each["first"], each["last"], each["key"], each["topic"])
            async for each in self._container.query_items(query, parameters=self._of(GAP))
        ]
        return sorted(found, key=lambda gap: (gap.entity, gap.key or "", gap.topic or "", gap.first))

    async def forget(self, older_than: timedelta) -> int:
        """See `Store.forget`. It queries all partitions, and deletes one by one: `ttl_s` is cheaper."""
        limit = (datetime.now(UTC) - older_than).timestamp()
        query = "SELECT * FROM c WHERE c.type = @type AND c.consumer = @name AND c._ts < @limit"
        parameters: list[dict[str, object]] = [*self._of(HANDLED), {"name": "@limit", "value": limit}]
        forgotten = 0
        async for each in self._container.query_items(query, parameters=parameters):
            forgotten += await self._delete(each)
        return forgotten

    async def _delete(self, document: _Document) -> int:
        from azure.cosmos.exceptions import CosmosResourceNotFoundError

        values = [_member(document, path) for path in await self._partition_paths()]
        try:
            await self._container.delete_item(document["id"], values[0] if len(values) == 1 else values)
        except CosmosResourceNotFoundError:
            return 0
        return 1

    async def _advance(self, event: Identity, entity: str, sequence: int, partition: Partition) -> _Progress:
        identifier = _id(PROGRESS, self._consumer, event.topic, event.key, entity)
        stored = await self._read(identifier, partition)
        last = None if stored is None else stored["last"]
        gap = None
        if abs(sequence) > MAX_SEQUENCE:
            raise DeadLetter("invalid-sequence", "The sequence is beyond ±(2^53 - 1).")
        if last is not None and sequence <= last:
            gap = await self._gap_around(identifier, sequence, partition)
        step = advance(last, None if gap is None else range(gap["first"], gap["last"] + 1), sequence)
        document = {
            "id": identifier,
            "type": PROGRESS,
            "consumer": self._consumer,
            "topic": event.topic,
            "key": event.key,
            "entity": entity,
            "last": step.last,
        }
        etag = None if stored is None else stored["_etag"]
        return _Progress(document, etag, step, gap)

    async def _gap_around(self, progress: str, sequence: int, partition: Partition) -> _Document | None:
        query = (
            "SELECT TOP 1 * FROM c WHERE c.type = @type AND c.progress = @progress AND c.first <= @number"
            " ORDER BY c.first DESC"
        )
        parameters: list[dict[str, object]] = [
            {"name": "@type", "value": GAP},
            {"name": "@progress", "value": progress},
            {"name": "@number", "value": sequence},
        ]
        key: Any = partition
        found = self._container.query_items(query, parameters=parameters, partition_key=key)
        async for each in found:
            return each if sequence <= each["last"] else None
        return None

    async def _writing(self, progress: _Progress, partition: Partition) -> list[_SdkOperation]:
        """Return the operations that record the progress.

        Its ETag guards the gaps, so it is written with each change.
        """
        document = await self._placed(progress.document, partition)
        first: _SdkOperation = ("create", (document,), {})
        if progress.etag is not None:
            first = ("replace", (document["id"], document), _if_match(progress.etag))
        operations = [first]
        if progress.closed is not None:
            operations.append(("delete", (progress.closed["id"],), _if_match(progress.closed["_etag"])))
        for opened in progress.step.opened:
            gap = {
                **document,
                "id": f"{GAP}-{document['id']}-{opened.start}",
                "type": GAP,
                "progress": document["id"],
                "first": opened.start,
                "last": opened.stop - 1,
            }
            # The first part of a gap that is divided takes the place of the whole.
            operations.append(("upsert", (gap,), {}))
        return operations

    async def _execute(self, recording: list[_SdkOperation], batch: CosmosBatch) -> None:
        from azure.cosmos.exceptions import CosmosBatchOperationError

        operations = [*recording, *batch.operations]
        size = sum(len(json.dumps(each, separators=(",", ":"))) for each in operations)
        if len(operations) > MAX_OPERATIONS or size > MAX_BYTES:
            raise BatchTooLarge(
                f"The block and its record have {len(operations)} operations and about {size} bytes; a batch "
                f"takes {MAX_OPERATIONS} and {MAX_BYTES}. Write less in one block: put several changes into one "
                "document, or what is large into another place before the block."
            )
        try:
            done = await self._container.execute_item_batch(operations, partition_key=batch.partition)
        except CosmosBatchOperationError as error:
            self._keep_session_token(error.headers)
            index = error.error_index
            refused = error.status_code in (_MISSING, _EXISTS, _CHANGED)
            if refused and index is not None and index < len(recording):
                what = "the message" if index == 0 else "another event of its entity"
                raise Conflict(f"Another delivery has handled {what} meanwhile.") from error
            raise
        self._keep_session_token(done.get_response_headers())

    async def _note(self, event: Identity, partition: Partition) -> _Document:
        note = {
            "id": _id(HANDLED, self._consumer, event.topic, event.key, event.id),
            "type": HANDLED,
            "consumer": self._consumer,
            "topic": event.topic,
            "key": event.key,
            "messageId": event.id,
            **self._ttl,
        }
        return await self._placed(note, partition)

    async def _placed(self, document: _Document, partition: Partition) -> _Document:
        """Return a document with the properties of the partition key, and that never expires unless it says so.

        A default time to live of the container is for the handlers' documents.
        """
        paths = await self._partition_paths()
        several = isinstance(partition, Sequence) and not isinstance(partition, str)
        values: Sequence[Any] = partition if several else [partition]  # type: ignore[assignment]
        if len(values) != len(paths):
            raise ValueError(f"The partition key has {len(paths)} parts; pass as many as `partition` to `once`.")
        placed = {"ttl": -1, **document}
        for path, value in zip(paths, values, strict=True):
            inner = placed
            for name in path[:-1]:
                inner = inner.setdefault(name, {})
            if inner.setdefault(path[-1], value) != value:
                raise ValueError(
                    f"The partition key is /{'/'.join(path)}, a property of the store's own documents, and is not "
                    "what they have there: use a container with another partition key."
                )
        return placed

    async def _read(self, identifier: str, partition: Partition) -> _Document | None:
        from azure.cosmos.exceptions import CosmosResourceNotFoundError

        try:
            return await self._container.read_item(identifier, partition)
        except CosmosResourceNotFoundError:
            return None

    def _keep_session_token(self, headers: Mapping[str, Any]) -> None:
        """Make the client's later reads see this state.

        azure-cosmos 4.17.1 does not keep the token in the answer to a batch, so the next read may come from a
        replica that lags, and its batch would be refused. Its store of tokens is private.
        """
        from azure.core.utils import CaseInsensitiveDict

        connection: Any = self._container.client_connection
        properties = connection._container_properties_cache.get(self._container.container_link)
        if connection.session is not None and properties is not None:
            named = CaseInsensitiveDict({**headers, "x-ms-alt-content-path": self._container.container_link})
            connection.session.update_session(connection, {"_self": properties["_self"]}, named)

    async def _partition_paths(self) -> list[list[str]]:
        if self._paths is None:
            properties = await self._container.read()
            self._paths = [path.strip("/").split("/") for path in properties["partitionKey"]["paths"]]
        return self._paths

    def _identifier(self, kind: str, *parts: str) -> str:
        return _id(kind, *parts)

    def _of(self, kind: str) -> list[dict[str, object]]:
        return [{"name": "@type", "value": kind}, {"name": "@name", "value": self._consumer}]


def _id(kind: str, *parts: str) -> str:
    """Return an id for any parts, which may be long and contain characters that an id must not.

    SHA-256 of the parts, each as its number of bytes in decimal digits, a colon, and its UTF-8.
    """
    encoded = [part.encode() for part in parts]
    return f"{kind}-{hashlib.sha256(b''.join(b'%d:%s' % (len(each), each) for each in encoded)).hexdigest()}"


def _if_match(etag: str | None) -> dict[str, Any]:
    return {} if etag is None else {"if_match_etag": etag}


def _member(document: _Document, path: list[str]) -> Any:
    value: Any = document
    for name in path:
        value = value[name]
    return value
