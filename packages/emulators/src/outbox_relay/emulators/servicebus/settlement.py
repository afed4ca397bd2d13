"""Outcomes of deliveries: reading them from AMQP, applying them to queues, confirming them.

How Service Bus reads the outcomes: "AMQP 1.0 protocol guide", learn.microsoft.com. It echoes the outcome it has
applied; `rejected` with an error is the answer when it could not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proton import Condition, Delivery, Described, symbol, ulong

from outbox_relay.emulators.servicebus import codec, outgoing
from outbox_relay.emulators.servicebus.entry import DESCRIPTION, REASON
from outbox_relay.emulators.servicebus.errors import Refused, ServiceBusError
from outbox_relay.emulators.servicebus.outgoing import CDelivery
from outbox_relay.emulators.servicebus.proton_values import to_codec
from outbox_relay.emulators.servicebus.queue import MessageQueue

_DESCRIBED_INFO: dict[symbol, Any] = {
    symbol("com.microsoft:timeout"): Described(symbol("com.microsoft:timespan"), 20_000_000),
    symbol("com.microsoft:origin"): Described(ulong(0x468C00000FFF), ["node", Described(symbol("a:b"), {})]),
}
"""Values of described types that no client knows."""


def condition_of(error: ServiceBusError) -> Condition:
    """Return the AMQP error for a refusal.

    azure-servicebus reads the third field of an error without checking that it is there, so it is always sent.
    """
    info: Any = {symbol("com.microsoft:is-local"): True}
    if isinstance(error, Refused) and error.described_info:
        info |= _DESCRIBED_INFO
    return Condition(error.condition, error.description, info)


def answer(delivery: Delivery, error: ServiceBusError | None) -> None:
    """Accept a delivery, or reject it with the error; either way it is settled."""
    note(delivery, error)
    delivery.settle()


def note(delivery: Delivery, error: ServiceBusError | None) -> None:
    """Accept a delivery, or reject it with the error, and leave it unsettled."""
    if error is None:
        delivery.update(Delivery.ACCEPTED)
    else:
        delivery.local.condition = condition_of(error)
        delivery.update(Delivery.REJECTED)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a receiver settles a message that it has locked."""

    state: int
    changes: Mapping[str, codec.Value] = field(default_factory=dict)
    reason: str | None = None
    description: str | None = None
    undeliverable: bool = False

    def apply(self, queue: MessageQueue, token: bytes) -> None:
        """Apply the outcome to the message. Raises MessageLockLost or SessionLockLost."""
        if self.state == Delivery.ACCEPTED:
            queue.complete(token)
        elif self.state == Delivery.RELEASED:
            queue.release(token)
        elif self.state == Delivery.REJECTED:
            queue.dead_letter(token, self.reason, self.description, self.changes)
        elif self.undeliverable:
            queue.defer(token, self.changes)
        else:
            queue.abandon(token, self.changes)


_WITHOUT_FIELDS = {int(state): Outcome(int(state)) for state in (Delivery.ACCEPTED, Delivery.RELEASED)}


def read(delivery: CDelivery) -> Outcome | None:
    """Return the outcome that the client has given a message, None when it has given no final one."""
    state = outgoing.state_of(delivery)
    if known := _WITHOUT_FIELDS.get(state):
        return known
    if state == Delivery.REJECTED:
        condition = outgoing.with_fields(delivery).remote.condition
        info = _by_name(condition.info if condition else None)
        reason, description = info.pop(REASON, None), info.pop(DESCRIPTION, None)
        return Outcome(state, changes(info), reason, description)
    if state == Delivery.MODIFIED:
        modified = outgoing.with_fields(delivery).remote
        return Outcome(state, changes(modified.annotations), undeliverable=modified.undeliverable)
    return None


def changes(fields: object) -> dict[str, codec.Value]:
    """Return the properties of a message that a map sets, each with the client's type, or with None removes."""
    return {name: to_codec(value) for name, value in _by_name(fields).items()}


def _by_name(fields: object) -> dict[str, Any]:
    """A map of AMQP fields as one of strings; anything else counts as empty."""
    return {str(key): value for key, value in fields.items()} if isinstance(fields, dict) else {}
