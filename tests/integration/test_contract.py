"""The events of the library and of the sample on their way through the relay, as the contract says."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy
from opentelemetry import trace

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.outbox import UnitOfWork
from samples.contacts.domain import Company, Contact, Name
from samples.contacts.service import Contacts
from tests.integration.conftest import BOTH_SENDERS, RelayMaker
from tests.support.contract import EVENT, WRITTEN, check_message
from tests.support.order_container import stored
from tests.support.orders import Customer, Order
from tests.support.orders import Name as CustomerName
from tests.support.outbox import event
from tests.support.subscriber import body, properties, received

SPAN = trace.NonRecordingSpan(
    trace.SpanContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, False, trace.TraceFlags(1))
)

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


@BOTH_SENDERS
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
    subscriber = await received(servicebus.connection_string, outcome.published)

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


# From the outbox library through the relay to a subscriber


async def test_events_of_several_entities_arrive_in_the_order_raised(
    make_relay: RelayMaker, servicebus: ServiceBusServer, container: ContainerProxy
) -> None:
    async with UnitOfWork(container) as work:
        one, two = (Order("tea", id=name, partition_key="p") for name in ("o1", "o2"))
        for order in (two, one):
            work.repository(Order).create(order)
        for number in range(1, 5):
            one.resize(number)
            two.resize(number)
        await work.commit()
    documents = await stored(container)
    random.Random(7).shuffle(documents)
    await make_relay().handle(documents, "i1")

    subscriber = await received(servicebus.connection_string, 10)
    events = [json.loads(body(message)) for message in subscriber.messages["p"]]
    assert [data["orderId"] for data in events] == ["o1", "o2"] * 5
    assert [data["quantity"] for data in events] == [4, 4, 1, 1, 2, 2, 3, 3, 4, 4]
    numbers = [properties(message)["sequence"] for message in subscriber.messages["p"]]
    assert numbers == [number for number in range(1, 6) for _ in "12"]
