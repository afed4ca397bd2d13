"""The records of a parked key: in order, in as few batches as they fit into, and only while the key is parked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

from relay.cosmos import holds
from relay.cosmos.parking import NotParked, ParkedKey
from relay.cosmos.quarantine_record import create, record_of
from relay.events import Reason, Rejected
from tests.support.outbox import event, events
from tests.unit.relay.accounts import FakeContainer, failed, refusal


class Key:
    """The key "k" of a container, and which documents were reported as new."""

    def __init__(self, container: FakeContainer) -> None:
        self._container = container
        self._key = ParkedKey(container.proxy, "k", self._count)
        self.new: list[str] = []

    def _count(self, record: Mapping[str, Any]) -> None:
        self.new.append(record["document"]["id"] if "document" in record else "(in parts)")

    async def store(self, *documents: dict[str, Any], parks: bool = True) -> None:
        await self._key.store(list(records(*documents)), parks=parks)


@pytest.fixture
def key(container: FakeContainer) -> Key:
    return Key(container)


def records(*documents: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for position, document in enumerate(documents):
        yield record_of(Rejected(document, Reason.MESSAGE_REFUSED, "", position), "i1")


def sized(name: str, size: int) -> dict[str, Any]:
    """An event whose record has about this many bytes on the wire."""
    return event(name, "k", text="x" * (size - 800))


async def stored(container: FakeContainer) -> list[str]:
    """What is stored, in the order in which it was: documents, the marker, parts."""
    return [
        item["document"]["id"] if "document" in item else "(in parts)" if "documentParts" in item else item["type"]
        for item in await container.stored()
    ]


async def test_the_first_record_parks_the_key_in_one_batch_with_all(key: Key, container: FakeContainer) -> None:
    await key.store(*events("k", 3))

    assert await stored(container) == ["parkedKey", "k-0", "k-1", "k-2"]
    assert (key.new, container.batches) == (["k-0", "k-1", "k-2"], [4])
    marker, first, *_ = await container.stored()
    assert marker["because"] == first["id"]


async def test_a_key_that_is_parked_already_stays_as_it_was(key: Key, container: FakeContainer) -> None:
    await key.store(event("a", "k"))
    before = (await container.stored())[0]

    await key.store(event("b", "k"), event("c", "k"))

    after = (await container.stored())[0]
    assert (after["because"], after["since"]) == (before["because"], before["since"])
    assert after["touchedAt"] > before["since"]
    assert key.new == ["a", "b", "c"]


async def test_successors_need_a_parked_key(key: Key, container: FakeContainer) -> None:
    with pytest.raises(NotParked):
        await key.store(event("a", "k"), parks=False)
    assert await stored(container) == []

    await key.store(event("a", "k"))
    await key.store(event("b", "k"), parks=False)
    await container.delete_item(holds.PARKED_ID, "k")
    with pytest.raises(NotParked):
        await key.store(event("c", "k"), parks=False)

    assert (await stored(container), key.new) == (["a", "b"], ["a", "b"])


async def test_a_record_of_a_released_key_does_not_park_it_again(key: Key, container: FakeContainer) -> None:
    for record in records(event("a", "k")):
        await create(container.proxy, record)

    with pytest.raises(NotParked):
        await key.store(event("a", "k"), parks=False)

    await key.store(event("a", "k"), parks=True)
    assert (await stored(container), key.new) == (["a", "parkedKey"], [])


async def test_a_batch_has_as_many_records_as_the_service_takes(key: Key, container: FakeContainer) -> None:
    documents = events("k", 250)

    await key.store(*documents)

    names = [document["id"] for document in documents]
    assert (key.new, container.batches) == (names, [100, 100, 53])
    assert await stored(container) == ["parkedKey", *names]


async def test_a_batch_has_no_more_bytes_than_fit_with_room_to_spare(key: Key, container: FakeContainer) -> None:
    # A megabyte at most, of the two that the service takes.
    sizes = [300_000, 300_000, 300_000, 300_000, 900_000, 200_000, 200_000]

    await key.store(*(sized(f"e{number}", size) for number, size in enumerate(sizes)))

    assert container.batches == [4, 2, 2, 3]
    assert await stored(container) == ["parkedKey", *(f"e{number}" for number in range(7))]


async def test_bytes_are_counted_as_the_sdk_sends_them(key: Key, container: FakeContainer) -> None:
    # Twelve bytes a character.
    documents = [event(f"e{number}", "k", text="\U0001f600" * 50_000) for number in range(3)]

    await key.store(*documents)

    assert container.batches == [2, 2, 2]


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_document_too_large_for_a_batch_is_stored_in_parts_in_its_place(
    key: Key, container: FakeContainer, place: int
) -> None:
    documents = [event("a", "k"), event("b", "k"), event("c", "k")]
    documents[place] = sized("large", 2_200_000)

    await key.store(*documents)

    expected = ["a", "b", "c"]
    expected[place] = "(in parts)"
    found = [name for name in await stored(container) if name not in ("parkedKey", "quarantinedEventPart")]
    assert (found, key.new) == (expected, expected)
    assert [item["because"] for item in await container.stored() if item["type"] == "parkedKey"] == [
        next(records(documents[0]))["id"]
    ]


async def test_of_records_that_fit_only_alone_none_is_left_out(key: Key, container: FakeContainer) -> None:
    container.answers = [refusal(413)]

    await key.store(*events("k", 3))

    assert container.batches == [4, 2, 2, 2]
    assert await stored(container) == ["parkedKey", "k-0", "k-1", "k-2"]
    assert key.new == ["k-0", "k-1", "k-2"]


async def test_what_an_earlier_attempt_stored_stays_and_the_rest_follows(
    key: Key, container: FakeContainer
) -> None:
    documents = events("k", 5)
    await key.store(*documents[:2])

    await key.store(*documents)

    assert await stored(container) == ["parkedKey", *(document["id"] for document in documents)]
    assert key.new == [document["id"] for document in documents]


async def test_a_repeated_attempt_stores_nothing_again_in_parts(key: Key, container: FakeContainer) -> None:
    large = sized("large", 2_200_000)
    await key.store(large)
    before = len(await container.stored())

    await key.store(large)

    assert len(await container.stored()) == before
    assert key.new == ["(in parts)"]


@pytest.mark.parametrize("status", [401, 403, 429, 503])
@pytest.mark.parametrize("count", [1, 3])
async def test_what_has_nothing_to_do_with_a_record_is_an_error(
    key: Key, container: FakeContainer, status: int, count: int
) -> None:
    for failure in (refusal(status), failed(0, status), failed(1, status)):
        container.answers = [failure]
        with pytest.raises((CosmosHttpResponseError, CosmosBatchOperationError)) as raised:
            await key.store(*events("k", count))
        assert raised.value is failure

    assert (await stored(container), key.new) == ([], [])


@pytest.mark.parametrize("status", [400, 413])
async def test_a_marker_that_is_refused_is_an_error(key: Key, container: FakeContainer, status: int) -> None:
    container.answers = [failed(0, status)]

    with pytest.raises(CosmosBatchOperationError):
        await key.store(*events("k", 2))

    assert await stored(container) == []


@pytest.mark.parametrize("failure", [refusal(413), failed(1, 413), refusal(400), failed(1, 400)])
async def test_what_is_refused_in_parts_too_is_an_error(
    key: Key, container: FakeContainer, failure: Exception
) -> None:
    # The record, its one part, its head.
    container.answers = [failure, None, failure]

    with pytest.raises((CosmosHttpResponseError, CosmosBatchOperationError)) as raised:
        await key.store(event("a", "k"))

    assert raised.value is failure
    assert key.new == []


async def test_a_conflict_that_names_no_operation_is_taken_for_a_record_that_is_there(
    key: Key, container: FakeContainer
) -> None:
    container.answers = [refusal(409)]

    await key.store(*events("k", 2))

    assert await stored(container) == ["parkedKey", "k-0", "k-1"]


async def test_a_head_is_stored_by_itself_where_it_does_not_fit_beside_others(container: FakeContainer) -> None:
    new: list[Mapping[str, Any]] = []
    heads = [{"id": name, "partitionKey": "k", "documentParts": 0} for name in ("a", "b")]
    container.answers = [refusal(413)]

    await ParkedKey(container.proxy, "k", new.append).store(heads, parks=True)

    assert (new, container.batches) == (heads, [3, 2, 2])
