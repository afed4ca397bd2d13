"""The five guarantees for each source: whole stacks, a process killed with SIGKILL, a count at the subscriber."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import orjson
import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.stack.environment import DATABASE, Source
from local.stack.supervisor import Stack, StackOptions
from outbox_relay.changefeed import connect_async
from tests.support.operators import relay_command
from tests.support.outbox import event
from tests.support.sql_outbox import SqlOutbox
from tests.support.subscriber import Subscriber, body
from tests.support.watchdog import WATCHDOG_S

Commit = Sequence[dict[str, Any]]

# The worst that the documentation of the services allows, drawn by this seed.
_EDGES = 20
_KEYS = [f"key-{number}" for number in range(10)]
_COMMITS, _EVENTS_A_COMMIT = 8, 3
_POISONED: dict[str, tuple[int, str, dict[str, Any]]] = {
    "key-1": (1, "id-too-long", {"id": "x" * 129}),
    "key-3": (4, "action-not-string", {"data": {"action": 5}}),
    "key-4": (9, "data-not-object", {"data": [1, 2]}),
    "key-7": (17, "properties-too-large", {"data": {"action": "A", "createdAt": "x" * 15_001}}),
    "key-8": (23, "message-too-large", {"data": {"action": "A", "text": "x" * 300_000}}),
}
"""By key: which of its events can never be sent, the reason, and the fields that make it so."""

_QUICK_LEASES = ("--lease-acquire-ms", "500", "--lease-renew-ms", "500", "--lease-expiration-ms", "2000")


class Writer(Protocol):
    """Writes commits of one partition key, each of them in a transaction."""

    async def commit(self, *documents: dict[str, Any]) -> None: ...


class CosmosWriter:
    """Writes transactional batches of Cosmos DB."""

    def __init__(self, container: ContainerProxy) -> None:
        self._container = container

    async def commit(self, *documents: dict[str, Any]) -> None:
        operations = [("create", (document,)) for document in documents]
        await self._container.execute_item_batch(operations, partition_key=documents[0]["partitionKey"])


@asynccontextmanager
async def writer(stack: Stack) -> AsyncIterator[Writer]:
    """Connect to the outbox of a stack."""
    if stack.source is Source.SQL:
        session = await connect_async(stack.settings["SQL"])
        try:
            yield SqlOutbox(session)
        finally:
            await session.close()
    else:
        async with CosmosClient.from_connection_string(stack.settings["COSMOS"]) as client:
            yield CosmosWriter(client.get_database_client(DATABASE).get_container_client("data"))


def document(key: str, number: int) -> dict[str, Any]:
    """Return event `number` of a key: its order within the key, and values that a careless relay would alter."""
    made = event(f"{key}-{number:02}", key, number=number, text="é e\u0301 😀 \u2028", exact=0.1, nothing=None)
    if is_poison(key, number):
        made |= _POISONED[key][2]
    stored = {name: value for name, value in made.items() if not name.startswith("_")}
    return stored | {"order": number % _EVENTS_A_COMMIT, "sequence": number}


def is_poison(key: str, number: int) -> bool:
    """Return True for an event that can never be sent."""
    return key in _POISONED and _POISONED[key][0] == number


def commits(key: str) -> list[Commit]:
    """Return the commits of a key, in order."""
    documents = [document(key, number) for number in range(_COMMITS * _EVENTS_A_COMMIT)]
    return [documents[at : at + _EVENTS_A_COMMIT] for at in range(0, len(documents), _EVENTS_A_COMMIT)]


async def write(outbox: Writer, of_each: slice) -> None:
    """Write a part of each key's commits, one commit of each key in turn."""
    for round_of_commits in zip(*(commits(key)[of_each] for key in _KEYS), strict=True):
        for commit in round_of_commits:
            await outbox.commit(*commit)


@pytest.mark.parametrize("source", list(Source))
async def test_every_event_arrives_once_in_order_unaltered_although_a_process_is_killed(
    tmp_path: Path, source: Source
) -> None:
    options = StackOptions(
        source=source,
        logs=tmp_path,
        hosts=2,
        edges=_EDGES,
        host_options=_QUICK_LEASES,
        settings={"RELAY_POLL_DELAY_MS": "50", "SQL_CLAIM_S": "2"},
    )
    async with Stack(options) as stack:
        subscriber = Subscriber(stack.settings["SERVICEBUS"])
        async with writer(stack) as outbox:
            await write(outbox, slice(0, _COMMITS // 2))
            await subscriber.receive(1)
            killed = stack.hosts.pop(0)
            killed.kill_all()
            assert await killed.wait() == -9
            await write(outbox, slice(_COMMITS // 2, _COMMITS))
            await stack.start_host()
        expected = {key: sound_events(key) for key in _KEYS}
        await subscriber.receive(sum(map(len, expected.values())))
        await quarantined(stack)
        await stack.stop_hosts()
        await subscriber.receive_rest()

        records = (await relay_command(stack.settings, "quarantine", "list", "--json")).json["records"]

    # Nothing is lost, repeated, out of order or altered.
    arrived = {key: [body(message) for message in messages] for key, messages in subscriber.messages.items()}
    assert subscriber.ids() == {key: [each["id"] for each in events] for key, events in expected.items()}
    assert {key: [orjson.loads(data) for data in bodies] for key, bodies in arrived.items()} == {
        key: [each["data"] for each in events] for key, events in expected.items()
    }
    # Nothing is stuck: what can never be sent is set aside, with its reason.
    assert {(record["documentId"], record["reason"]) for record in records} == {
        (document(key, number)["id"], reason) for key, (number, reason, _) in _POISONED.items()
    }


def sound_events(key: str) -> list[dict[str, Any]]:
    """Return the events of a key that can be published, in order."""
    numbers = range(_COMMITS * _EVENTS_A_COMMIT)
    return [document(key, number) for number in numbers if not is_poison(key, number)]


async def quarantined(stack: Stack) -> None:
    """Wait until as many documents are in quarantine as were poisoned."""
    async with asyncio.timeout(WATCHDOG_S):
        while True:
            listed = await relay_command(stack.settings, "quarantine", "list", "--json")
            if len(listed.json["records"]) >= len(_POISONED):
                return
