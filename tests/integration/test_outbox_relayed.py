"""From the outbox library through the relay to a subscriber."""

from __future__ import annotations

import json
import random

import pytest
from azure.cosmos.aio import ContainerProxy
from opentelemetry import trace

from outbox import UnitOfWork
from outbox_emulators.servicebus.server import ServiceBusServer
from tests.integration.conftest import RelayMaker
from tests.support.order_container import stored
from tests.support.orders import Order
from tests.support.subscriber import Subscriber, body, properties

SPAN = trace.NonRecordingSpan(
    trace.SpanContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, False, trace.TraceFlags(1))
)


@pytest.mark.parametrize("key", ["p1", "鍵" * 128])
async def test_events_arrive_in_order_and_unchanged(
    make_relay: RelayMaker, servicebus: ServiceBusServer, key: str, container: ContainerProxy
) -> None:
    with trace.use_span(SPAN):
        async with UnitOfWork(container) as work:
            order = Order("tea ü\u2028", id="o1", partition_key=key, note={"small": 1e-7})
            work.repository(Order).create(order)
            await work.commit()
            order.resize(2)
            order.pay("1.00")
            written = await work.commit()
    # The change feed may return the documents of one transaction in any order: here, in reverse.
    documents = sorted(
        await stored(container), key=lambda document: (document["_lsn"], -document.get("order", -1))
    )
    outcome = await make_relay().handle(documents, "i1")

    assert (outcome.published, outcome.ignored, outcome.quarantined) == (3, 1, {})
    subscriber = Subscriber(servicebus.connection_string)
    await subscriber.receive(3)
    messages = subscriber.messages[key]
    assert [message.subject for message in messages] == ["OrderPlaced", "OrderResized", "OrderPaid"]
    assert [message.message_id for message in messages[1:]] == [event.id for event in written[1:]]
    assert [properties(message)["sequence"] for message in messages] == [1, 2, 3]
    assert b'"orderId":"o1"' in body(messages[0])
    assert b'"quantity":2' in body(messages[1])
    assert properties(messages[2])["traceparent"] == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert properties(messages[2])["createdAt"] == written[2].data["createdAt"]


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

    subscriber = Subscriber(servicebus.connection_string)
    await subscriber.receive(10)
    events = [json.loads(body(message)) for message in subscriber.messages["p"]]
    assert [data["orderId"] for data in events] == ["o1", "o2"] * 5
    assert [data["quantity"] for data in events] == [4, 4, 1, 1, 2, 2, 3, 3, 4, 4]
    numbers = [properties(message)["sequence"] for message in subscriber.messages["p"]]
    assert numbers == [number for number in range(1, 6) for _ in "12"]
