"""The documents that hold something back, and what is read of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from relay.cosmos import holds
from relay.holds import Holds
from tests.unit.relay.accounts import FakeContainer, refusal


def age(moment: str) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(moment)


def test_the_id_of_an_order_is_a_digest_which_any_id_has() -> None:
    digest = "3b18cc491179d337c96ced0a29509c3ffc1b5909c25b0b27fb89ea80881db22b"

    assert holds.order_id("e/1?#") == f"set-aside:{digest}"
    assert holds.order_id("\ud800") != holds.order_id("\ud801")


def test_an_order_names_its_event() -> None:
    order = holds.order("k", "e1")

    assert age(order.pop("orderedAt")) < timedelta(minutes=1)
    assert order == {"id": holds.order_id("e1"), "partitionKey": "k", "type": "setAsideOrder", "eventId": "e1"}


def test_a_marker_says_since_when_and_why_a_key_is_parked() -> None:
    marker = holds.marker("k", "r1")

    assert age(marker.pop("since")) < timedelta(minutes=1)
    assert marker == {"id": "parked", "partitionKey": "k", "type": "parkedKey", "because": "r1"}


def test_holds_are_empty_by_default() -> None:
    assert Holds() == Holds(frozenset(), frozenset())


async def test_parked_keys_and_orders_are_read_and_nothing_else(container: FakeContainer) -> None:
    for item in (
        holds.marker("a", "r1"),
        holds.marker("b", "r2"),
        holds.order("a", "e1"),
        holds.order("c", "e/2"),
        {"id": "r1", "partitionKey": "a", "type": "quarantinedEvent"},
    ):
        await container.create_item(item)

    found = await holds.read_holds(container.proxy)

    assert found == Holds(frozenset({"a", "b"}), frozenset({("a", "e1"), ("c", "e/2")}))


async def test_more_holds_than_a_page_has_are_all_read(container: FakeContainer) -> None:
    for number in range(250):
        await container.create_item(holds.marker(f"k{number}", "r"))

    assert len((await holds.read_holds(container.proxy)).parked) == 250


async def test_touching_a_marker_changes_its_version_and_nothing_else(container: FakeContainer) -> None:
    await container.create_item(holds.marker("k", "r"))
    (before,) = await container.stored()

    kind, (item, operations) = holds.touch()
    await container.patch_item(item, "k", operations)

    (after,) = await container.stored()
    assert (kind, after["_etag"] != before["_etag"]) == ("patch", True)
    assert age(after.pop("touchedAt")) < timedelta(minutes=1)
    changing = {"_etag", "_ts"}
    assert {name: after[name] for name in after.keys() - changing} == {
        name: before[name] for name in before.keys() - changing
    }
    with pytest.raises(type(refusal(404))):
        await container.patch_item(item, "other", operations)
