"""A container of the local Cosmos DB without a network, whose answers are the SDK's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from azure.cosmos.exceptions import (
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from outbox_relay.emulators.cosmos import feed_api, items_api
from outbox_relay.emulators.cosmos.account import Account
from outbox_relay.emulators.cosmos.clock import Clock
from outbox_relay.emulators.cosmos.edges import Edges
from outbox_relay.emulators.cosmos.errors import CosmosError
from outbox_relay.emulators.cosmos.messages import Reply, Request
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.storage import IN_MEMORY

_ERRORS: dict[int, Any] = {404: CosmosResourceNotFoundError, 409: CosmosResourceExistsError}


class FakeContainer:
    """The outbox container as the SDK's `ContainerProxy` has it, as far as `relay smoke` writes it."""

    id = "data"

    def __init__(self) -> None:
        self._account = Account(IN_MEMORY, Clock(), 1, Edges(None))
        provision(self._account, [ContainerSpec.parse("outbox/data:/partitionKey")])

    def close(self) -> None:
        """Close the account, with its database."""
        self._account.close()

    def items(self) -> list[dict[str, Any]]:
        """All items, in the order of their last changes."""
        found: list[dict[str, Any]] = []
        headers = {"a-im": "Incremental Feed", "x-ms-documentdb-partitionkeyrangeid": "0"}
        while (reply := feed_api.read_change_feed(self._account, _request(headers, b""))).status == 200:
            found += json.loads(reply.body)["Documents"]
            headers["if-none-match"] = reply.headers["etag"]
        return found

    async def create_item(self, body: dict[str, Any]) -> dict[str, Any]:
        return _item(self._call(items_api.create_or_upsert, body["partitionKey"], _sent(body)))

    async def delete_item(self, item: str, partition_key: str) -> None:
        self._call(items_api.delete, partition_key, b"", item)

    def _call(
        self, handle: Callable[[Account, Request], Reply], key: str, body: bytes, *item: str, **flags: str
    ) -> Reply:
        headers = {"x-ms-documentdb-partitionkey": json.dumps([key]), **flags}
        try:
            return handle(self._account, _request(headers, body, *item))
        except CosmosError as error:
            kind: Any = _ERRORS.get(error.status, CosmosHttpResponseError)
            raise kind(status_code=error.status, message="as the emulator says") from error


def _item(reply: Reply) -> dict[str, Any]:
    item: dict[str, Any] = json.loads(reply.body)
    return item


def _sent(body: Any) -> bytes:
    """Return a body as the SDK (4.17.1) writes it."""
    return json.dumps(body, separators=(",", ":")).encode()


def _request(headers: dict[str, str], body: bytes, *item: str) -> Request:
    return Request("", ("dbs", "outbox", "colls", "data", "docs", *item), headers, body, "")
