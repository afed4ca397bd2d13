"""The items that hold something back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relay.core import holds
from relay.core.events import Reason, Rejected
from relay.core.holds import Holds, Order
from relay.core.place import Place
from tests.support.outbox import plain


def age(moment: str) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(moment)


def test_the_id_of_an_order_is_a_digest_which_any_id_has() -> None:
    digest = "3b18cc491179d337c96ced0a29509c3ffc1b5909c25b0b27fb89ea80881db22b"

    assert holds.order_id("e/1?#") == f"set-aside:{digest}"
    assert holds.order_id("\ud800") != holds.order_id("\ud801")


def test_an_order_names_its_event() -> None:
    order = holds.order_item("k", "e1")

    assert age(order.pop("orderedAt")) < timedelta(minutes=1)
    assert order == {"id": holds.order_id("e1"), "partitionKey": "k", "type": "setAsideOrder", "eventId": "e1"}


def test_a_marker_says_since_when_and_why_a_key_is_parked() -> None:
    marker = holds.parked_marker_item("k", "r1")

    assert age(marker.pop("since")) < timedelta(minutes=1)
    assert marker == {"id": "parked", "partitionKey": "k", "type": "parkedKey", "because": "r1"}


def test_what_a_later_version_adds_to_a_place_stops_no_attempt() -> None:
    place = {"lsn": 5, "order": 1, "epoch": 7}
    order = {**holds.order_item("k", "e1"), "place": place, "carriedOut": True, "by": "somebody"}

    found = holds.holds_from_items([{**holds.parked_marker_item("k", "r1"), "place": place}, order])

    assert found == Holds({"k": Place(5, 1)}, {("k", "e1"): (Order(True, Place(5, 1)),)})


def test_holds_are_empty_by_default() -> None:
    assert not Holds()
    assert Holds(parked={"k": None})
    assert Holds(orders={("k", "e"): (Order(),)})


@pytest.mark.parametrize(
    ("place", "later"),
    [({}, {}), ({"_lsn": 5, "order": 1}, {"_lsn": 6}), ({"_ulid": "01", "_shard": 0}, {"_ulid": "02"})],
    ids=["without a place", "Cosmos DB", "SQL"],
)
def test_a_carried_out_order_is_about_one_version_of_an_event(
    place: dict[str, Any], later: dict[str, Any]
) -> None:
    invalid = Rejected(plain({"id": "e", "partitionKey": "k", **place}), Reason.DATA_NOT_OBJECT, "", 0, "k")
    found = holds.holds_from_items([holds.fulfilled_order_item("k", invalid.id, invalid.document.place)])

    corrected = Rejected(plain({**invalid.document.stored, **later, "data": {}}), Reason.SET_ASIDE, "", 1, "k")
    assert found.order_for(invalid) == Order(True, invalid.document.place)
    assert found.order_for(corrected) is None


def test_of_several_orders_one_that_is_carried_out_counts_or_else_the_first() -> None:
    place = Place(5, 1)
    item = Rejected(plain({"id": "e", "partitionKey": "k", "_lsn": 5, "order": 1}), Reason.SET_ASIDE, "", 0, "k")
    # The relay's own, which says why the event was refused, comes before an operator's.
    own, operators = Order(False, place, Reason.MESSAGE_REFUSED, "no"), Order()
    carried_out = Order(True, place)

    assert Holds(orders={("k", "e"): (own, operators)}).order_for(item) == own
    assert Holds(orders={("k", "e"): (own, operators, carried_out)}).order_for(item) == carried_out
