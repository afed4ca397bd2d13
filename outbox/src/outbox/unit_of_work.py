"""The unit of work: what is to be written together, and the moment it is written."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self, TypeVar

from azure.cosmos.aio import ContainerProxy

from outbox.context import ContainerContext
from outbox.data_object import DataObject
from outbox.entities import DomainEntity, check_ttl
from outbox.repositories import EventRepository, Repository

TEN_DAYS_S = 864_000

E = TypeVar("E", bound=DomainEntity)


class UnitOfWork:
    """Entities and events that are committed together: all of them or none.

    Use it with `async with`. Nothing is written without `commit()`; what was not committed is forgotten at the
    end of the block. It belongs to one task; the container is shared by any number of tasks.

    Args:
        container: The container of the outbox, with the partition key `/partitionKey` and time to live switched
            on.
        event_ttl: Seconds after which Cosmos DB removes event documents: longer than any outage of the relay
            may last.
        event_type: The `type` of event documents: what the relay looks for.

    After an error of `commit()` nothing of it is written (CommitUncertain: it is not known), and all is still
    tracked:

    - Throttled, CommitUncertain: call `commit()` again, as it is. Events keep their ids, so it is done once.
    - PreconditionFailed, NotFound: `rollback()`, read again and apply the change again.
    - Conflict: `rollback()`; the entity needs another id.
    - Refused and its kinds: put it right or `forget()` it, then `commit()`.
    - ServiceRefused: `commit()` again once the container is there, or the rights are.

    Or leave the block, and begin with a new unit of work; but what Throttled or CommitUncertain left may have
    been done.
    """

    def __init__(
        self, container: ContainerProxy, *, event_ttl: int = TEN_DAYS_S, event_type: str = "domainEvent"
    ) -> None:
        check_ttl(event_ttl)
        self.context = ContainerContext(container, event_ttl=event_ttl, event_type=event_type)
        self.events = EventRepository(self.context)
        self._open = False

    def repository(self, kind: type[E]) -> Repository[E]:
        """The repository of an entity class."""
        return Repository(self.context, kind)

    async def commit(self) -> list[DataObject[Any]]:
        """Write what was created, changed and raised, in one transactional batch, and go on with the new ETags.

        Returns:
            What was written: entities and events. Nothing changed, nothing written.

        Raises:
            OutboxError: See above.
            RuntimeError: The block is left, or a commit is under way in another task.
        """
        if not self._open:
            raise RuntimeError("commit() outside of `async with`: what was tracked is forgotten.")
        return await self.context.save_changes()

    def rollback(self) -> None:
        """Forget all that was read, created, changed and raised here; entities are to be read again."""
        self.context.reset()

    def forget(self, entity: DomainEntity) -> None:
        """Leave an entity and its events out of the commit."""
        self.context.forget(entity)

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self.rollback()
