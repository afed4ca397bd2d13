"""Business objects and their domain events, committed to Azure Cosmos DB together or not at all.

A service derives its classes from `DomainEntity` and its events from `DomainEvent`, and writes no framework code:

    @dataclass(frozen=True)
    class OrderPlaced(DomainEvent):
        item: str

    @dataclass(frozen=True)
    class OrderPaid(DomainEvent):
        amount: str

    @dataclass
    class Order(DomainEntity):
        item: str
        paid: bool = False

        def created_event(self) -> OrderPlaced:
            return OrderPlaced(self.item)

        def pay(self, amount: str) -> None:
            self.paid = True
            self.add_event(OrderPaid(amount))

    async with UnitOfWork(container) as work:        # container: azure.cosmos.aio.ContainerProxy, shared by all
        order = await work.repository(Order).read(order_id)
        order.pay("12.50")
        await work.commit()                           # the order and OrderPaid, in one transactional batch

Entities (`entities`)
    `DomainEntity(id=…, partition_key=…)`, both by keyword and optional: the id is a random UUID and the
    partition key the id, unless they are given. A dataclass, or a plain class that calls `super().__init__()`.
    To define: `created_event()`; `deleted_event()` where it can be deleted; `to_data()` and `from_data(data)`
    unless it is a dataclass of plain JSON values (these are stored under their names in camelCase).
    To use: `add_event(event)` (every event is kept, in the order raised; those of a new entity follow its created
    event), `delete(ttl=None)`, and to read: `domain_events`, `etag`, `is_new`, `deleted`.
    Class attributes: `document_type` (default: the class name with a small first letter; `contact` makes the
    events' `contactId`), `ttl` (seconds, default -1: for ever).

Events (`events`)
    `DomainEvent`: a frozen dataclass; its fields are the payload (camelCase, nested dataclasses too), beside
    `id` (random UUID), `createdAt` (RFC 3339, UTC), `action` (class attribute, default: the class name) and the
    entity's id. With the class attribute `replaces_earlier = True` the last event of a commit with that action
    takes the place of an earlier one, and a new entity, whose created event tells all, leaves it out.

    Each event document has `sequence`, its number among the events of its entity (1, 2, 3 …, without a gap), and
    `order`, its place among all events of its commit (0, 1, 2 …, what happened first first).

Unit of work (`unit_of_work`)
    `UnitOfWork(container, *, event_ttl=864_000, event_type="domainEvent")`: `repository(Order)`, `events` (an
    `EventRepository`, for events besides the entities' own), `commit()`, `rollback()`, `forget(entity)`, `context`
    (the `ContainerContext`). Leaving the block without `commit()` writes nothing. After a commit it may be used
    again. One unit of work, and what was read in it, belong to one task; the container is shared by any number.

Repositories (`repositories`)
    `Repository(context, Order)`, what `work.repository(Order)` gives, to be derived from where a service wants
    more:
    - `create(entity)`
    - `await read(id, *, partition_key=None, if_none_match=None, include_deleted=False)`: the entity, with its
      `etag`
    - `update(entity, *, if_match=None)`: needed only to demand an ETag of a client's, or for a change without
      an event: an entity that was read here and has raised events is saved by `commit()` as it is
    - `delete(entity, *, if_match=None, ttl=None)`: soft, with the entity's deleted event
    - `await read_page(page_size=50, continuation=None, *, partition_key=None, where=None, parameters=None,
      include_deleted=False)`: a `Page` with `items`, `continuation` (opaque, safe in a URL, None at the end),
      `has_more`

Errors (`errors`, all derived from `OutboxError`; each says what to do)
    NotFound              404  no such entity, or it is deleted
    NotModified           304  `if_none_match` is the stored version's ETag
    Conflict              409  the id is taken
    PreconditionFailed    412  someone else was first: `rollback()`, read again, apply the change again
    Throttled             429  `retry_after` (seconds), after the SDK's own retries: then `commit()` again
    Refused               400  cannot be done as asked, and is not sent: one of the following
      BatchTooLarge       413  more than 100 operations or 2 MB: `operations`, `size` (bytes)
      MixedPartitions          more than one partition key: `partition_keys`
      InvalidDocument          an id, a partition key or data that cannot be stored or relayed as it is: more than
                               63 levels, an integer beyond ±(2^53 - 1), what is no JSON
      InvalidContinuation      not a token of `read_page` with these arguments
    CommitUncertain       503  the answer was lost: `commit()` again, it is done once
    Unavailable           503  a read could not be answered: try again
    ServiceRefused        502  anything else the service says, such as a missing container: `status`
    The numbers are the HTTP status an API answers with best; they are each class's `http_status`.
"""

from __future__ import annotations

from outbox.context import ContainerContext
from outbox.data_object import DataObject, EntityState
from outbox.entities import DomainEntity
from outbox.errors import (
    BatchTooLarge,
    CommitUncertain,
    Conflict,
    InvalidContinuation,
    InvalidDocument,
    MixedPartitions,
    NotFound,
    NotModified,
    OutboxError,
    PreconditionFailed,
    Refused,
    ServiceRefused,
    Throttled,
    Unavailable,
)
from outbox.events import DomainEvent
from outbox.paging import Page
from outbox.repositories import EventRepository, Repository
from outbox.unit_of_work import UnitOfWork

__all__ = [
    "BatchTooLarge",
    "CommitUncertain",
    "Conflict",
    "ContainerContext",
    "DataObject",
    "DomainEntity",
    "DomainEvent",
    "EntityState",
    "EventRepository",
    "InvalidContinuation",
    "InvalidDocument",
    "MixedPartitions",
    "NotFound",
    "NotModified",
    "OutboxError",
    "Page",
    "PreconditionFailed",
    "Refused",
    "Repository",
    "ServiceRefused",
    "Throttled",
    "Unavailable",
    "UnitOfWork",
]
