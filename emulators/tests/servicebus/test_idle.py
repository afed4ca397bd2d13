"""Entities deleted when nobody uses them, on a clock that stands still."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emulators.tests.servicebus.fakes import FakeClock
from outbox_emulators.servicebus.administration.idle import IdleWatch
from outbox_emulators.servicebus.ends import Entity
from outbox_emulators.servicebus.entity_types import ManagementSettings, QueueEntity
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
