"""Parked keys and orders to set events aside, in the quarantine container of the emulator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosAccessConditionFailedError

from outbox_emulators.cosmos.server import CosmosServer
from relay import holds
from relay.cli.records import Records
from relay.cosmos.containers import Containers
from relay.cosmos.quarantine import CosmosItems
from relay.errors import QuarantineError
from relay.events import EventName, Reason, Rejected
from relay.holds import Holds
from relay.quarantine.items import Filter
from relay.quarantine.quarantine import StoredQuarantine
from relay.settings import Settings
from tests.support.outbox import event, events, rejected
from tests.support.stores import items_in

QuarantineMaker = Callable[[], StoredQuarantine]


def pending(held: Holds) -> set[EventName]:
    """The events of orders that are not carried out."""
    return {name for name, orders in held.orders.items() if not all(order.carried_out for order in orders)}


@pytest.fixture
async def make_quarantine(cosmos: CosmosServer) -> AsyncIterator[QuarantineMaker]:
    """Makes the quarantine of a process of its own."""
    made: list[StoredQuarantine] = []

    def make() -> StoredQuarantine:
        environment = {"COSMOS": cosmos.connection_string, "SERVICEBUS": "Endpoint=sb://x;SharedAccessKeyName=x;"}
        environment["SERVICEBUS"] += "SharedAccessKey=YQ=="
        made.append(StoredQuarantine(CosmosItems(Containers(Settings.from_environment(environment)))))
        return made[-1]

    yield make
    for each in made:
        await each.close()


def refused(document: dict[str, Any]) -> Rejected:
    return rejected(Reason.MESSAGE_REFUSED, document)[0]


def parked(*documents: dict[str, Any]) -> list[Rejected]:
    return rejected(Reason.KEY_PARKED, *documents, first=1)


async def stored(container: ContainerProxy, key: str) -> list[tuple[str, str]]:
    """The records of a key, document id and reason of each, in order of arrival."""
    summaries = await Records(items_in(container)).find(Filter(partition_key=key))
    return [(summary.document_id or "(in parts)", summary.reason) for summary in summaries]


async def release(container: ContainerProxy, key: str) -> None:
    """Remove the marker as a release does, though records may be left."""
    marker = await container.read_item(holds.PARKED_ID, partition_key=key)
    await container.delete_item(
        marker["id"], partition_key=key, etag=marker["_etag"], match_condition=MatchConditions.IfNotModified
    )


async def test_the_first_poison_of_a_key_parks_it(
    make_quarantine: QuarantineMaker, quarantine: ContainerProxy
) -> None:
    first, second = events("key", 2)

    await make_quarantine().store([refused(first), *parked(second)], "i1", park=True)

    assert (await make_quarantine().holds()).parked.keys() == {"key"}
    assert await stored(quarantine, "key") == [("key-0", "message-refused"), ("key-1", "key-parked")]
    marker = await quarantine.read_item(holds.PARKED_ID, partition_key="key")
    record = await quarantine.read_item(marker["because"], partition_key="key")
    assert record["document"]["id"] == "key-0"


async def test_without_parking_nothing_is_held(
    make_quarantine: QuarantineMaker, quarantine: ContainerProxy
) -> None:
    await make_quarantine().store([refused(event("a", "key"))], "i1", park=False)

    assert not (held := await make_quarantine().holds()).parked
    assert not pending(held)
    assert await stored(quarantine, "key") == [("a", "message-refused")]


async def test_keys_are_parked_independently(make_quarantine: QuarantineMaker, quarantine: ContainerProxy) -> None:
    one, two = events("one", 3), events("two", 3)
    mixed = [refused(one[0]), refused(two[1]), *parked(one[1], two[2], one[2])]

    await make_quarantine().store(mixed, "i1", park=True)

    assert (await make_quarantine().holds()).parked.keys() == {"one", "two"}
    assert [name for name, _ in await stored(quarantine, "one")] == ["one-0", "one-1", "one-2"]
    assert [name for name, _ in await stored(quarantine, "two")] == ["two-1", "two-2"]


async def test_more_records_than_a_batch_takes_keep_their_order(
    make_quarantine: QuarantineMaker, quarantine: ContainerProxy
) -> None:
    documents = events("key", 250)

    await make_quarantine().store([refused(documents[0]), *parked(*documents[1:])], "i1", park=True)

    assert [name for name, _ in await stored(quarantine, "key")] == [each["id"] for each in documents]


async def test_more_bytes_than_a_batch_takes_keep_their_order(
    make_quarantine: QuarantineMaker, quarantine: ContainerProxy
) -> None:
    # Twelve bytes a character on the wire: 0.96 MB each.
    documents = [event(f"e{number}", "key", text="\U0001f600" * 80_000) for number in range(5)]

    await make_quarantine().store([refused(documents[0]), *parked(*documents[1:])], "i1", park=True)

    assert [name for name, _ in await stored(quarantine, "key")] == ["e0", "e1", "e2", "e3", "e4"]


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_document_too_large_for_an_item_is_parked_in_parts(
    make_quarantine: QuarantineMaker, quarantine: ContainerProxy, place: int
) -> None:
    documents = events("key", 3)
    documents[place]["data"]["text"] = "\U0001f600" * 200_000

    await make_quarantine().store([refused(documents[0]), *parked(*documents[1:])], "i1", park=True)

    names = [each["id"] for each in documents]
    names[place] = "(in parts)"
    assert [name for name, _ in await stored(quarantine, "key")] == names
    assert (await make_quarantine().holds()).parked.keys() == {"key"}


async def test_an_attempt_goes_on_where_the_one_before_it_broke_off(
    make_quarantine: QuarantineMaker, quarantine: ContainerProxy
) -> None:
    documents = events("key", 5)
    await make_quarantine().store([refused(documents[0]), *parked(*documents[1:3])], "i1", park=True)

    # The poison is one of a parked key now.
    await make_quarantine().store(parked(*documents), "i1", park=True)

    reasons = ["message-refused", *["key-parked"] * 4]
    names = [each["id"] for each in documents]
    assert await stored(quarantine, "key") == list(zip(names, reasons, strict=True))


async def test_a_record_from_before_parking_was_chosen_parks_its_key_too(make_quarantine: QuarantineMaker) -> None:
    poison = refused(event("a", "key"))
    await make_quarantine().store([poison], "i1", park=False)

    await make_quarantine().store([poison], "i1", park=True)

    assert (await make_quarantine().holds()).parked.keys() == {"key"}


async def test_further_poison_of_a_parked_key_is_stored_behind_the_others(
    make_quarantine: QuarantineMaker, quarantine: ContainerProxy
) -> None:
    first, second, third = events("key", 3)
    await make_quarantine().store([refused(first)], "i1", park=True)
    before = await quarantine.read_item(holds.PARKED_ID, partition_key="key")

    await make_quarantine().store([refused(second), *parked(third)], "i2", park=True)

    after = await quarantine.read_item(holds.PARKED_ID, partition_key="key")
    assert (before["because"], before["since"]) == (after["because"], after["since"])
    assert [name for name, _ in await stored(quarantine, "key")] == ["key-0", "key-1", "key-2"]


async def test_successors_of_a_key_that_was_released_are_not_stored(
    make_quarantine: QuarantineMaker, quarantine: ContainerProxy
) -> None:
    process = make_quarantine()
    first, second = events("key", 2)
    await process.store([refused(first)], "i1", park=True)
    assert (await process.holds()).parked.keys() == {"key"}
    await release(quarantine, "key")

    with pytest.raises(QuarantineError, match="released"):
        await process.store(parked(second), "i2", park=True)

    assert [name for name, _ in await stored(quarantine, "key")] == ["key-0"]
    assert not (held := await process.holds()).parked
    assert not pending(held)


async def test_a_release_that_looked_before_a_record_came_does_not_unpark_the_key(
    make_quarantine: QuarantineMaker, quarantine: ContainerProxy
) -> None:
    first, second = events("key", 2)
    await make_quarantine().store([refused(first)], "i1", park=True)
    seen = await quarantine.read_item(holds.PARKED_ID, partition_key="key")
    await make_quarantine().store(parked(second), "i2", park=True)

    with pytest.raises(CosmosAccessConditionFailedError):
        await quarantine.delete_item(
            "parked", partition_key="key", etag=seen["_etag"], match_condition=MatchConditions.IfNotModified
        )


async def test_parking_and_releasing_at_the_same_time_leave_no_record_without_a_marker(
    make_quarantine: QuarantineMaker, quarantine: ContainerProxy
) -> None:
    process = make_quarantine()
    documents = events("key", 40)
    await process.store([refused(documents[0])], "i0", park=True)

    async def park() -> list[str]:
        accepted = []
        for document in documents[1:]:
            try:
                await process.store(parked(document), "i1", park=True)
            except QuarantineError:
                break
            accepted.append(document["id"])
        return accepted

    async def unpark() -> int:
        """Remove the marker; returns how many records there were when it went."""
        while True:
            marker = await quarantine.read_item(holds.PARKED_ID, partition_key="key")
            count = len(await stored(quarantine, "key"))
            try:
                await quarantine.delete_item(
                    "parked",
                    partition_key="key",
                    etag=marker["_etag"],
                    match_condition=MatchConditions.IfNotModified,
                )
            except CosmosAccessConditionFailedError:
                await asyncio.sleep(0)
            else:
                return count

    accepted, count = await asyncio.gather(park(), unpark())

    assert len(await stored(quarantine, "key")) == count == 1 + len(accepted)


async def test_an_order_is_read_honoured_and_removed(
    make_quarantine: QuarantineMaker, quarantine: ContainerProxy
) -> None:
    blocking = event("e/1?#", "key")
    await quarantine.create_item(holds.order("key", "e/1?#"))
    process = make_quarantine()

    assert pending(await process.holds()) == {("key", "e/1?#")}
    await process.store(rejected(Reason.SET_ASIDE, blocking), "i1", park=False)

    assert not (held := await process.holds()).parked
    assert not pending(held)
    assert await stored(quarantine, "key") == [("e/1?#", "set-aside")]


async def test_a_container_that_cannot_be_read_fails_the_attempt(
    cosmos: CosmosServer, make_quarantine: QuarantineMaker, quarantine: ContainerProxy
) -> None:
    process = make_quarantine()
    await process.holds()
    await quarantine.client_connection.DeleteContainer(quarantine.container_link)

    with pytest.raises(QuarantineError, match="must be read, but the container 'quarantine' cannot be read"):
        await process.holds()
