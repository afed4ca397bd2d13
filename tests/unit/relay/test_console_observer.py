"""What the observer makes of an outbox, its positions, a quarantine and a topic."""

from __future__ import annotations

import pytest

from relay.console.model import Stage
from relay.console.observer import Observer
from tests.support.console import InMemoryHosts, InMemoryOutbox, InMemoryTopic
from tests.support.in_memory_items import InMemoryItems

NOW = 1_000_010.0


class Deployment:
    def __init__(self) -> None:
        self.now = NOW
        self.outbox, self.topic, self.items, self.hosts = (
            InMemoryOutbox(),
            InMemoryTopic(),
            InMemoryItems(),
            InMemoryHosts(),
        )
        self.observer = Observer(self.outbox, self.topic, self.items, self.hosts, clock=lambda: self.now)

    def quarantine(
        self, identifier: str, reason: str = "message-too-large", key: str = "k", **more: object
    ) -> None:
        number = len(self.items.stored)
        self.items.put(
            {
                "id": f"r{number}",
                "partitionKey": key,
                "type": "quarantinedEvent",
                "reason": reason,
                "detail": "as the test says",
                "quarantinedAt": f"2026-01-01T00:00:{number % 60:02}.000000+00:00",
                "position": 0,
                "invocationId": "i",
                "document": {"id": identifier},
            }
        )


@pytest.fixture
def relayed() -> Deployment:
    return Deployment()


async def test_an_event_is_counted_as_committed_then_as_published(relayed: Deployment) -> None:
    relayed.outbox.commit("a")
    flow = (await relayed.observer.look()).flow
    assert (flow.committed, flow.waiting, flow.published, flow.lag_s) == (1, 1, 0, 10.0)

    relayed.outbox.pass_all()
    snapshot = await relayed.observer.look()

    assert (snapshot.flow.waiting, snapshot.flow.published, snapshot.flow.lag_s) == (0, 1, 0.0)
    assert [(each.id, each.stage, each.published_at) for each in snapshot.recent] == [("a", Stage.PUBLISHED, NOW)]


async def test_an_event_in_quarantine_is_never_counted_as_published(relayed: Deployment) -> None:
    relayed.outbox.commit("a")
    relayed.outbox.commit("b")
    relayed.outbox.commit("c")
    relayed.quarantine("b")
    relayed.quarantine("c", "key-parked")
    relayed.outbox.pass_all()

    snapshot = await relayed.observer.look()

    assert (snapshot.flow.published, snapshot.flow.quarantined) == (1, 2)
    assert [each.stage for each in snapshot.recent] == [Stage.PARKED, Stage.QUARANTINED, Stage.PUBLISHED]
