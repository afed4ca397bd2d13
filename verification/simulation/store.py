"""The quarantine's store, which all processes share, behind a line: the one of the tests, with its contract."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from relay.core.errors import StoreError
from relay.core.holds import Holds
from relay.quarantine.items import Create, Filter, Item, Operation, RecordSummary, Stored
from tests.support.in_memory_items import InMemoryItems
from verification.simulation.channel import LineError, RpcChannel

T = TypeVar("T")


def _now(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("an operation of the store in memory waits for something")


class SimulatedItems:
    """An `Items` of one process."""

    def __init__(self, line: RpcChannel, store: InMemoryItems) -> None:
        self._line = line
        self._store = store

    async def _ask(self, operation: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, **more: Any) -> T:
        try:
            return await self._line.ask(partial(_carry_out, operation, arguments, more))
        except LineError as error:
            raise StoreError(f"the quarantine cannot be reached: {error}") from None

    async def create(self, item: Item, /) -> None:
        await self._ask(self._store.create, item)

    async def read(self, identifier: str, partition_key: str, /) -> Stored:
        return await self._ask(self._store.read, identifier, partition_key)

    async def delete(self, identifier: str, partition_key: str, /, *, etag: str | None = None) -> None:
        await self._ask(self._store.delete, identifier, partition_key, etag=etag)

    async def touch(self, identifier: str, partition_key: str, /) -> None:
        await self._ask(self._store.touch, identifier, partition_key)

    async def batch(self, partition_key: str, operations: Sequence[Operation], /) -> None:
        await self._ask(self._store.batch, partition_key, operations)

    async def holds(self) -> Holds:
        return await self._ask(self._store.holds)

    async def count(self, chosen: Filter, /) -> int:
        return await self._ask(self._store.count, chosen)

    async def summaries(self, chosen: Filter, /, limit: int | None = None) -> list[RecordSummary]:
        return await self._ask(self._store.summaries, chosen, limit)

    async def summaries_by_id(self, beginning: str, /) -> list[RecordSummary]:
        return await self._ask(self._store.summaries_by_id, beginning)

    async def of_type(
        self, item_type: str, /, partition_key: str | None = None, *, since: str | None = None
    ) -> list[Item]:
        return await self._ask(self._store.of_type, item_type, partition_key, since=since)

    async def close(self) -> None:
        pass


def _carry_out(operation: Callable[..., Coroutine[Any, Any, T]], arguments: Any, more: Any) -> T:
    return _now(operation(*arguments, **more))


class NotedItems(InMemoryItems):
    """The store itself: what is written to it is noted."""

    def __init__(self, noted: Callable[[bool, str, Item], None]) -> None:
        """Create the items.

        `noted` gets whether an item was created or deleted, its partition key, and the item.
        """
        super().__init__()
        self._noted = noted

    async def create(self, item: Item, /) -> None:
        await super().create(item)
        self._noted(True, item["partitionKey"], item)

    async def delete(self, identifier: str, partition_key: str, /, *, etag: str | None = None) -> None:
        item = (await self.read(identifier, partition_key)).item
        await super().delete(identifier, partition_key, etag=etag)
        self._noted(False, partition_key, item)

    async def batch(self, partition_key: str, operations: Sequence[Operation], /) -> None:
        before = {item["id"]: item for item in self.stored if item["partitionKey"] == partition_key}
        await super().batch(partition_key, operations)
        after = {item["id"] for item in self.stored if item["partitionKey"] == partition_key}
        for identifier, item in before.items():
            if identifier not in after:
                self._noted(False, partition_key, item)
        for operation in operations:
            if isinstance(operation, Create):
                self._noted(True, partition_key, operation.item)
