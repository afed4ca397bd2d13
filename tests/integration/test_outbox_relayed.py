"""From the outbox library through the relay to a subscriber."""

from __future__ import annotations

import json
import random

from azure.cosmos.aio import ContainerProxy

from outbox import UnitOfWork
from outbox_emulators.servicebus.server import ServiceBusServer
from tests.integration.conftest import RelayMaker
from tests.support.order_container import stored
from tests.support.orders import Order
from tests.support.subscriber import Subscriber, body, properties


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
