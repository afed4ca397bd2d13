"""Builds what a commit would send, without a database."""

from __future__ import annotations

from typing import Any

from outbox_relay.outbox import EntityState
from outbox_relay.outbox.batch import Batch
from outbox_relay.outbox.context import ContainerContext
from outbox_relay.outbox.versions import restore
from tests.support.orders import Order


def documents(context: ContainerContext) -> list[dict[str, Any]]:
    return [source.to_document() for source in context.data_objects]


def batch(context: ContainerContext) -> Batch:
    return Batch.of(context.data_objects)


def read_order(context: ContainerContext, **members: Any) -> Order:
    """Order o1, tracked as if it had been read."""
    data = {"itemName": "tea", "deleted": False}
    document = {"id": "o1", "partitionKey": "o1", "type": "order", "data": data, "_etag": '"1"', **members}
    order = restore(Order, document)
    context.add(order, EntityState.READ)
    return order
