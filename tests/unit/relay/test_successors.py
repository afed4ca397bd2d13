"""The order of a released event among later ones of its partition key."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_relay.operator.backends.cosmos.reader import CosmosOutbox
from relay.backends.cosmos.effective_keys import EffectiveKeys
from relay.backends.cosmos.leases import LeasePosition, Positions
from relay.config.settings import Settings
from tests.support.outbox import sound
from tests.unit.relay.commands import ENVIRONMENT

KEY = "k"


def document(identifier: str, lsn: object = None, order: object = None, **changes: Any) -> dict[str, Any]:
    found = {"id": identifier, "partitionKey": KEY, "type": "domainEvent", "_ts": 100, "data": {"action": "A"}}
    places = {"_lsn": lsn, "order": order}
    return {**found, **{name: value for name, value in places.items() if value is not None}, **changes}


class Container:
    """The outbox: a change feed."""

    id = "data"

    def __init__(self, feed: list[dict[str, Any]]) -> None:
        self._feed = feed
        self.readings = 0

    async def feed_range_from_partition_key(self, key: str) -> dict[str, Any]:
        return {"Range": {"min": key, "max": key}}

    async def query_items_change_feed(self, **_: Any) -> AsyncIterator[dict[str, Any]]:
        self.readings += 1
        for item in self._feed:
            yield item


class OutboxAt(CosmosOutbox):
    """An outbox of which the relay has passed everything up to an LSN, or an unknown position (None)."""

    def __init__(self, container: Container, passed: int | None) -> None:
        super().__init__(Settings.from_environment(ENVIRONMENT))
        self._own_container = cast(ContainerProxy, container)
        self._reached = passed
        self.asked = 0

    async def _container(self) -> ContainerProxy:
        return self._own_container

    async def _read_positions(self, *, own_only: bool) -> Positions:
        self.asked += 1
        leases = [] if self._reached is None else [LeasePosition("h..0", "", "z", None, f'"{self._reached}"')]
        return Positions(EffectiveKeys(self._own_container, {}), leases)


async def went_out(event: dict[str, Any], *feed: dict[str, Any], passed: int | None = 100) -> bool:
    """Return True if an event behind this one was passed, in an outbox with this feed."""
    return bool(await OutboxAt(Container(list(feed)), passed).passed_behind(sound(event)))


POISON = document("poison", 5)


@pytest.mark.parametrize(
    ("later", "out"),
    [
        (document("earlier", 4), False),
        (document("later", 6), True),
        (document("later", 6, _ts=99), False),
        (document("contact", 6, type="contact"), False),
        (document("unknown place"), False),
        (document("odd place", "6"), False),
        (document("odd place", True), False),
    ],
)
async def test_an_event_is_late_where_a_later_one_of_its_key_went_out(later: dict[str, Any], out: bool) -> None:
    assert await went_out(POISON, POISON, later) is out


@pytest.mark.parametrize(
    ("order", "others", "out"),
    [
        (1, 2, True),
        (1, 1, False),
        (2, 1, False),
        (None, 1, True),
        (None, 0, False),
        (0, None, False),
        (1, True, False),
    ],
)
async def test_within_a_commit_the_events_own_order_counts(order: object, others: object, out: bool) -> None:
    poison = document("poison", 5, order)

    assert await went_out(poison, document("other", 5, others)) is out


@pytest.mark.parametrize(("passed", "out"), [(6, True), (5, False), (None, True)])
async def test_what_the_relay_has_not_passed_has_not_gone_out(passed: int | None, out: bool) -> None:
    assert await went_out(POISON, POISON, document("later", 6), passed=passed) is out


async def test_a_document_that_does_not_say_where_it_stood_hides_none_behind_it() -> None:
    assert await went_out(POISON, document("unknown"), document("later", 6), POISON)


@pytest.mark.parametrize(
    "event",
    [document("poison"), document("poison", "5"), document("poison", 5, _ts=None), document("poison", 5, _ts="1")],
)
async def test_an_event_that_does_not_say_where_it_stood_is_not_called_late(event: dict[str, Any]) -> None:
    assert not await went_out(event, document("later", 6))


async def test_the_last_one_counts_wherever_the_feed_brings_it_and_one_reading_serves_a_key() -> None:
    container = Container([document("second", 9), document("first", 6)])
    outbox = OutboxAt(container, 100)

    late = [bool(await outbox.passed_behind(sound(document("poison", lsn)))) for lsn in (5, 7, 8, 9, 10)]

    assert late == [True, True, True, False, False]
    assert (container.readings, outbox.asked) == (1, 1)


async def test_an_event_with_the_clock_of_now_is_seen() -> None:
    now = int(time.time())

    assert await went_out(POISON, document("later", 6, _ts=now))
