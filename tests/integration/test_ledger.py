"""An outage of one partition key that outlasts the duplicate detection window must not double its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.backends.cosmos.backend import CosmosRelay
from relay.backends.cosmos.containers import Containers
from relay.backends.cosmos.quarantine import CosmosItems
from relay.backends.cosmos.source import CosmosSource
from relay.config.clients import servicebus_client
from relay.config.settings import Settings
from relay.core.errors import PublishError
from relay.core.events import Event, Rejected
from relay.core.evidence import AcceptedLedger
from relay.core.holds import Holds
from relay.core.pipeline import Relay
from relay.quarantine.quarantine import StoredQuarantine
from relay.servicebus import messages
from relay.servicebus.pool import SenderPool
from relay.servicebus.publisher import ServiceBusPublisher
from tests.support.broker import TurnableClock, refuse, stop_refusing
from tests.support.outbox import event
from tests.support.subscriber import received

pytestmark = [pytest.mark.slow, pytest.mark.weekly]

WINDOW_MS = 5 * 60_000  # of infra/emulators/Config.json
KEYS = [f"k{number}" for number in range(30)]


class NothingPassed(CosmosSource):
    """A source without a lease that has passed anything."""

    async def passed_positions(self, items: Sequence[Event | Rejected], /) -> frozenset[int]:
        return frozenset()


class NoHolds(StoredQuarantine):
    """Holds nothing back: there is no Cosmos DB here."""

    async def holds(self) -> Holds:
        return Holds()


def relay_remembering(capacity: int, servicebus: ServiceBusServer) -> CosmosRelay:
    settings = Settings.from_environment(
        {
            "COSMOS": "AccountEndpoint=http://127.0.0.1:9/;AccountKey=AAAA;",
            "SERVICEBUS": servicebus.connection_string,
        }
    )
    pool = SenderPool(servicebus_client(settings.servicebus.connection), settings.servicebus.entity, 16)
    publisher = ServiceBusPublisher(
        pool,
        messages.plain,
        AcceptedLedger(capacity),
        send_timeout_s=settings.servicebus.send_timeout_s,
        attempt_timeout_s=settings.policy.attempt_timeout_s,
    )
    containers = Containers(settings.in_cosmos)
    source = NothingPassed(settings.selection, containers)
    return Relay(source, publisher, NoHolds(CosmosItems(containers)), duplicate_window_s=604_800)


@pytest.mark.parametrize(
    ("capacity", "copies"),
    [(1000, 1), (0, 3)],
    ids=["with the ledger each arrives once", "without it the other keys are sent on every attempt"],
)
async def test_an_outage_longer_than_the_window_does_not_double_the_neighbours(
    entities: Entities, capacity: int, copies: int
) -> None:
    clock = TurnableClock()
    async with ServiceBusServer(entities, clock=clock) as servicebus:
        relay = relay_remembering(capacity, servicebus)
        documents = [event(f"e-{key}", key) for key in KEYS]
        await refuse(servicebus.admin_port, "e-k12", "com.microsoft:timeout")
        for _ in range(2):
            with pytest.raises(PublishError, match=r"1 event\(s\) of 1 partition key\(s\)"):
                await relay.handle(documents, "i1")
            clock.ahead_ms += 2 * WINDOW_MS
        await stop_refusing(servicebus.admin_port)

        await relay.handle(documents, "i1")

        subscriber = await received(servicebus.connection_string, copies * (len(KEYS) - 1) + 1, receivers=30)
        await subscriber.receive_rest()
        await relay.close()
    arrived = {key: len(ids) for key, ids in subscriber.ids().items()}
    assert arrived == {key: 1 if key == "k12" else copies for key in KEYS}
