"""Stores the documents of a parked key: in their order, and only while the key is parked.

Each transactional batch touches the key's marker and creates records. A release removes the marker with If-Match,
so of a batch and a release at the same time one fails: no record can be left behind in a key that is not parked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relay.cosmos import holds
from relay.cosmos.quarantine_record import DOES_NOT_FIT, in_parts

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

Record = Mapping[str, Any]

# A batch has 100 operations and 2 MB at most; its answer, which repeats the records, is limited too.
# https://learn.microsoft.com/azure/cosmos-db/transactional-batch#limitations
_RECORDS = 99
_BYTES = 1_000_000

_NOT_FOUND = 404
_CONFLICT = 409


class NotParked(Exception):
    """The key was released in the meantime: its events are to be published again."""


@dataclass(frozen=True, slots=True)
class ParkedKey:
    """One key's part of the quarantine container.

    Attributes:
        container: The quarantine container.
        partition_key: The key.
        stored: Is given each record that is new.
    """

    container: ContainerProxy
    partition_key: str
    stored: Callable[[Record], None]

    async def store(self, records: Sequence[Record], *, parks: bool) -> None:
        """Store records in order; those that an earlier attempt has stored stay as they are.

        Args:
            records: The records, in order of arrival.
            parks: Whether the first of them parks the key where it is not parked yet.

        Raises:
            NotParked: The key is not parked, or no longer, and these records do not park it.
            azure.core.exceptions.AzureError: The container cannot be written.
        """
        marker = holds.marker(self.partition_key, records[0]["id"]) if parks else None
        for chunk in _chunks(records):
            await self._store(chunk, marker)
            marker = None

    async def _store(self, records: Sequence[Record], marker: Record | None) -> None:
        """All of them in one batch, with the marker where it has to be created; else each by itself."""
        refusal = await self._batch(records, marker)
        if refusal is None:
            for record in records:
                self.stored(record)
        elif len(records) > 1:
            for record in records:
                await self._store([record], marker)
                marker = None
        elif refusal == _CONFLICT:
            # The record is there already. In another mode it was stored without parking its key.
            await self._batch([], marker)
        else:
            await self._store([await in_parts(self.container, records[0])], marker)

    async def _batch(self, records: Sequence[Record], marker: Record | None) -> int | None:
        """Returns None where it was stored; the status where a record is there already, or does not fit."""
        from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

        guard = holds.touch() if marker is None else ("create", (dict(marker),))
        creates = [("create", (dict(record),)) for record in records]
        try:
            await self.container.execute_item_batch([guard, *creates], partition_key=self.partition_key)
        except CosmosBatchOperationError as error:
            if error.error_index == 0 and error.status_code == _CONFLICT:
                return await self._batch(records, None)
            if error.error_index == 0 and error.status_code == _NOT_FOUND:
                raise NotParked from error
            if error.error_index == 0 or not _concerns_a_record(error.status_code, records):
                raise
            return error.status_code
        except CosmosHttpResponseError as error:
            if not _concerns_a_record(error.status_code, records):
                raise
            return error.status_code
        return None


def _concerns_a_record(status: int | None, records: Sequence[Record]) -> bool:
    """Whether storing each record by itself, or in parts, can help."""
    if status == _CONFLICT:
        return True
    return status in DOES_NOT_FIT and (len(records) > 1 or any("document" in record for record in records))


def _chunks(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Records as they fit into batches, in order; one that is too large has a batch of its own."""
    chunk: list[Record] = []
    size = 0
    for record in records:
        # As the SDK (4.17.1) sends it: all but ASCII escaped.
        length = len(json.dumps(record))
        if chunk and (len(chunk) == _RECORDS or size + length > _BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(record)
        size += length
    if chunk:
        yield chunk
