"""Entities deleted when unused, on a stopped clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from emulators.tests.servicebus.fakes import FakeClock
from emulators.tests.servicebus.plain_http import management_client
from outbox_emulators.servicebus.administration.idle import IdleWatch
from outbox_emulators.servicebus.ends import Entity
from outbox_emulators.servicebus.entities import Entities
from outbox_emulators.servicebus.entity_types import ManagementSettings, QueueEntity
from outbox_emulators.servicebus.server import ServiceBusServer
from outbox_emulators.servicebus.timers import system_clock
from outbox_emulators.servicebus.topic import Queue

LIMIT_MS = 300_000


class Idle:
    """A queue under watch."""

    def __init__(self, clock: FakeClock) -> None:
        self.attached = False
        self.deleted: list[Entity] = []
        self.queue = Queue(
            QueueEntity("q", management=ManagementSettings(auto_delete_on_idle_ms=LIMIT_MS)), clock.timers
        )
        self.watch = IdleWatch(clock.timers, lambda path: self.attached, self._delete)
        self.watch.watch(self.queue)

    def _delete(self, entity: Entity) -> None:
        self.deleted.append(entity)
        entity.delete()


@pytest.fixture
def idle(clock: FakeClock) -> Idle:
    return Idle(clock)


def test_an_idle_entity_is_deleted_once_its_time_is_over(idle: Idle, clock: FakeClock) -> None:
    clock.advance(LIMIT_MS - 1)
    assert idle.deleted == []
    clock.advance(1)
    clock.advance(LIMIT_MS)

    assert idle.deleted == [idle.queue]


def test_a_use_puts_it_off(idle: Idle, clock: FakeClock) -> None:
    clock.advance(1_000)
    idle.queue.inlet.accessed_ms = clock.now_ms

    clock.advance(LIMIT_MS - 1)
    assert idle.deleted == []
    clock.advance(1)
    assert idle.deleted == [idle.queue]


def test_a_link_puts_it_off_for_as_long_as_it_is_there(idle: Idle, clock: FakeClock) -> None:
    idle.attached = True
    for _ in range(5):
        clock.advance(LIMIT_MS)
    assert idle.deleted == []

    idle.attached = False
    clock.advance(LIMIT_MS)
    assert idle.deleted == [idle.queue]


@pytest.mark.parametrize("limit", [None, 10 * LIMIT_MS])
def test_what_it_is_set_up_with_last_holds(idle: Idle, clock: FakeClock, limit: int | None) -> None:
    management = replace(idle.queue.management, auto_delete_on_idle_ms=limit)
    idle.queue.update(replace(idle.queue.entity, management=management))
    idle.watch.watch(idle.queue)

    clock.advance(9 * LIMIT_MS)
    assert idle.deleted == []
    clock.advance(LIMIT_MS)
    assert bool(idle.deleted) is (limit is not None)


async def test_an_entity_without_use_or_links_goes_and_its_name_is_free() -> None:
    later_ms = 0
    limit = timedelta(milliseconds=LIMIT_MS)
    async with (
        ServiceBusServer(Entities(), edges=None, clock=lambda: system_clock() + later_ms) as server,
        management_client(server) as management,
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
    ):
        await management.create_queue("target")
        await management.create_queue("idle", auto_delete_on_idle=limit)
        await management.create_queue("used", auto_delete_on_idle=limit)
        await management.create_queue("forwards", auto_delete_on_idle=limit, forward_to="target")
        forwards = await management.get_queue("forwards")
        assert isinstance(forwards.auto_delete_on_idle, timedelta)
        assert forwards.auto_delete_on_idle.days == 10_675_199
        await management.create_queue(
            "circle", auto_delete_on_idle=limit, forward_to="target", requires_session=True
        )
        assert (await management.get_queue("circle")).auto_delete_on_idle == limit
        await management.delete_queue("circle")

        async with client.get_queue_receiver("used"):
            later_ms = LIMIT_MS + 60_000
            server.broker.namespace.timers.run_due()

            names = [queue.name async for queue in management.list_queues()]
            assert names == ["forwards", "target", "used"]
            with pytest.raises(ServiceBusAuthenticationError):
                await client.get_queue_sender("idle").__aenter__()
            await management.create_queue("idle")
