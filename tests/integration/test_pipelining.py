"""The pipelined sender on the broker: credit, one transfer in flight for a key, a link that a transfer ends.

Each guarantee is broken once, by taking out what it rests on: the test must notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from outbox_emulators.servicebus.edges import Edge, Odds
from outbox_emulators.servicebus.server import ServiceBusServer
from relay.errors import PublishError
from relay.events import Event
from relay.servicebus import publisher
from relay.servicebus.pipelined import lanes
from relay.servicebus.pipelined.link import Link
from relay.servicebus.turn import Turn
from tests.integration.conftest import RelayMaker
from tests.support.broker import answer_oversized, inject, topic_counts
from tests.support.outbox import event, events
from tests.support.subscriber import Subscriber


def of_keys(count: int) -> list[dict[str, Any]]:
    return [event(f"e{number}", f"k{number}") for number in range(count)]


@pytest.mark.parametrize("heeds_credit", [True, False], ids=["credit is heeded", "control: it is ignored"])
async def test_no_transfer_leaves_without_credit(
    make_relay: RelayMaker, servicebus: ServiceBusServer, monkeypatch: pytest.MonkeyPatch, heeds_credit: bool
) -> None:
    servicebus.broker.edges.odds = Odds(delayed=0.0, little_credit=1.0)
    if not heeds_credit:
        unlimited = property(lambda self: 10**9, lambda self, value: None)
        monkeypatch.setattr(Link, "_delivery_limit", unlimited, raising=False)
    relay = make_relay()

    outcome = await relay.handle(of_keys(200), "i1")

    assert outcome.published == 200
    # Each further link was attached after a detach for a transfer without credit.
    assert (servicebus.broker.edges.met[Edge.LITTLE_CREDIT] == 1) is heeds_credit


async def test_a_hundred_keys_need_one_connection(make_relay: RelayMaker, servicebus: ServiceBusServer) -> None:
    servicebus.broker.ack_delay_ms = 20

    outcome = await make_relay().handle(of_keys(100), "i1")

    assert (outcome.published, outcome.sends) == (100, 100)
    assert len(servicebus.broker.connections) == 1


class _TwoInFlight(Turn):
    """Sends half of a key's events beside the other half."""

    async def send_in_order(self, events: Sequence[Event]) -> None:
        await asyncio.gather(super().send_in_order(events[:1]), super().send_in_order(events[1:]))


@pytest.mark.parametrize("one_in_flight", [True, False], ids=["one in flight", "control: two in flight"])
async def test_a_key_has_one_transfer_in_flight(
    make_relay: RelayMaker, servicebus: ServiceBusServer, monkeypatch: pytest.MonkeyPatch, one_in_flight: bool
) -> None:
    if not one_in_flight:
        monkeypatch.setattr(publisher, "Turn", _TwoInFlight)
    relay = make_relay()
    # The first transfer is refused for the moment, and sent again; what follows it has to wait.
    await inject(
        servicebus.admin_port, kind="reject", entity="domain-events", condition="amqp:internal-error", count=1
    )

    outcome = await relay.handle(events("a", 3, text="x" * 150_000), "i1")

    assert outcome.published == 3
    subscriber = Subscriber(servicebus.connection_string)
    await subscriber.receive(3)
    assert (subscriber.ids()["a"] == ["a-0", "a-1", "a-2"]) is one_in_flight


class _SettledWhenSent(Link):
    """Takes a transfer for accepted as soon as it has left."""

    def _begin_next(self) -> bool:
        begun = super()._begin_next()
        for delivery in self._unsettled.values():
            if not delivery.settled.done():
                delivery.settled.set_result(None)
        return begun


@pytest.mark.parametrize("waits", [True, False], ids=["disposition", "control: settled when sent"])
async def test_only_a_disposition_settles_a_transfer(
    make_relay: RelayMaker, servicebus: ServiceBusServer, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    if not waits:
        monkeypatch.setattr(lanes, "Link", _SettledWhenSent)
    relay = make_relay()
    await relay.handle([event("first", "z")], "i0")
    await inject(servicebus.admin_port, kind="cut-before-transfer", entity="domain-events", count=1)

    outcome = await relay.handle(of_keys(20), "i1")

    assert outcome.published == 20
    assert ((await topic_counts(servicebus.admin_port))["accepted"] == 21) is waits


@pytest.mark.parametrize("apart", [True, False], ids=["sent apart", "control: sent with the others"])
async def test_a_transfer_that_ends_the_link_holds_up_no_other_key(
    make_relay: RelayMaker, servicebus: ServiceBusServer, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    if not apart:
        never = property(lambda self: False, lambda self, value: None)
        monkeypatch.setattr(lanes.PipelinedSender, "_is_suspect", never, raising=False)
    # The limit is lower than the open link knows, and is announced by a detach alone.
    await answer_oversized(servicebus.admin_port, "detached-without-disposition")
    relay = make_relay()
    await relay.handle([event("first", "z")], "i0")
    await inject(servicebus.admin_port, kind="shrink-limit", entity="domain-events", bytes=4000)
    documents = [event("large", "large", text="x" * 5000), *of_keys(40)]

    with pytest.raises(PublishError, match="'large'") as raised:
        await relay.handle(documents, "i1")

    assert ("of 1 partition key(s)" in str(raised.value)) is apart
