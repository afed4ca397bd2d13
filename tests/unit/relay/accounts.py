"""A container of the local Cosmos DB without a network, whose answers are the SDK's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

from azure.core import MatchConditions
from azure.cosmos._base import _format_batch_operations
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from outbox_emulators.cosmos import feed_api, items_api, query_api
from outbox_emulators.cosmos.account import Account
from outbox_emulators.cosmos.clock import Clock
from outbox_emulators.cosmos.edges import Edges
from outbox_emulators.cosmos.errors import CosmosError
from outbox_emulators.cosmos.messages import Reply, Request
from outbox_emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_emulators.cosmos.storage import IN_MEMORY
from relay.cosmos.containers import Containers

_ERRORS: dict[int, Any] = {
    404: CosmosResourceNotFoundError,
    409: CosmosResourceExistsError,
    412: CosmosAccessConditionFailedError,
}
_FAILED_DEPENDENCY = 424

Operation = tuple[str, tuple[Any, ...]]


class FakeContainer:
    """A container as the SDK's `ContainerProxy` has it, as far as the relay and its commands write and read one.

    `tests/contracts/test_containers.py` compares it with a container behind the SDK.

    Attributes:
        answers: What is raised instead of the next requests, one by one; None lets a request through.
        lags: Whether queries are answered by a replica that has seen nothing.
        batches: The number of operations of each transactional batch.
    """

    id = "quarantine"

    def __init__(self) -> None:
        self._account = Account(IN_MEMORY, Clock(), 1, Edges(None))
        provision(self._account, [ContainerSpec.parse("outbox/quarantine:/partitionKey")])
        self.answers: list[Exception | None] = []
        self.lags = False
        self.batches: list[int] = []

    @property
    def proxy(self) -> ContainerProxy:
        return cast(ContainerProxy, self)

    async def stored(self) -> list[dict[str, Any]]:
        """All items, as they were created."""
        return [item async for item in self._read(query_api.read_feed, b"")]

    def put(self, body: dict[str, Any]) -> dict[str, Any]:
        """Create an item, whatever the next answers are."""
        return _item(self._call(items_api.create_or_upsert, body["partitionKey"], _sent(body)))

    def take(self, item: str, partition_key: str) -> None:
        """Delete an item, whatever the next answers are."""
        self._call(items_api.delete, partition_key, b"", item)

    def items(self) -> list[dict[str, Any]]:
        """All items, in the order of their last changes."""
        found: list[dict[str, Any]] = []
        headers = {"a-im": "Incremental Feed", "x-ms-documentdb-partitionkeyrangeid": "0"}
        while (reply := feed_api.read_change_feed(self._account, _request(headers, b""))).status == 200:
            found += json.loads(reply.body)["Documents"]
            headers["if-none-match"] = reply.headers["etag"]
        return found

    async def create_item(self, body: dict[str, Any]) -> dict[str, Any]:
        return _item(self._send(items_api.create_or_upsert, body["partitionKey"], _sent(body)))

    async def read_item(self, item: str, partition_key: str) -> dict[str, Any]:
        return _item(self._send(items_api.read, partition_key, b"", item))

    async def patch_item(self, item: str, partition_key: str, patch_operations: list[Any]) -> dict[str, Any]:
        return _item(self._send(items_api.patch, partition_key, _sent({"operations": patch_operations}), item))

    async def delete_item(
        self,
        item: str,
        partition_key: str,
        *,
        etag: str | None = None,
        match_condition: MatchConditions | None = None,
    ) -> None:
        assert (etag is None) == (match_condition is None)
        assert match_condition in (None, MatchConditions.IfNotModified)
        condition = {} if etag is None else {"if-match": etag}
        self._send(items_api.delete, partition_key, b"", item, **condition)

    async def execute_item_batch(self, batch_operations: Sequence[Operation], partition_key: str) -> None:
        self.batches.append(len(batch_operations))
        body = _sent(_format_batch_operations(batch_operations))
        flags = dict.fromkeys(("x-ms-cosmos-is-batch-request", "x-ms-cosmos-batch-atomic"), "true")
        rows = json.loads(self._send(items_api.batch, partition_key, body, **flags).body)
        for index, row in enumerate(rows):
            if row["statusCode"] >= 400 and row["statusCode"] != _FAILED_DEPENDENCY:
                raise failed(index, row["statusCode"])

    async def query_items(
        self, query: str, parameters: list[dict[str, Any]], partition_key: str | None = None
    ) -> AsyncIterator[Any]:
        self._next_answer()
        body = _sent({"query": query, "parameters": parameters})
        async for item in self._read(query_api.query_items, body, partition_key):
            if not self.lags:
                yield item

    def _send(
        self, handle: Callable[[Account, Request], Reply], key: str, body: bytes, *item: str, **flags: str
    ) -> Reply:
        self._next_answer()
        return self._call(handle, key, body, *item, **flags)

    def _call(
        self, handle: Callable[[Account, Request], Reply], key: str, body: bytes, *item: str, **flags: str
    ) -> Reply:
        headers = {"x-ms-documentdb-partitionkey": json.dumps([key]), **flags}
        try:
            return handle(self._account, _request(headers, body, *item))
        except CosmosError as error:
            raise refusal(error.status) from error

    async def _read(self, handle: Any, body: bytes, key: str | None = None) -> AsyncIterator[Any]:
        # Of the one physical partition, a query needs no plan.
        headers = {"x-ms-documentdb-partitionkeyrangeid": "0"}
        if key is not None:
            headers = {"x-ms-documentdb-partitionkey": json.dumps([key])}
        while True:
            reply = await handle(self._account, _request(headers, body))
            for item in json.loads(reply.body)["Documents"]:
                yield item
            if "x-ms-continuation" not in reply.headers:
                return
            headers["x-ms-continuation"] = reply.headers["x-ms-continuation"]

    def _next_answer(self) -> None:
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer


class FakeContainers:
    """The database's containers, of which there is one."""

    def __init__(self, container: FakeContainer) -> None:
        self._container = container
        self.opened: list[str] = []
        self.closed = False

    @property
    def all(self) -> Containers:
        return cast(Containers, self)

    quarantine_name = "aside"

    async def quarantine(self) -> ContainerProxy:
        self.opened.append(self.quarantine_name)
        return self._container.proxy

    async def close(self) -> None:
        self.closed = True


def refusal(status: int) -> Exception:
    """What the SDK raises where a request is refused."""
    kind: Any = _ERRORS.get(status, CosmosHttpResponseError)
    return cast(Exception, kind(status_code=status, message="as the test says"))


def failed(index: int, status: int) -> Exception:
    """What the SDK raises where an operation of a batch is refused."""
    kind: Any = CosmosBatchOperationError
    return cast(Exception, kind(index, {}, status, "as the test says", []))


def _item(reply: Reply) -> dict[str, Any]:
    item: dict[str, Any] = json.loads(reply.body)
    return item


def _sent(body: Any) -> bytes:
    """As the SDK (4.17.1) writes it."""
    return json.dumps(body, separators=(",", ":")).encode()


def _request(headers: dict[str, str], body: bytes, *item: str) -> Request:
    return Request("", ("dbs", "outbox", "colls", "quarantine", "docs", *item), headers, body, "")
