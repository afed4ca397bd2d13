"""The unit of work: collects changes and commits them together."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, TypeVar

from azure.cosmos.aio import ContainerProxy

from outbox_relay.outbox.context import ContainerContext
from outbox_relay.outbox.data_object import DataObject
from outbox_relay.outbox.entities import DomainEntity, check_ttl
from outbox_relay.outbox.repositories import EventRepository, Repository

TEN_DAYS_S = 864_000

E = TypeVar("E", bound=DomainEntity)


class UnitOfWork:
    """Entities and events that are committed together, all or none.

    Use it with `async with`. Only `commit()` writes; leaving the block discards uncommitted changes. A unit of
    work belongs to one task; any number of tasks can share the container.

    Args:
        container: The outbox container, with the partition key `/partitionKey` and time to live enabled.
        event_ttl: Seconds after which Cosmos DB removes event documents. Must exceed the longest outage of the
            relay.
        event_type: The `type` of event documents, by which the relay selects them.

    If `commit()` raises, everything is still tracked. Nothing was written, unless the message says that this is
    unknown: after CommitUncertain, and after PreconditionFailed of a commit without events.

    - Throttled, CommitUncertain: call `commit()` again without changes. Events keep their ids, so the commit is
      applied once.
    - PreconditionFailed, NotFound: call `rollback()`, read again and reapply the change.
    - Conflict: call `rollback()` and choose another id.
    - Refused and its subclasses: correct the entity or `forget()` it, then `commit()`.
    - ServiceRefused: fix the container or the permissions, then `commit()`.

    You can also leave the block and start over with a new unit of work. After Throttled or CommitUncertain,
    though, the commit may have been applied.
    """

    def __init__(
        self, container: ContainerProxy, *, event_ttl: int = TEN_DAYS_S, event_type: str = "domainEvent"
    ) -> None:
        check_ttl(event_ttl)
        self.context: ContainerContext = ContainerContext(container, event_ttl=event_ttl, event_type=event_type)
        self.events: EventRepository = EventRepository(self.context)
        self._open = False

    def repository(self, kind: type[E]) -> Repository[E]:
        """Return the repository of an entity class."""
        return Repository(self.context, kind)

    async def commit(self) -> list[DataObject[Any]]:
        """Write all changes and events in one transactional batch. The entities take their new ETags.

        Returns:
            The entities and events that were written; empty if nothing has changed.

        Raises:
            OutboxError: See above.
            RuntimeError: Called outside of the block, or while another task commits.
        """
        if not self._open:
            raise RuntimeError("commit() was called outside of `async with`, where changes are discarded.")
        return await self.context.save_changes()

    def rollback(self) -> None:
        """Discard everything read, created, changed and raised in this unit of work. Read entities again."""
        self.context.reset()

    def forget(self, entity: DomainEntity) -> None:
        """Leave an entity and its events out of the commit, and stop tracking it."""
        self.context.forget(entity)

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self.rollback()
