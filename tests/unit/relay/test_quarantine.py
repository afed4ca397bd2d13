"""What is quarantined, what parks a key, and what is held back, over a container in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from relay.cosmos import holds
from relay.cosmos.containers import Containers
from relay.cosmos.quarantine import CosmosQuarantine
from relay.errors import QuarantineError
from relay.events import Reason, Rejected, read_event
from relay.holds import Holds
from relay.settings import Settings
from tests.support.outbox import event, events, sound
from tests.support.telemetry import Telemetry
from tests.unit.relay.accounts import FakeContainer, FakeContainers, refusal

SETTINGS = Settings.from_environment(
    {
        "COSMOS": "AccountEndpoint=https://a.documents.azure.com:443/;AccountKey=c2VjcmV0a2V5;",
        "SERVICEBUS": "Endpoint=sb://n/;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0",
        "COSMOS_QUARANTINE_CONTAINER": "aside",
    }
)


def process(container: FakeContainer) -> CosmosQuarantine:
    """The quarantine of a process of its own."""
    return CosmosQuarantine(FakeContainers(container).all)


def refused(*documents: dict[str, Any]) -> list[Rejected]:
    return [rejection(document, Reason.MESSAGE_REFUSED) for document in documents]


def parked(*documents: dict[str, Any]) -> list[Rejected]:
    return [rejection(document, Reason.KEY_PARKED) for document in documents]


def rejection(document: dict[str, Any], reason: Reason) -> Rejected:
    return Rejected.of(sound(document), reason, "as the test says")


def placed(*rejected: Rejected) -> list[Rejected]:
    """In the order in which they came."""
    return [replace(item, position=position) for position, item in enumerate(rejected)]


async def records(container: FakeContainer) -> list[tuple[str, str]]:
    """The records, document id and reason of each, by their position."""
    found = [item for item in await container.stored() if item["type"] == "quarantinedEvent"]
    found.sort(key=lambda item: (item["quarantinedAt"], item["position"]))
    return [(item["document"].get("id"), item["reason"]) for item in found]


async def release(container: FakeContainer, key: str) -> None:
    await container.delete_item(holds.PARKED_ID, key)


async def test_documents_are_stored_in_their_order_and_hold_nothing_back(container: FakeContainer) -> None:
    await process(container).store(placed(*refused(event("b", "k"), event("a", "k"), event("c", "other"))), "i1")

    stored = {item["document"]["id"]: item for item in await container.stored()}
    assert {name: item["position"] for name, item in stored.items()} == {"b": 0, "a": 1, "c": 2}
    assert {item["invocationId"] for item in stored.values()} == {"i1"}
    assert await process(container).holds() == Holds()


async def test_the_container_that_the_settings_name_is_used(container: FakeContainer) -> None:
    containers = FakeContainers(container)
    quarantine = CosmosQuarantine(containers.all)

    await quarantine.store([], "i1", park=True)
    assert containers.opened == []
    await quarantine.store(refused(event("a", "k")), "i1")
    await quarantine.close()

    assert (containers.opened, containers.closed) == (["aside"], True)


async def test_a_quarantine_without_a_connection_can_be_closed() -> None:
    await CosmosQuarantine(Containers(SETTINGS)).close()


@pytest.mark.parametrize("park", [False, True])
async def test_a_repeated_attempt_stores_and_counts_nothing_again(
    container: FakeContainer, reported: Telemetry, park: bool
) -> None:
    items = [*refused(event("a", "k")), Rejected({"id": "b"}, Reason.PARTITION_KEY_MISSING, "")]

    await process(container).store(items, "i1", park=park)
    first = reported.metrics().by("relay.events.quarantined", "reason")
    await process(container).store(items, "i1", park=park)

    assert first == {"message-refused": 1, "partition-key-missing": 1}
    assert reported.metrics().by("relay.events.quarantined", "reason") == {}
    assert len(await records(container)) == 2


async def test_the_first_document_of_a_key_parks_it_and_the_others_are_stored_behind(
    container: FakeContainer,
) -> None:
    one, two = events("one", 3), events("two", 2)
    keyless = Rejected({"id": "x"}, Reason.PARTITION_KEY_MISSING, "")
    items = placed(*refused(one[0]), keyless, *refused(two[0]), *parked(one[1], two[1], one[2]))

    await process(container).store(items, "i1", park=True)

    assert await process(container).holds() == Holds(frozenset({"one", "two"}))
    stored = {item["document"]["id"]: item for item in await container.stored() if "document" in item}
    in_order = sorted(stored, key=lambda name: stored[name]["position"])
    assert in_order == ["one-0", "x", "two-0", "one-1", "two-1", "one-2"]
    because = {item["because"] for item in await container.stored() if item["type"] == "parkedKey"}
    assert because == {stored["one-0"]["id"], stored["two-0"]["id"]}


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("x" * 129, Reason.PARTITION_KEY_TOO_LONG),
        ("", Reason.PARTITION_KEY_EMPTY),
        # Their id is as wrong, and is what they are set aside for.
        ("", Reason.ID_EMPTY),
        (7, Reason.ID_EMPTY),
        (None, Reason.ID_MISSING),
    ],
)
async def test_what_no_session_could_hold_is_stored_and_parks_nothing(
    container: FakeContainer, key: Any, reason: Reason
) -> None:
    invalid = read_event({"id": "a", "partitionKey": key})
    assert isinstance(invalid, Rejected)
    items = [replace(invalid, reason=reason), *refused(event("b", "k"))]

    await process(container).store(items, "i1", park=True)

    assert await process(container).holds() == Holds(frozenset({"k"}))
    assert sorted(await records(container)) == [("a", reason), ("b", "message-refused")]


async def test_successors_are_stored_only_while_their_key_is_parked(container: FakeContainer) -> None:
    first, second, third = events("k", 3)
    running = process(container)
    await running.store(refused(first), "i1", park=True)
    await running.store(parked(second), "i2", park=True)
    await release(container, "k")

    with pytest.raises(QuarantineError, match="released while further events") as raised:
        await running.store(parked(third), "i3", park=True)

    assert raised.value.__cause__ is None
    assert [name for name, _ in await records(container)] == ["k-0", "k-1"]
    assert await running.holds() == Holds()


async def test_a_process_knows_what_it_has_parked_before_the_replica_that_answers_does(
    container: FakeContainer,
) -> None:
    running = process(container)
    await running.store(refused(event("a", "one"), event("b", "two")), "i1", park=True)
    await process(container).store(refused(event("c", "three")), "i1", park=True)
    container.lags = True

    before = await running.holds()
    await release(container, "one")
    after = await running.holds()
    container.lags = False

    assert (set(before.parked), set(after.parked)) == ({"one", "two"}, {"two"})
    assert (await running.holds()).parked == {"two", "three"}


async def test_a_key_that_is_parked_already_is_known_once_something_is_stored_behind_it(
    container: FakeContainer,
) -> None:
    first, second = events("k", 2)
    await process(container).store(refused(first), "i1", park=True)
    running = process(container)
    await running.store(parked(second), "i2", park=True)
    container.lags = True

    assert (await running.holds()).parked == {"k"}


@pytest.mark.parametrize("park", [False, True])
async def test_an_order_is_held_until_its_event_is_stored(container: FakeContainer, park: bool) -> None:
    running = process(container)
    for identifier in ("e/1?#", "e2"):
        await container.create_item(holds.order("k", identifier))
    before = await running.holds()

    aside = rejection(event("e/1?#", "k"), Reason.SET_ASIDE)
    await running.store([*refused(event("a", "k")), aside], "i1", park=park)

    assert before.set_aside == {("k", "e/1?#"), ("k", "e2")}
    assert (await running.holds()).set_aside == {("k", "e2")}
    assert [name for name, _ in await records(container)] == ["a", "e/1?#"]


async def test_an_event_is_set_aside_though_its_order_was_withdrawn(container: FakeContainer) -> None:
    await process(container).store([rejection(event("e", "k"), Reason.SET_ASIDE)], "i1")

    assert await records(container) == [("e", "set-aside")]


async def test_only_the_event_that_an_order_names_fulfils_it(container: FakeContainer) -> None:
    await container.create_item(holds.order("k", "e"))

    await process(container).store(refused(event("e", "k")), "i1")

    assert (await process(container).holds()).set_aside == {("k", "e")}


@pytest.mark.parametrize("failure", [refusal(403), OSError("no route to host")])
@pytest.mark.parametrize("park", [False, True])
async def test_what_cannot_be_written_fails_and_names_the_container(
    container: FakeContainer, park: bool, failure: Exception
) -> None:
    container.answers = [failure]

    with pytest.raises(QuarantineError) as raised:
        await process(container).store(refused(event("a", "k"), event("b", "k")), "i1", park=park)

    said = str(raised.value)
    assert said.startswith("2 document(s) must be quarantined, but the container 'aside' could not be written: ")
    assert raised.value.__cause__ is failure
    assert await records(container) == []


async def test_an_order_that_cannot_be_removed_fails_the_attempt(container: FakeContainer) -> None:
    await container.create_item(holds.order("k", "e"))
    container.answers = [None, refusal(503)]

    with pytest.raises(QuarantineError, match="could not be written"):
        await process(container).store([rejection(event("e", "k"), Reason.SET_ASIDE)], "i1")


@pytest.mark.parametrize("answers", [[refusal(403)], [None, refusal(503)]], ids=["the query", "a parked key"])
async def test_what_is_held_back_has_to_be_known(
    container: FakeContainer, answers: list[Exception | None]
) -> None:
    running = process(container)
    await running.store(refused(event("a", "k")), "i1", park=True)
    container.lags = True
    container.answers = answers

    with pytest.raises(QuarantineError, match="must be read, but the container 'aside' could not be read: "):
        await running.holds()

    assert (await running.holds()).parked == {"k"}
