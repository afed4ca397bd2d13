"""Entities that are deleted when unused (AutoDeleteOnIdle)."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from outbox_emulators.servicebus.ends import Entity
from outbox_emulators.servicebus.timers import TimerQueue


class IdleWatch:
    """Deletes entities that had no link, no use and no change for their AutoDeleteOnIdle."""

    def __init__(
        self, timers: TimerQueue, is_attached: Callable[[str], bool], delete: Callable[[Entity], None]
    ) -> None:
        self._timers = timers
        self._is_attached = is_attached
        self._delete = delete
        self._watches: WeakKeyDictionary[Entity, object] = WeakKeyDictionary()

    def watch(self, entity: Entity) -> None:
        """Watch an entity, with its settings as they are now."""
        watch = self._watches[entity] = object()
        self._schedule_look(entity, watch, self._last_used(entity))

    def _schedule_look(self, entity: Entity, watch: object, used_ms: int) -> None:
        limit = entity.management.auto_delete_on_idle_ms
        if limit is not None:
            self._timers.call_at(used_ms + limit, lambda: self._look(entity, watch))

    def _look(self, entity: Entity, watch: object) -> None:
        limit = entity.management.auto_delete_on_idle_ms
        if self._watches.get(entity) is not watch or entity.is_deleted or limit is None:
            return
        now = self._timers.now()
        used = now if self._is_attached(entity.path) else self._last_used(entity)
        if used + limit <= now:
            self._delete(entity)
        else:
            self._schedule_look(entity, watch, used)

    @staticmethod
    def _last_used(entity: Entity) -> int:
        return max(entity.times.updated_ms, entity.accessed_ms or 0)
