"""A replay's reading of the change feed, however its pages are cut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from relay.operations.committed import Outbox, Range

EVENTS = Range("domainEvent", 0, 10)


def event(lsn: int, order: int | None = None) -> dict[str, Any]:
    document = {"id": f"{lsn}.{order}", "type": "domainEvent", "_ts": 5, "_lsn": lsn}
    return document if order is None else {**document, "order": order}


class Pages:
    """A container whose change feed comes in these pages."""

    id = "data"

    def __init__(self, *pages: list[dict[str, Any]]) -> None:
        self._pages = pages

    def query_items_change_feed(self, **_: Any) -> Pages:
        return self

    async def by_page(self) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        for page in self._pages:
            yield self._items(page)

    async def _items(self, page: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        for item in page:
            yield item


@pytest.mark.parametrize("count", [6, 7])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
async def test_a_commit_cut_by_the_end_of_a_page_is_put_together(size: int, count: int) -> None:
    feed = [event(1, 1), event(1, 0), event(2, 2), event(2, 0), event(2, 1), event(3, 0)]
    container = Pages(*(feed[start : start + size] for start in range(0, len(feed), size)))
    outbox = Outbox(container, container)  # type: ignore[arg-type]

    found = [document["id"] async for page in outbox.pages(EVENTS, {}, count) for document in page]

    assert found == ["1.0", "1.1", "2.0", "2.1", "2.2", "3.0"]


async def test_documents_of_other_types_between_do_not_matter() -> None:
    other = {**event(1, 1), "id": "contact", "type": "contact"}
    container = Pages([event(1, 2), other], [other], [event(1, 0)])
    outbox = Outbox(container, container)  # type: ignore[arg-type]

    found = [document["id"] async for page in outbox.pages(EVENTS, {}, 2) for document in page]

    assert found == ["1.0", "1.2"]
