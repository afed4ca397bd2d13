"""Sequences of operations on the local Cosmos DB through azure-cosmos, against a dictionary."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from azure.core import MatchConditions
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from outbox_relay.emulators.cosmos.server import CosmosServer
from tests.fuzz.budget import DOCUMENTS, tried, trying
from tests.fuzz.oracle import as_text

_IDS = st.sampled_from(["1", "2", "ü", "a b"])
_KEYS = st.sampled_from(["k", "鍵"])
_VALUES: st.SearchStrategy[Any] = st.sampled_from([None, 1, 1.0, -0.0, 2**53 + 1, "𝄞", [], {"a": [1.5]}])
_OPERATIONS = st.sampled_from(["create", "upsert", "replace", "delete", "read"])
_REFUSED = 0


class CosmosHistories(RuleBasedStateMachine):
    """The model: what is stored by key and id, and the commit of its latest change."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._stored: dict[tuple[str, str], Any] = {}
        self._commits: dict[tuple[str, str], int] = {}
        self._commit = 0
        self._etags: dict[tuple[str, str], str] = {}
        self._old_etags: dict[tuple[str, str], str] = {}
        self._run(self._start())
        tried["histories"] += 1

    def _run(self, doing: Awaitable[Any]) -> Any:
        return self._runner.run(awaited(doing))

    async def _start(self) -> None:
        self._server = await CosmosServer().__aenter__()
        self._client = await CosmosClient.from_connection_string(self._server.connection_string).__aenter__()
        database = await self._client.create_database("d")
        self._container: ContainerProxy = await database.create_container("c", PartitionKey("/pk"))

    def teardown(self) -> None:
        self._run(self._stop())
        self._runner.close()

    async def _stop(self) -> None:
        await self._client.close()
        await self._server.__aexit__(None, None, None)

    def _status(self, action: Callable[[], Awaitable[Any]]) -> tuple[int, Any]:
        """The status of an operation, 200 for every success, and its answer."""
        tried["operations"] += 1
        self._commit += 1
        try:
            return 200, self._run(action())
        except CosmosHttpResponseError as error:
            return error.status_code or _REFUSED, error

    def _changed(self, name: tuple[str, str], value: Any, answer: Any) -> None:
        self._stored.pop(name, None)
        self._stored[name] = value
        self._commits[name] = self._commit
        if name in self._etags:
            self._old_etags[name] = self._etags[name]
        self._etags[name] = answer["_etag"]

    def _gone(self, name: tuple[str, str]) -> None:
        del self._stored[name]
        self._old_etags[name] = self._etags.pop(name)

    @rule(item=_IDS, key=_KEYS, value=_VALUES)
    def create(self, item: str, key: str, value: Any) -> None:
        status, answer = self._status(lambda: self._container.create_item(document(item, key, value)))
        assert status == (409 if (key, item) in self._stored else 200)
        if status == 200:
            self._changed((key, item), value, answer)

    @rule(item=_IDS, key=_KEYS, value=_VALUES)
    def upsert(self, item: str, key: str, value: Any) -> None:
        status, answer = self._status(lambda: self._container.upsert_item(document(item, key, value)))
        assert status == 200
        self._changed((key, item), value, answer)

    @rule(item=_IDS, key=_KEYS, value=_VALUES, tag=st.sampled_from(["none", "current", "old"]))
    def replace(self, item: str, key: str, value: Any, tag: str) -> None:
        name = (key, item)
        etags = {"current": self._etags.get(name), "old": self._old_etags.get(name)}
        etag = etags.get(tag)
        condition: dict[str, Any] = (
            {} if etag is None else {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        )
        status, answer = self._status(
            lambda: self._container.replace_item(item, document(item, key, value), **condition)
        )
        wanted = 404 if name not in self._stored else 412 if etag not in (None, self._etags[name]) else 200
        assert status == wanted
        if status == 200:
            self._changed(name, value, answer)

    @rule(item=_IDS, key=_KEYS)
    def delete(self, item: str, key: str) -> None:
        status, _ = self._status(lambda: self._container.delete_item(item, key))
        assert status == (200 if (key, item) in self._stored else 404)
        if status == 200:
            self._gone((key, item))

    @rule(key=_KEYS, operations=st.lists(st.tuples(_OPERATIONS, _IDS, _VALUES), min_size=1, max_size=4))
    def batch(self, key: str, operations: list[tuple[str, str, Any]]) -> None:
        after = {item: value for (of, item), value in self._stored.items() if of == key}
        failed = next((n for n, each in enumerate(operations) if not apply(after, *each)), None)
        tried["operations"] += 1
        self._commit += 1
        try:
            answers = self._run(
                self._container.execute_item_batch([in_batch(key, *each) for each in operations], key)
            )
        except CosmosBatchOperationError as error:
            culprit, answers = error.error_index, []
        else:
            culprit = None
        assert culprit == failed
        if culprit is not None:
            return
        for (operation, item, value), answer in zip(operations, answers, strict=True):
            if operation == "delete":
                self._gone((key, item))
            elif operation != "read":
                self._changed((key, item), value, answer["resourceBody"])

    @invariant()
    def the_change_feed_holds_each_item_at_its_latest_change(self) -> None:
        for key in {key for key, _ in self._stored}:
            feed = self._run(self._feed(key))
            wanted = {(item, as_text(value)) for (of, item), value in self._stored.items() if of == key}
            assert len(feed) == len(wanted)
            assert {(each["id"], as_text(each["value"])) for each in feed} == wanted
            # The order within one commit is not given.
            commits = [self._commits[(key, each["id"])] for each in feed]
            assert commits == sorted(commits)

    async def _feed(self, key: str) -> list[dict[str, Any]]:
        feed = self._container.query_items_change_feed(start_time="Beginning", partition_key=key)
        return [item async for item in feed]


async def awaited(doing: Awaitable[Any]) -> Any:
    """A coroutine of any awaitable, which is what a runner takes."""
    return await doing


def document(item: str, key: str, value: Any) -> dict[str, Any]:
    """One item."""
    return {"id": item, "pk": key, "value": value}


def apply(items: dict[str, Any], operation: str, item: str, value: Any) -> bool:
    """Do to the model of one partition what a batch's operation does; False if that is refused."""
    if (item in items) == (operation == "create") and operation != "upsert":
        return False
    if operation == "delete":
        del items[item]
    elif operation != "read":
        items[item] = value
    return True


def in_batch(key: str, operation: str, item: str, value: Any) -> tuple[str, tuple[Any, ...]]:
    """An operation as azure-cosmos takes it."""
    content = document(item, key, value)
    arguments = {"create": (content,), "upsert": (content,), "replace": (item, content)}
    return operation, arguments.get(operation, (item,))


TestCosmosHistories = CosmosHistories.TestCase
TestCosmosHistories.settings = trying(DOCUMENTS // 300, stateful_step_count=20)
