"""Events that make the service end a link, and links that end by themselves: who is named, and who is held up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest
from azure.servicebus.aio import ServiceBusClient

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.frames import performative
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.config.clients import Connection, servicebus_client
from relay.core.errors import RetryableError
from relay.core.events import Event
from relay.core.evidence import AcceptedLedger
from relay.core.results import KeyOutcome
from relay.servicebus import messages
from relay.servicebus.pipelined.lanes import PipelinedSenders
from relay.servicebus.pool import SenderPool
from relay.servicebus.publisher import ServiceBusPublisher
from relay.servicebus.senders import Senders
from tests.support.amqp_proxy import Connection as Proxied
from tests.support.amqp_proxy import Proxy
from tests.support.broker import admin, inject
from tests.support.outbox import event, sound
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S

TOPIC = "domain-events"

# How it ends, and what it says: nothing, what suits it, or what blames the topic, the rights or the service.
ENDS = [
    ("connection", ""),
    ("connection-with-error", ""),
    ("connection-with-error", "amqp:unauthorized-access"),
    ("reset", ""),
    ("session", ""),
    ("session-with-error", ""),
    ("session-with-error", "amqp:not-found"),
    ("link", ""),
    ("link-with-error", ""),
    ("link-with-error", "amqp:not-allowed"),
    ("link-with-error", "com.microsoft:entity-disabled"),
]


IDS = ["before", "before it", "culprit", "behind it"]


@pytest.fixture
async def client(servicebus: ServiceBusServer) -> AsyncIterator[ServiceBusClient]:
    async with servicebus_client(Connection(servicebus.connection_string), retry_total=0) as made:
        yield made


@pytest.fixture
async def senders(client: ServiceBusClient) -> AsyncIterator[PipelinedSenders]:
    made = PipelinedSenders(client, TOPIC, 256)
    yield made
    await made.close()


def publisher(
    senders: Senders, *, send_timeout_s: float = WATCHDOG_S, pauses_s: Sequence[float] = (0.01, 0.02)
) -> ServiceBusPublisher:
    return ServiceBusPublisher(
        senders,
        messages.plain,
        AcceptedLedger(),
        send_timeout_s=send_timeout_s,
        attempt_timeout_s=WATCHDOG_S,
        duplicate_window_s=600,
        pauses_s=pauses_s,
    )


def of_keys(prefix: str, count: int) -> dict[str, list[Event]]:
    return {
        f"{prefix}-{number}": [sound(event(f"{prefix}-{number}", f"{prefix}-{number}"))] for number in range(count)
    }


async def attempt(publisher: ServiceBusPublisher, events: Mapping[str, Sequence[Event]]) -> dict[str, KeyOutcome]:
    """The outcome of each key whose events were not all accepted before."""
    left = {key: [each for each in mine if not publisher.has_accepted(each)] for key, mine in events.items()}
    async with asyncio.timeout(WATCHDOG_S):
        outcomes = await publisher.publish({key: mine for key, mine in left.items() if mine})
    return {outcome.partition_key: outcome for outcome in outcomes}


async def end_on(server: ServiceBusServer, message_id: str, how: str, condition: str = "", ms: int = 0) -> int:
    return await inject(
        server.admin_port,
        kind="end-on-transfer",
        entity=TOPIC,
        how=how,
        condition=condition,
        message_id=message_id,
        ms=ms,
    )


def received(server: ServiceBusServer) -> dict[str, list[str]]:
    """The ids that a subscriber has got, in order, by session."""
    found: dict[str, list[str]] = {}
    for entry in server.broker.namespace.outlet(f"{TOPIC}/Subscriptions/all").messages.peek(0, 10_000):
        found.setdefault(str(entry.message.session_id), []).append(str(entry.message.message_id))
    return found


async def no_fault(server: ServiceBusServer, fault: int) -> None:
    await admin(server.admin_port, "DELETE", f"faults/{fault}")


async def test_an_event_that_ends_the_link_holds_up_no_other_key_and_is_named(
    client: ServiceBusClient, servicebus: ServiceBusServer
) -> None:
    """Each end with senders of its own, all at once."""

    async def ended(name: str, how: str, condition: str) -> None:
        senders = PipelinedSenders(client, TOPIC, 256)
        sender = publisher(senders)
        await attempt(sender, of_keys(f"{name} first", 1))
        # Until then nothing else is answered, so that all are in flight together.
        fault = await end_on(servicebus, f"{name} culprit", how, condition, ms=20)
        page = {"bad": [sound(event(f"{name} {each}", f"{name} bad")) for each in IDS]}
        page |= of_keys(f"{name} sound", 24)

        outcomes = await attempt(sender, page)
        bad = outcomes.pop("bad")
        assert bad.blocked_by == f"{name} culprit", bad.error
        assert [each.error for each in outcomes.values()] == [None] * 24
        assert [sender.has_accepted(each) for each in page["bad"]] == [True, True, False, False]
        await no_fault(servicebus, fault)
        assert (await attempt(sender, page))["bad"].error is None
        await senders.close()

    async with asyncio.TaskGroup() as ends:
        for how, condition in ENDS:
            ends.create_task(ended(f"{how} {condition}", how, condition), name=f"{how} {condition}")

    arrived = received(servicebus)
    assert sum(map(len, arrived.values())) == 29 * len(ENDS)
    assert all(arrived[key] == [f"{key[:-4]} {each}" for each in IDS] for key in arrived if key.endswith(" bad"))


async def test_an_event_that_ends_its_link_in_the_pool_is_named_though_nothing_else_is_left(
    client: ServiceBusClient, servicebus: ServiceBusServer
) -> None:
    pool = SenderPool(client, TOPIC, 1)
    sender = publisher(pool)
    await attempt(sender, of_keys("sound", 1))
    await end_on(servicebus, "culprit", "link-with-error", "amqp:not-allowed")

    outcomes = await attempt(sender, {"bad": [sound(event("culprit", "bad"))]})

    assert outcomes["bad"].blocked_by == "culprit"
    await pool.close()


async def test_a_link_that_ends_as_the_service_is_busy_names_nobody_and_is_spread_out(
    senders: PipelinedSenders, servicebus: ServiceBusServer
) -> None:
    sender = publisher(senders, pauses_s=(0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001))
    page = {"bad": [sound(event("culprit", "bad"))]} | of_keys("sound", 30)
    await end_on(servicebus, "culprit", "link-with-error", "com.microsoft:server-busy", ms=20)

    outcomes = [await attempt(sender, page) for _ in range(2)]

    assert all(outcome.blocked_by is None for each in outcomes for outcome in each.values())
    assert [key for key, outcome in outcomes[-1].items() if outcome.error is not None] == ["bad"]
    assert sum(map(len, received(servicebus).values())) == 30


class Transfers:
    """Counts the frames of transfers that pass a proxy, by what the test takes them for."""

    def __init__(self) -> None:
        self.keys: Counter[str] = Counter()

    def __call__(self, connection: Proxied, frame: bytes) -> None:
        found = performative(frame)
        assert found is not None
        for section in frame.split(b"x-opt-partition-key")[1:]:
            self.keys[str(codec.decode(section)[0])] += 1


@pytest.mark.parametrize("apart", [True, False], ids=["a link of its own", "control: the shared link"])
async def test_keys_that_come_later_are_not_in_flight_with_a_suspect(
    servicebus: ServiceBusServer, apart: bool
) -> None:
    async with (
        Proxy(servicebus.port) as proxy,
        servicebus_client(Connection(proxy.through(servicebus.connection_string)), retry_total=0) as client,
    ):
        senders = PipelinedSenders(client, TOPIC, 256)
        if not apart:
            senders.apart = senders.shared
        transfers = proxy.on_transfer = Transfers()
        sender = publisher(senders)
        await attempt(sender, of_keys("first", 1))
        await end_on(servicebus, "culprit", "reset", ms=40)
        page = {"bad": [sound(event("culprit", "bad"))]} | of_keys("sound", 31)

        narrowing = asyncio.create_task(attempt(sender, page))
        later = 0
        while not narrowing.done():
            if senders.suspects:
                await attempt(sender, of_keys(f"later-{later}", 10))
                later += 1
            await look_again()

        assert (await narrowing)["bad"].blocked_by == "culprit"
        assert later > 1
        sent = [count for key, count in transfers.keys.items() if key.startswith("later-")]
        assert len(sent) == 10 * later
        # One of them is repeated for each end of the culprit alone, to see whether anything is accepted.
        assert (sum(sent) <= 10 * later + 2) is apart
        await senders.close()


@pytest.mark.slow
@pytest.mark.weekly
async def test_waiting_to_be_sent_apart_is_no_time_of_a_transfer(
    senders: PipelinedSenders, servicebus: ServiceBusServer
) -> None:
    sender = publisher(senders, send_timeout_s=5.0)
    await attempt(sender, of_keys("first", 1))
    # The links end one after the other, each after half of the time.
    await end_on(servicebus, "culprit", "link", ms=2500)
    page = {"bad": [sound(event("culprit", "bad"))]} | of_keys("sound", 31)

    outcomes = await attempt(sender, page)

    assert outcomes.pop("bad").error is not None
    assert [str(each.error) for each in outcomes.values() if each.error is not None] == []


async def test_after_a_plain_reset_each_key_is_sent_once_more(servicebus: ServiceBusServer) -> None:
    async with (
        Proxy(servicebus.port) as proxy,
        servicebus_client(Connection(proxy.through(servicebus.connection_string)), retry_total=0) as client,
    ):
        senders = PipelinedSenders(client, TOPIC, 256)
        sender = publisher(senders)
        await attempt(sender, of_keys("first", 1))
        servicebus.broker.ack_delay_ms = 50
        transfers = Transfers()

        def reset_at_the_last(connection: Proxied, frame: bytes) -> None:
            before = transfers.keys.total()
            transfers(connection, frame)
            if before == 199 and transfers.keys.total() == 200:
                connection.reset()

        proxy.on_transfer = reset_at_the_last
        outcomes = await attempt(sender, of_keys("k", 200))

        assert [each.error for each in outcomes.values()] == [None] * 200
        assert set(transfers.keys.values()) <= {1, 2}
        assert (proxy.connections, bool(senders.suspects)) == (2, False)

        transfers = Transfers()
        proxy.on_transfer = transfers
        await attempt(sender, of_keys("later", 200))

        assert (set(transfers.keys.values()), proxy.connections) == ({1}, 3)
        assert sum(map(len, received(servicebus).values())) == 401
        await senders.close()


@pytest.mark.parametrize("keys", [1, 8])
async def test_an_outage_names_nobody(senders: PipelinedSenders, servicebus: ServiceBusServer, keys: int) -> None:
    sender = publisher(senders, pauses_s=())
    await attempt(sender, of_keys("first", 5))
    outage = await end_on(servicebus, "*", "connection")
    page = of_keys("k", keys)

    outcomes = [await attempt(sender, page) for _ in range(3)]

    assert all(isinstance(outcome.error, RetryableError) for each in outcomes for outcome in each.values())
    assert {outcome.blocked_by for each in outcomes for outcome in each.values()} == {None}
    await no_fault(servicebus, outage)
    assert [outcome.error for outcome in (await attempt(sender, page)).values()] == [None] * keys
