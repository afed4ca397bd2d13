"""Commit business objects and their domain events to Azure Cosmos DB in one transaction.

Derive your entities from `DomainEntity` and your events from `DomainEvent`::

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
    `DomainEntity(id=…, partition_key=…)`: both are optional keyword arguments. The id defaults to a random UUID,
    the partition key to the id. An entity is a dataclass, or a plain class that calls `super().__init__()`; for
    attrs classes and Pydantic models, import `DomainEntity` and `DomainEvent` from `outbox_relay.outbox.attrs`
    or `outbox_relay.outbox.pydantic`.

    Define: `created_event()`; `deleted_event()` if the entity can be deleted; `to_data()` and `from_data(data)`
    unless the annotations of its fields say what is stored: JSON values, dataclasses, attrs classes and Pydantic
    models, and lists, tuples, dicts and optionals of them (`lines: list[Line]`). Fields are stored under their
    names in camelCase. Members of the document that the class does not have are kept. `TypeError` names a field
    that needs more, or whose value would not be read back as it is.

    Call: `add_event(event)`, which keeps every event in the order raised (those of a new entity follow its created
    event), and `delete(ttl=None)`.

    Read: `domain_events`, `etag`, `is_new`, `deleted`.

    Class attributes: `document_type` (default: the class name with a lowercase first letter; `contact` gives its
    events the field `contactId`) and `ttl` (seconds; default -1, no expiry).

Events (`events`)
    `DomainEvent`: a frozen dataclass. Its fields are the payload, in camelCase, nested objects included. The
    library adds `id` (a random UUID), `createdAt` (RFC 3339, UTC), `action` (a class attribute; default: the class
    name) and the entity's id. With the class attribute `replaces_earlier = True`, an event replaces an earlier one
    with the same action in the same commit, and a new entity omits it, because its created event has the state.

    Each event document has `sequence`, its number within its entity (1, 2, 3 …, without gaps), and `order`, its
    position in its commit (0, 1, 2 …, in the order raised).

Unit of work (`unit_of_work`)
    `UnitOfWork(container, *, event_ttl=864_000, event_type="domainEvent")`: `repository(Order)`, `events` (an
    `EventRepository`, for events that an entity does not raise itself), `commit()`, `rollback()`,
    `forget(entity)`, `context` (the `ContainerContext`). Leaving the block without `commit()` writes nothing.
    After a commit the unit of work can be used again. A unit of work and the entities read in it belong to one
    task; any number of tasks can share the container.

Repositories (`repositories`)
    `work.repository(Order)` returns a `Repository(context, Order)`. Derive from it to add queries.

    - `create(entity)`
    - `await read(id, *, partition_key=None, if_none_match=None, include_deleted=False)`: the entity, with its
      `etag`
    - `update(entity, *, if_match=None)`: only needed to require a client's ETag, or for a change without an event;
      `commit()` saves every entity that was read here and has raised events
    - `delete(entity, *, if_match=None, ttl=None)`: a soft delete, with the entity's deleted event
    - `await read_page(page_size=50, continuation=None, *, partition_key=None, where=None, parameters=None,
      include_deleted=False)`: a `Page` with `items`, `continuation` (opaque, URL-safe, None on the last page) and
      `has_more`

Errors (`errors`)
    All derive from `OutboxError`, and each message says what to do. The number is `http_status`, the HTTP status
    that suits an API's response.

    - `NotFound` (404): no such entity, or it is deleted
    - `NotModified` (304): `if_none_match` is the ETag of the stored version
    - `Conflict` (409): the id is already in use
    - `PreconditionFailed` (412): the entity was changed since it was read: `rollback()`, read, reapply the change
    - `Throttled` (429): after the SDK's own retries: wait `retry_after` seconds, then `commit()` again
    - `Refused` (400): rejected before anything is sent; one of:

      - `BatchTooLarge` (413): more than 100 operations or 2 MB: `operations`, `size` (bytes)
      - `MixedPartitions`: more than one partition key: `partition_keys`
      - `InvalidDocument`: an id, partition key or data that cannot be stored or relayed unchanged: more than 63
        levels, an integer beyond ±(2^53 - 1), or a number that is not JSON (NaN)
      - `InvalidContinuation`: not a continuation of `read_page` with these arguments

    - `CommitUncertain` (503): the response was lost: `commit()` again; the commit is applied once
    - `Unavailable` (503): a read got no response: try again
    - `ServiceRefused` (502): any other error response, for example a missing container: `status`
"""

from __future__ import annotations

from outbox_relay.outbox.context import ContainerContext
from outbox_relay.outbox.data_object import DataObject, EntityState
from outbox_relay.outbox.entities import DomainEntity
from outbox_relay.outbox.errors import (
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
from outbox_relay.outbox.events import DomainEvent
from outbox_relay.outbox.paging import Page
from outbox_relay.outbox.repositories import EventRepository, Repository
from outbox_relay.outbox.unit_of_work import UnitOfWork

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
