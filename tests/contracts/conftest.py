"""The stores of the quarantine, one after another."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from relay.quarantine.items import Items
from tests.support import stores
from tests.support.stores import Store


@pytest.fixture(params=stores.OPEN)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    async with stores.OPEN[request.param](request) as opened:
        yield opened


@pytest.fixture
def items(store: Store) -> Items:
    return store.items
