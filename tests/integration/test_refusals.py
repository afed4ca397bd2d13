"""Refusals of Service Bus, and the relay's verdict: an event is poison only by the outcome of its own transfer."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest
from azure.cosmos.aio import ContainerProxy

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.testing import keep_alive
from relay.backends.cosmos.backend import CosmosRelay
from relay.core import holds
from relay.core.errors import PublishError
from relay.core.verdict import REFUSALS
from relay.servicebus.pool import SenderPool
from relay.servicebus.publisher import ServiceBusPublisher
from tests.integration.conftest import BOTH_SENDERS, RelayMaker
from tests.support.broker import admin, inject, refuse, stop_refusing, topic_counts
from tests.support.outbox import event, events
from tests.support.quarantine import quarantined, settled
from tests.support.subscriber import received

SIZE = "amqp:link:message-size-exceeded"


async def records(quarantine: ContainerProxy) -> list[tuple[str, str]]:
    """Id and reason of what is in quarantine."""
    found = [(item["document"]["id"], item["reason"]) for item in await quarantined(quarantine)]
    return sorted(found)


async def read_what_came_while_idle(relay: CosmosRelay) -> None:
    """Have each idle sender read what the service has sent it, as the SDK does every 30 s.

    The pipelined sender reads it when it comes.
    """
    senders = cast(ServiceBusPublisher, relay._publisher)._senders
    for sender in senders._idle if isinstance(senders, SenderPool) else ():
        if sender._link is not None:
            await keep_alive(sender._link)


@BOTH_SENDERS
@pytest.mark.parametrize("kind", ["reject-then-detach", "reject"])
async def test_after_an_oversized_event_small_ones_of_other_keys_go_out(
    make_relay: RelayMaker, servicebus: ServiceBusServer, quarantine: ContainerProxy, kind: str
) -> None:
    relay = make_relay(RELAY_SENDERS="1")

    async def refuse_the_next() -> None:
        await inject(servicebus.admin_port, kind=kind, entity="domain-events", condition=SIZE, count=1)

    first = await settled(relay, [event("large", "a"), event("other", "b")], before=refuse_the_next)
    assert (first.already_published, first.quarantined) == (1, {"message-too-large": 1})
    await read_what_came_while_idle(relay)

    outcome = await relay.handle([event(f"e{number}", f"k{number}") for number in range(20)], "i2")

    assert (outcome.published, outcome.quarantined) == (20, {})
    assert await records(quarantine) == [("large", "message-too-large")]


@BOTH_SENDERS
async def test_a_message_of_exactly_the_links_limit_is_sent_and_a_larger_one_is_set_aside_unsent(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    relay = make_relay()
    # The largest that passes and the smallest that does not are neighbours.
    low, high = 200_000, 262_144
    while high - low > 1:
        middle = (low + high) // 2
        outcome = await relay.handle([event(f"e{middle}", "a", text="x" * middle)], "i1")
        low, high = (middle, high) if outcome.published else (low, middle)
    assert low > 261_500

    outcome = await relay.handle([event(f"f{high}", "a", text="x" * high), event("e1", "b")], "i1")

    assert (outcome.published, outcome.quarantined) == (1, {"message-too-large": 1})
    assert (await topic_counts(servicebus.admin_port))["refused"] == 0


@BOTH_SENDERS
async def test_what_the_service_ends_while_idle_costs_a_try_and_nothing_else(
    make_relay: RelayMaker, servicebus: ServiceBusServer, quarantine: ContainerProxy
) -> None:
    relay = make_relay(RELAY_SENDERS="1")
    await relay.handle([event("e0", "a")], "i1")
    for kind, silent, is_read in itertools.product(("detach-idle", "close-idle"), (True, False), (True, False)):
        ended = f"{kind}, silent: {silent}, read by the keep-alive: {is_read}"
        await inject(servicebus.admin_port, kind=kind, entity="domain-events", silent=silent)
        if is_read:
            await read_what_came_while_idle(relay)

        outcome = await relay.handle(events(ended, 3), "i2")

        assert outcome.published == 3, ended
    assert await records(quarantine) == []


@BOTH_SENDERS
async def test_a_missing_topic_is_named(make_relay: RelayMaker) -> None:
    relay = make_relay(SERVICEBUS_TOPIC="nowhere")

    with pytest.raises(PublishError, match="Create the topic that SERVICEBUS_TOPIC names"):
        await relay.handle([event("e0", "a")], "i1")


async def test_a_condition_that_comes_back_sets_nothing_aside(
    make_relay: RelayMaker, servicebus: ServiceBusServer, quarantine: ContainerProxy
) -> None:
    relay = make_relay()
    for attempt in range(2):
        await inject(
            servicebus.admin_port, kind="reject", entity="domain-events", condition="amqp:not-allowed", count=1
        )
        with pytest.raises(PublishError, match="tried again before it is set aside"):
            await relay.handle([event("e1", "a")], "i1", attempt)
        await relay.handle([event(f"o{attempt}", "b")], f"o{attempt}")

    outcome = await relay.handle([event("e1", "a")], "i1", 2)

    assert outcome.published == 1
    assert await records(quarantine) == []


@BOTH_SENDERS
async def test_one_condition_on_every_transfer_quarantines_nothing(
    make_relay: RelayMaker, servicebus: ServiceBusServer, quarantine: ContainerProxy
) -> None:
    relay = make_relay(RELAY_SENDERS="2")
    documents = [event(f"e{number}-{key}", f"k{key}") for number in range(3) for key in range(20)]
    fault = {"kind": "reject", "entity": "domain-events", "condition": "amqp:not-allowed", "count": 100_000}
    await inject(servicebus.admin_port, **fault)

    with pytest.raises(PublishError, match="tried again before it is set aside"):
        await relay.handle(documents, "i1")
    # Four keys in a row, twice the number of senders, and those under way: each is taken apart, the others wait.
    assert (await topic_counts(servicebus.admin_port))["refused"] < 60
    with pytest.raises(PublishError, match="refused alike"):
        await relay.handle(documents, "i1", 5)
    assert await records(quarantine) == []

    await admin(servicebus.admin_port, "DELETE", "faults")
    outcome = await relay.handle(documents, "i1", 1)
    assert (outcome.published + outcome.already_published, outcome.quarantined) == (60, {})
    subscriber = await received(servicebus.connection_string, 60)
    assert subscriber.ids() == {f"k{key}": [f"e{number}-{key}" for number in range(3)] for key in range(20)}


@pytest.mark.parametrize("keys", [1, 2])
async def test_a_topic_that_refuses_everything_for_a_while_has_nothing_quarantined(
    make_relay: RelayMaker, servicebus: ServiceBusServer, quarantine: ContainerProxy, keys: int
) -> None:
    relay = make_relay()
    await relay.handle([event("sound", "s")], "i1")
    documents = [event(f"e{number}", f"k{number}") for number in range(keys)]
    fault = {"kind": "reject", "entity": "domain-events", "condition": "amqp:not-allowed", "count": 100_000}
    await inject(servicebus.admin_port, **fault)

    # Repeats of an accepted event are refused too, so that nothing shows that the events are the cause.
    for attempt in range(REFUSALS + 1):
        with pytest.raises(PublishError, match="python -m relay quarantine add k0 e0"):
            await relay.handle(documents, "i2", attempt)
    await admin(servicebus.admin_port, "DELETE", "faults")
    outcome = await relay.handle(documents, "i2", REFUSALS + 1)

    assert (outcome.published, await records(quarantine)) == (keys, [])


@BOTH_SENDERS
async def test_an_event_that_the_service_fails_on_is_found_and_named_while_others_go_through(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    relay = make_relay(RELAY_SEND_TIMEOUT_S="5")
    documents = [*events("a", 8), *events("b", 3)]
    await refuse(servicebus.admin_port, "a-5", "amqp:internal-error")
    with pytest.raises(PublishError):
        await relay.handle(documents, "i1")

    with pytest.raises(PublishError, match="quarantine add") as raised:
        await relay.handle(documents, "i1", 3)

    assert "'a-5'" in str(raised.value)
    assert (await topic_counts(servicebus.admin_port))["accepted"] == 8
    await stop_refusing(servicebus.admin_port)
    outcome = await relay.handle(documents, "i1", 4)
    assert (outcome.published, outcome.already_published) == (3, 8)


@pytest.mark.parametrize("mode", ["skip", "block"])
async def test_an_order_sets_a_blocking_event_aside_at_its_next_attempt(
    make_relay: RelayMaker, servicebus: ServiceBusServer, quarantine: ContainerProxy, mode: str
) -> None:
    relay = make_relay(RELAY_SEND_TIMEOUT_S="5", RELAY_ON_POISON=mode)
    condition = "amqp:internal-error" if mode == "skip" else "amqp:not-allowed"
    await refuse(servicebus.admin_port, "a-1", condition)
    documents = [*events("a", 3), *events("b", 1)]
    with pytest.raises(PublishError):
        await relay.handle(documents, "i1")
    await quarantine.create_item(holds.order_item("a", "a-1"))

    outcome = await relay.handle(documents, "i1", 1)

    assert (outcome.published + outcome.already_published, outcome.quarantined) == (3, {"set-aside": 1})
    assert await records(quarantine) == [("a-1", "set-aside")]
    subscriber = await received(servicebus.connection_string, 3)
    assert subscriber.ids() == {"a": ["a-0", "a-2"], "b": ["b-0"]}


async def test_parked_events_follow_their_poisoned_predecessor_into_quarantine(
    make_relay: RelayMaker, servicebus: ServiceBusServer, quarantine: ContainerProxy
) -> None:
    relay = make_relay(RELAY_ON_POISON="park")
    await refuse(servicebus.admin_port, "a-1", "amqp:not-allowed")
    first = await settled(relay, [*events("a", 3), *events("b", 1), *events("c", 1)])
    await stop_refusing(servicebus.admin_port)

    second = await relay.handle([event("a-3", "a"), event("b-1", "b")], "i2")

    assert first.quarantined == {"message-refused": 1, "key-parked": 1}
    assert (second.published, second.quarantined) == (1, {"key-parked": 1})
    stored = [item async for item in quarantine.query_items("SELECT * FROM c WHERE c.type = 'quarantinedEvent'")]
    assert sorted((item["document"]["id"], item["reason"]) for item in stored) == [
        ("a-1", "message-refused"),
        ("a-2", "key-parked"),
        ("a-3", "key-parked"),
    ]


@BOTH_SENDERS
async def test_an_attempt_ends_before_the_host_ends_it_and_the_next_one_goes_on(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    servicebus.broker.ack_delay_ms = 100
    relay = make_relay(RELAY_SENDERS="1", RELAY_SEND_TIMEOUT_S="1", RELAY_ATTEMPT_TIMEOUT_S="2")
    documents = [event(f"e{number}", f"k{number}") for number in range(30)]

    with pytest.raises(PublishError, match="RELAY_ATTEMPT_TIMEOUT_S"):
        await relay.handle(documents, "i1")

    done = 0
    for attempt in itertools.count(1):
        try:
            outcome = await relay.handle(documents, "i1", attempt)
        except PublishError:
            continue
        done = outcome.published + outcome.already_published
        break
    assert done == 30
    subscriber = await received(servicebus.connection_string, 30)
    await subscriber.receive_rest()
    assert subscriber.ids() == {f"k{number}": [f"e{number}"] for number in range(30)}


@BOTH_SENDERS
async def test_a_throttled_topic_is_waited_for_and_is_no_poison(
    make_relay: RelayMaker, servicebus: ServiceBusServer
) -> None:
    throttled: dict[str, Any] = {"kind": "server-busy", "entity": "domain-events", "count": 1}
    await inject(servicebus.admin_port, **throttled)

    outcome = await make_relay(RELAY_SENDERS="1").handle(events("a", 2), "i1")

    assert (outcome.published, outcome.quarantined) == (2, {})
