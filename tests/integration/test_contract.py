"""docs/contract/: documents of the library and the sample are as the schemas say, messages as AsyncAPI says."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy
from opentelemetry import trace

from outbox import UnitOfWork
from outbox_emulators.servicebus.server import ServiceBusServer
from samples.contacts.domain import Company, Contact, Name
from samples.contacts.service import Contacts
from tests.integration.conftest import BOTH_SENDERS, RelayMaker
from tests.support.contract import EVENT, WRITTEN, check_message
from tests.support.order_container import stored
from tests.support.orders import Customer, Order
from tests.support.orders import Name as CustomerName
from tests.support.outbox import event
from tests.support.subscriber import Subscriber

SPAN = trace.NonRecordingSpan(
    trace.SpanContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, False, trace.TraceFlags(1))
)

pytestmark = BOTH_SENDERS
# As tolerant as the relay is: these become messages without a property.
TOLERATED = [
    event("e1", "k") | {"sequence": "7", "traceparent": 7, "order": None, "ttl": "soon"},
    event("e2", "k", createdAt=1_700_000_000),
    event("e3/?#", "k", createdAt="yesterday") | {"sequence": 2**62},
]


async def write(container: ContainerProxy) -> None:
    """Write events of every kind, with the library and with the sample."""
    with trace.use_span(SPAN):
        async with UnitOfWork(container) as work:
            order = Order("tea ü\u2028", id="o1", note={"small": 1e-7, "deep": [[{}]]})
            work.repository(Order).create(order)
            work.repository(Customer).create(Customer(CustomerName("鍵", "😀"), id="c1", partition_key="o1"))
            await work.commit()
            order.pay("1.00")
            work.repository(Order).delete(order)
            await work.commit()
    contacts = Contacts(partial(UnitOfWork, container))
    contact = await contacts.create(Contact(Name("Jane", "Doe"), "jane@contoso.com", Company("Contoso")))
    await contacts.change(contact.id, lambda _: True, lambda read: read.set_name(Name("Zoë", "Doe")))
    await contacts.delete(contact.id, lambda _: True)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "event"),
        ({"RELAY_MESSAGE_FORMAT": "cloudevents", "RELAY_CLOUDEVENTS_SOURCE": "/contacts"}, "cloudEvent"),
    ],
    ids=["plain", "cloudevents"],
)
async def test_documents_and_messages_are_as_the_contract_says(
    make_relay: RelayMaker,
    servicebus: ServiceBusServer,
    settings: dict[str, str],
    name: str,
    container: ContainerProxy,
) -> None:
    await write(container)
    documents: list[dict[str, Any]] = await stored(container)
    outcome = await make_relay(**settings).handle([*documents, *TOLERATED], "i1")
    subscriber = Subscriber(servicebus.connection_string)
    await subscriber.receive(outcome.published)

    events = [document for document in documents if document["type"] == "domainEvent"]
    assert outcome.published == len(events) + len(TOLERATED) == 10
    for document in events:
        WRITTEN.validate(document)
    for document in TOLERATED:
        EVENT.validate(document)
        assert not WRITTEN.is_valid(document)
    for messages in subscriber.messages.values():
        for message in messages:
            check_message(message, name)
            assert message.session_id == message.partition_key
