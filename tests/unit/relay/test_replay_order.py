"""A replay's reading of the change feed, however its pages are cut."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from relay.backends.cosmos.feed import CosmosReading
from relay.backends.outbox import Range
from relay.routes.mapping import Fields, Property
from relay.routes.pointers import Pointer
from relay.routes.selection import BY_DEFAULT

EVENTS = Range(0, 10)


def event(lsn: int, order: int | None = None) -> dict[str, Any]:
    document = {"id": f"{lsn}.{order}", "type": "domainEvent", "_ts": 5, "_lsn": lsn}
    return document if order is None else {**document, "order": order}


class Pages:
    """A container whose change feed comes in these pages."""

    id = "data"

    def __init__(self, *pages: list[dict[str, Any]]) -> None:
        self._pages = pages
        self.read = 0
        self.started_at = 0.0

    def query_items_change_feed(self, *, start_time: datetime, **_: Any) -> Pages:
        self.started_at = start_time.timestamp()
        return self

    async def read_feed_ranges(self) -> AsyncIterator[dict[str, Any]]:
        yield {}

    async def by_page(self) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        for page in self._pages:
            self.read += 1
            yield self._items(page)

    async def _items(self, page: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        for item in page:
            yield item


@pytest.mark.parametrize("count", [6, 7])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
async def test_a_commit_cut_by_the_end_of_a_page_is_put_together(size: int, count: int) -> None:
    feed = [event(1, 1), event(1, 0), event(2, 2), event(2, 0), event(2, 1), event(3, 0)]
    container = Pages(*(feed[start : start + size] for start in range(0, len(feed), size)))
    reading = CosmosReading(container, BY_DEFAULT, EVENTS)  # type: ignore[arg-type]

    found = [document.fields["id"] async for page in reading.pages_of({}, count) for document in page]

    assert found == ["1.0", "1.1", "2.0", "2.1", "2.2", "3.0"]


async def test_documents_of_other_types_between_do_not_matter() -> None:
    other = {**event(1, 1), "id": "contact", "type": "contact"}
    container = Pages([event(1, 2), other], [other], [event(1, 0)])
    reading = CosmosReading(container, BY_DEFAULT, EVENTS)  # type: ignore[arg-type]

    found = [document.fields["id"] async for page in reading.pages_of({}, 2) for document in page]

    assert found == ["1.0", "1.2"]


@pytest.mark.parametrize(("ended_s", "count", "read"), [(1000, 1, 1), (1000, 0, 0), (100, 1, 3), (100, 0, 3)])
async def test_only_a_range_that_is_written_to_no_more_is_not_read_to_the_end_of_the_feed(
    ended_s: float, count: int, read: int
) -> None:
    container = Pages([event(1)], [{**event(2), "type": "contact"}], [event(3)])
    chosen = Range(0, int(time.time() - ended_s))
    reading = CosmosReading(container, BY_DEFAULT, chosen)  # type: ignore[arg-type]

    found = [document.fields["id"] async for page in reading.pages_of({}, count) for document in page]

    assert container.read == read
    assert found == ["1.None", "3.None"][: min(read, 2)]


async def test_where_the_feed_tells_no_places_its_order_stays() -> None:
    feed = [{name: value for name, value in event(1, order).items() if name != "_lsn"} for order in (2, 1)]
    container = Pages(feed, feed)
    reading = CosmosReading(container, BY_DEFAULT, EVENTS)  # type: ignore[arg-type]

    pages = [[document.fields["id"] for document in page] async for page in reading.pages_of({}, 4)]

    assert pages == [["1.2", "1.1"]] * 2


async def test_the_feed_is_started_shortly_before_the_range() -> None:
    container = Pages([])
    reading = CosmosReading(container, BY_DEFAULT, Range(1000, 2000))  # type: ignore[arg-type]

    assert [page async for page in reading.pages_of({}, 0)] == []
    assert container.started_at == 0.0  # nothing was counted in a range that has ended
    assert [page async for page in reading.pages_of({}, 1)] == []
    assert 900 <= container.started_at < 1000


async def test_the_events_of_one_action_are_read_to_the_end_where_it_may_be_within_text() -> None:
    text = {"partitionKey": "k", "data": '{"action": "A", "n": 1}'}
    feed = [event(lsn) | text for lsn in (1, 2, 3)]
    mapped = replace(BY_DEFAULT, fields=Fields(properties=(Property("n", Pointer.parse("/data/n")),)))
    reading = CosmosReading(Pages(*([each] for each in feed)), mapped, replace(EVENTS, action="A"))  # type: ignore[arg-type]

    count = await reading.count()

    assert count is None
    assert [each.lsn async for page in reading.pages() for each in page] == [1, 2, 3]
