"""An account and a namespace in memory, as far as `check` reads them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from azure.core.async_paging import AsyncItemPaged, AsyncList
from azure.servicebus.management import EntityStatus, SubscriptionProperties, TopicProperties

T = TypeVar("T")


def answer(value: Any) -> Any:
    """The value, or the error, that a service answers."""
    if isinstance(value, Exception):
        raise value
    return value


class Account:
    """An account with one database; each container's answers by its name.

    Attributes:
        refuses: What is raised instead of opening a client.
        database: What the database says of itself.
        containers: What each container says of itself.
        items: What is read of each container, by a query or of its change feed.
        ranges: The physical partitions of each container.
        read_from: Where each reading of a change feed began.
        closed: How often its client was closed.
    """

    def __init__(self) -> None:
        self.refuses: Exception | None = None
        self.database: Any = {}
        self.containers: dict[str, Any] = {
            "data": {"partitionKey": {"paths": ["/partitionKey"]}, "defaultTtl": -1, "_rid": "coll"},
            "leases": {"partitionKey": {"paths": ["/id"]}, "defaultTtl": -1},
            "quarantine": {"partitionKey": {"paths": ["/partitionKey"]}},
        }
        self.items: dict[str, Any] = {"data": [], "leases": [], "quarantine": []}
        self.ranges: list[tuple[str, str]] = [("", "FF")]
        self.read_from: list[dict[str, Any]] = []
        self.reads_any_length = False
        self.closed = 0

    async def __aenter__(self) -> Account:
        answer(self.refuses)
        return self

    async def close(self) -> None:
        self.closed += 1

    def get_database_client(self, name: str) -> Account:
        assert name == "outbox"
        return self

    async def read(self) -> Any:
        return answer(self.database)

    def get_container_client(self, name: str) -> Any:
        return _Container(self, name)


class _Container:
    def __init__(self, account: Account, name: str) -> None:
        self._account = account
        self.id = name
        self.client_connection = SimpleNamespace(url_connection="https://host.test:443/")

    async def read(self) -> Any:
        return answer(self._account.containers[self.id])

    async def read_feed_ranges(self) -> AsyncIterator[dict[str, Any]]:
        for minimum, maximum in self._account.ranges:
            yield {"Range": {"min": minimum, "max": maximum}}

    async def query_items(
        self, query: str, parameters: Sequence[Mapping[str, str]] = (), **_: Any
    ) -> AsyncIterator[Any]:
        (own,) = [each["value"] for each in parameters if each["name"] == "@own"] or [""]
        for item in answer(self._account.items[self.id]):
            if item["id"].startswith(own) and item["id"].endswith(".lock") is (".lock" in query):
                yield item

    def query_items_change_feed(self, **options: Any) -> AsyncItemPaged[Any]:
        self._account.read_from.append(options)
        self._account.reads_any_length = sys.get_int_max_str_digits() == 0
        return AsyncItemPaged(self._page, self._items_of)

    async def _page(self, _: str | None) -> list[Any]:
        return list(self._account.items[self.id])

    async def _items_of(self, page: list[Any]) -> tuple[None, AsyncIterator[Any]]:
        return None, AsyncList(page)


def _properties(kind: type[T], name: str, members: Mapping[str, Any]) -> T:
    """An entity of which the service reports these members alone."""
    unreported = dict.fromkeys(list(inspect.signature(kind).parameters)[1:])
    return kind(name, **{**unreported, **members})  # type: ignore[call-arg]


def topic_properties(**changes: Any) -> TopicProperties:
    """A topic as it should be."""
    sound = {
        "status": EntityStatus.ACTIVE,
        "requires_duplicate_detection": True,
        "duplicate_detection_history_time_window": timedelta(minutes=10),
        "enable_partitioning": True,
        "default_message_time_to_live": timedelta(days=14),
    }
    return _properties(TopicProperties, "domain-events", sound | changes)


def subscription_properties(name: str = "all", **changes: Any) -> SubscriptionProperties:
    """A subscription as it should be."""
    sound = {
        "status": "Active",
        "requires_session": True,
        "dead_lettering_on_message_expiration": True,
        "default_message_time_to_live": "P14D",
    }
    return _properties(SubscriptionProperties, name, sound | changes)


class Namespace:
    """A namespace: what the management endpoint says, and what opening a link does."""

    def __init__(self) -> None:
        self.topic: Any = topic_properties(duplicate_detection_history_time_window="PT10M")
        self.subscriptions: Any = [subscription_properties()]
        self.link: Any = 262_144

    async def __aenter__(self) -> Namespace:
        return self

    async def __aexit__(self, *_: object) -> None:
        """There is nothing to close."""

    async def get_topic(self, name: str) -> Any:
        assert name == "domain-events"
        return answer(self.topic)

    async def list_subscriptions(self, _: str) -> AsyncIterator[Any]:
        for subscription in answer(self.subscriptions):
            yield subscription

    def get_topic_sender(self, name: str) -> Namespace:
        assert name == "domain-events"
        return self

    async def create_message_batch(self) -> Any:
        return SimpleNamespace(max_size_in_bytes=answer(self.link))


def serve_account(monkeypatch: pytest.MonkeyPatch, account: Account) -> None:
    """Let this be the account that the settings name, whatever they say."""
    monkeypatch.setattr("relay.backends.cosmos.containers.cosmos_client", lambda _: account)


def serve_namespace(monkeypatch: pytest.MonkeyPatch, namespace: Namespace) -> None:
    """Let this be the namespace that commands connect to, whatever the settings say."""
    for client in ("servicebus_client", "servicebus_administration_client"):
        monkeypatch.setattr(f"outbox_relay.operator.cli.servicebus_checks.{client}", lambda *_: namespace)
