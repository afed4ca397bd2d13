"""The deliveries of links that carry messages out, as the engine's own C objects.

Proton's Delivery is made anew for every event, with a dictionary and two Dispositions. That takes longer than to
deliver a message and to settle it, so it is made only where an outcome has fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cproton import (
    pn_delivery,
    pn_delivery_remote_state,
    pn_delivery_settle,
    pn_delivery_settled,
    pn_delivery_update,
    pn_delivery_updated,
    pn_link_advance,
    pn_link_send,
)
from proton import Delivery, Sender

CDelivery = Any
"""A delivery of the engine, valid until it is settled: two of them are equal when they are the same delivery."""

is_updated: Callable[[CDelivery], bool] = pn_delivery_updated
"""The function that returns True if the client has changed the state of a delivery, or settled it."""

is_settled: Callable[[CDelivery], bool] = pn_delivery_settled
"""The function that returns True if the client has settled a delivery."""

state_of: Callable[[CDelivery], int] = pn_delivery_remote_state
"""The state that the client has given a delivery, 0 for none."""


def send(sender: Sender, tag: bytes, data: bytes) -> CDelivery:
    """Begin a delivery and hand all of it to the engine."""
    link = sender._impl
    delivery = pn_delivery(link, tag)
    pn_link_send(link, data)
    pn_link_advance(link)
    return delivery


def settle(delivery: CDelivery, state: int | None = None) -> None:
    """Settle a delivery, with a state that has no fields or with none."""
    if state is not None:
        pn_delivery_update(delivery, state)
    pn_delivery_settle(delivery)


def with_fields(delivery: CDelivery) -> Delivery:
    """Return proton's object for a delivery, which has the fields of its states."""
    return Delivery.wrap(delivery)  # type: ignore[no-any-return,no-untyped-call]
