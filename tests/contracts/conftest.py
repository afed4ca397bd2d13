"""The stores of the quarantine, one after another, and the databases that have a feed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from relay.quarantine.items import Items
from tests.support import stores
from tests.support.feed_databases import play
from tests.support.stores import Store

__all__ = ["play"]


@pytest.fixture(params=stores.OPEN)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    async with stores.OPEN[request.param](request) as opened:
        yield opened


@pytest.fixture
def items(store: Store) -> Items:
    return store.items
