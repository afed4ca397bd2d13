"""The requests of the store of items to its container, and its reading of the service's refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
from azure.core.exceptions import ServiceRequestError
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.quarantine import CosmosItems, clause
from relay.core.errors import StoreError
from relay.quarantine.items import (
    BatchFailed,
    Delete,
    Filter,
    ItemChanged,
    ItemExists,
    ItemNotFound,
    Items,
    ItemTooLarge,
)
from tests.support.stores import items_in
from tests.unit.relay.test_containers import SETTINGS, Account

SERVICE = [401, 403, 429, 503]


class Container:
    """A container whose every request ends alike.

    Attributes:
        read: How many rows of queries were taken.
    """

    id = "aside"

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        async def request(*_: Any, **__: Any) -> None:
            assert self._error is not None
            raise self._error

        return request

    async def query_items(self, query: str, **_: Any) -> AsyncIterator[dict[str, Any]]:
        if self._error is not None:
            raise self._error
        for number in range(5):
            self.read += 1
            yield {
                "id": str(number),
                "partitionKey": "k",
                "reason": "set-aside",
                "detail": "",
                "quarantinedAt": "",
                "position": 0,
                "invocationId": "",
            }

    @property
    def items(self) -> CosmosItems:
        return items_in(cast(ContainerProxy, self))


def refusal(status: int) -> CosmosHttpResponseError:
    kind: Any = CosmosHttpResponseError
    error: CosmosHttpResponseError = kind(status_code=status, message="as the test says\nand more")
    return error


def refused_in_batch(index: int, status: int) -> Exception:
    kind: Any = CosmosBatchOperationError
    return cast(Exception, kind(index, {}, status, "as the test says", []))


REQUESTS: dict[str, Callable[[Items], Awaitable[object]]] = {
    "create": lambda items: items.create({"id": "a", "partitionKey": "k"}),
    "read": lambda items: items.read("a", "k"),
    "delete": lambda items: items.delete("a", "k"),
    "touch": lambda items: items.touch("a", "k"),
    "query": lambda items: items.holds(),
}


@pytest.mark.parametrize(
    ("name", "refusals"),
    [
        ("create", {400: ItemTooLarge, 413: ItemTooLarge, 409: ItemExists, 404: StoreError, 412: StoreError}),
        ("read", {404: ItemNotFound, 400: StoreError, 409: StoreError}),
        ("delete", {404: ItemNotFound, 412: ItemChanged, 400: StoreError}),
        ("touch", {404: ItemNotFound, 400: StoreError, 412: StoreError, 413: StoreError}),
        ("query", {404: StoreError, 400: StoreError}),
    ],
)
async def test_a_status_says_what_is_wrong_with_the_item_or_with_the_service(
    name: str, refusals: dict[int, type[StoreError]]
) -> None:
    for status, kind in {**refusals, **dict.fromkeys(SERVICE, StoreError)}.items():
        error = refusal(status)
        with pytest.raises(StoreError) as raised:
            await REQUESTS[name](Container(error).items)
        assert (type(raised.value), raised.value.__cause__) == (kind, error)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, ItemTooLarge), (413, ItemTooLarge), (409, ItemExists), (404, ItemNotFound)]
)
async def test_a_batch_names_the_operation_that_was_refused(status: int, kind: type[StoreError]) -> None:
    with pytest.raises(BatchFailed) as raised:
        await Container(refused_in_batch(3, status)).items.batch("k", [Delete("a")])

    assert (raised.value.index, type(raised.value.error)) == (3, kind)


@pytest.mark.parametrize(("status", "kind"), [(400, ItemTooLarge), (413, ItemTooLarge), (409, ItemExists)])
async def test_a_batch_that_is_refused_as_a_whole_names_no_operation(status: int, kind: type[StoreError]) -> None:
    with pytest.raises(BatchFailed) as raised:
        await Container(refusal(status)).items.batch("k", [Delete("a")])

    assert (raised.value.index, type(raised.value.error)) == (None, kind)


@pytest.mark.parametrize(
    "error",
    [
        *(refusal(status) for status in (*SERVICE, 404, 412)),
        *(refused_in_batch(0, status) for status in SERVICE),
        ServiceRequestError("no route"),
    ],
)
async def test_what_has_nothing_to_do_with_an_operation_is_no_failure_of_the_batch(error: Exception) -> None:
    with pytest.raises(StoreError) as raised:
        await Container(error).items.batch("k", [Delete("a")])

    assert not isinstance(raised.value, BatchFailed)
    assert raised.value.__cause__ is error


async def test_an_error_names_the_container_and_what_to_check_in_one_line() -> None:
    with pytest.raises(StoreError) as raised:
        await Container(refusal(403)).items.read("a", "k")

    said = str(raised.value)
    assert said.startswith("the container 'aside' cannot be read or written: CosmosHttpResponseError: ")
    assert "Check COSMOS" in said
    assert "\n" not in said


async def test_an_account_that_cannot_be_reached_is_an_error_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account()
    account.refuses = refusal(404)
    monkeypatch.setattr("relay.backends.cosmos.containers.cosmos_client", account.client)
    items = CosmosItems(Containers(SETTINGS.in_cosmos))

    for request in REQUESTS.values():
        with pytest.raises(StoreError) as raised:
            await request(items)
        assert type(raised.value) is StoreError

    await items.close()
    assert account.open == 0


async def test_the_account_is_connected_once_and_only_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account()
    account.containers["quarantine"] = Container()
    monkeypatch.setattr("relay.backends.cosmos.containers.cosmos_client", account.client)
    items = CosmosItems(Containers(SETTINGS.in_cosmos))
    assert account.opened == 0

    for _ in range(2):
        await items.summaries(Filter())
    await items.close()

    assert (account.opened, account.open) == (1, 0)


async def test_a_store_without_a_connection_can_be_closed() -> None:
    await CosmosItems(Containers(SETTINGS.in_cosmos)).close()


async def test_no_more_rows_are_read_than_are_asked_for() -> None:
    container = Container()

    summaries = await container.items.summaries(Filter(), limit=2)

    assert ([each.id for each in summaries], container.read) == (["0", "1"], 2)


@pytest.mark.parametrize(
    ("chosen", "where", "values"),
    [
        (Filter(), " WHERE c.type = @type", ["quarantinedEvent"]),
        (
            Filter(reason="set-aside"),
            " WHERE c.type = @type AND c.reason = @reason",
            ["quarantinedEvent", "set-aside"],
        ),
        (
            Filter("set-aside", ""),
            " WHERE c.type = @type AND c.reason = @reason AND c.partitionKey = @partitionKey",
            ["quarantinedEvent", "set-aside", ""],
        ),
    ],
)
def test_a_filter_asks_for_what_was_chosen(chosen: Filter, where: str, values: list[str]) -> None:
    made, parameters = clause(chosen)

    assert (made, list(parameters.values())) == (where, values)
    assert all(f"@{name}" in made for name in parameters)
