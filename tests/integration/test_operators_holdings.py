"""Parked keys and orders that another process writes or removes at the same moment."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient

from local.stack.environment import DATABASE
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.operator.cli.quarantine_admin import Ordered, QuarantineAdmin
from relay.core.events import Reason
from relay.quarantine.quarantine import StoredQuarantine
from tests.support.outbox import event, rejected
from tests.support.stores import items_in

# A replica that lags answers every fourth read that may be old.
_OFTEN = 20


@pytest.fixture
async def elsewhere(cosmos: CosmosServer) -> AsyncIterator[ContainerProxy]:
    """The quarantine as another process sees it, with its own session."""
    async with CosmosClient.from_connection_string(cosmos.connection_string) as client:
        yield client.get_database_client(DATABASE).get_container_client("quarantine")


async def test_an_order_that_another_process_has_just_written_exists_already(
    quarantine: ContainerProxy, elsewhere: ContainerProxy
) -> None:
    ours, theirs = QuarantineAdmin(items_in(quarantine)), QuarantineAdmin(items_in(elsewhere))

    for number in range(_OFTEN):
        assert await theirs.order("k", f"e{number}") is Ordered.NEW
        assert await ours.order("k", f"e{number}") is Ordered.PENDING


async def test_a_key_that_another_process_has_just_parked_stays_parked(
    quarantine: ContainerProxy, elsewhere: ContainerProxy
) -> None:
    ours, theirs = QuarantineAdmin(items_in(quarantine)), StoredQuarantine(items_in(elsewhere))

    for number in range(_OFTEN):
        key = f"k{number}"
        await theirs.store(rejected(Reason.MESSAGE_REFUSED, event("e", key)), "i1", park=True)
        assert await ours.unpark(key) is False
