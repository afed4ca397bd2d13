"""The pipelined sender on the broker: credit, order, a link that a transfer ends, and the pool in its place."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import azure.servicebus
import pytest
from azure.servicebus import TransportType
from azure.servicebus._pyamqp.aio import SendClientAsync
from azure.servicebus._pyamqp.aio._connection_async import Connection
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

import relay.servicebus.pipelined
from outbox_relay.emulators.servicebus.edges import Edge, Odds
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.listeners import Tls
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.config.settings import Settings
from relay.core.errors import PublishError
from relay.core.events import Event, by_partition_key
from relay.core.evidence import AcceptedLedger
from relay.servicebus import messages, publisher
from relay.servicebus.key_sender import KeySender
from relay.servicebus.messages import plain
from relay.servicebus.pipelined import link
from relay.servicebus.pipelined.credit import Credit
from relay.servicebus.pipelined.lanes import PipelinedSender, PipelinedSenders
from relay.servicebus.pipelined.link import LinkLostError
from relay.servicebus.pipelined.outgoing import Outgoing
from relay.servicebus.pool import SenderPool
from relay.servicebus.publisher import ServiceBusPublisher
from relay.servicebus.senders import Senders, senders
from relay.servicebus.transfers import Transfer
from tests.integration.conftest import RelayMaker
from tests.support.broker import answer_oversized, inject, topic_counts
from tests.support.outbox import event, events, sound
from tests.support.subscriber import received


def of_keys(count: int) -> list[dict[str, Any]]:
    return [event(f"e{number}", f"k{number}") for number in range(count)]


@pytest.mark.parametrize("heeds_credit", [True, False], ids=["credit is heeded", "control: it is ignored"])
async def test_no_transfer_leaves_without_credit(
    make_relay: RelayMaker, servicebus: ServiceBusServer, monkeypatch: pytest.MonkeyPatch, heeds_credit: bool
) -> None:
    servicebus.broker.edges.odds = Odds(delayed=0.0, little_credit=1.0)
    if not heeds_credit:
        unlimited = property(lambda self: 10**9, lambda self, value: None)
        monkeypatch.setattr(link, "Credit", type("Unlimited", (Credit,), {"delivery_limit": unlimited}))
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


class _TwoInFlight(KeySender):
    """Sends half of a key's events concurrently with the other half."""

    async def send_in_order(self, events: Sequence[Event]) -> None:
        await asyncio.gather(super().send_in_order(events[:1]), super().send_in_order(events[1:]))


@pytest.mark.parametrize("one_in_flight", [True, False], ids=["one in flight", "control: two in flight"])
async def test_a_key_has_one_transfer_in_flight(
    make_relay: RelayMaker, servicebus: ServiceBusServer, monkeypatch: pytest.MonkeyPatch, one_in_flight: bool
) -> None:
    if not one_in_flight:
        monkeypatch.setattr(publisher, "KeySender", _TwoInFlight)
    relay = make_relay()
    # The first transfer is refused for the moment, and sent again; what follows it has to wait.
    await inject(
        servicebus.admin_port, kind="reject", entity="domain-events", condition="amqp:internal-error", count=1
    )

    outcome = await relay.handle(events("a", 3, text="x" * 150_000), "i1")

    assert outcome.published == 3
    subscriber = await received(servicebus.connection_string, 3)
    assert (subscriber.ids()["a"] == ["a-0", "a-1", "a-2"]) is one_in_flight


class _SettledWhenSent(Outgoing):
    """Takes a transfer for accepted as soon as it has left."""

    def _begin_next(self) -> bool:
        begun = super()._begin_next()
        for delivery in self._deliveries.unsettled.values():
            if not delivery.result.done():
                delivery.result.set_result(None)
        return begun


@pytest.mark.parametrize("waits", [True, False], ids=["disposition", "control: settled when sent"])
async def test_only_a_disposition_settles_a_transfer(
    make_relay: RelayMaker, servicebus: ServiceBusServer, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    if not waits:
        monkeypatch.setattr(link, "Outgoing", _SettledWhenSent)
    relay = make_relay()
    await relay.handle([event("first", "z")], "i0")
    await inject(servicebus.admin_port, kind="cut-before-transfer", entity="domain-events", count=1)

    outcome = await relay.handle(of_keys(20), "i1")

    assert outcome.published == 20
    assert ((await topic_counts(servicebus.admin_port))["accepted"] == 21) is waits


def _not_suspected(self: PipelinedSender, transfer: Transfer, error: LinkLostError) -> None:
    raise error


@pytest.mark.parametrize("apart", [True, False], ids=["sent apart", "control: sent with the others"])
async def test_a_transfer_that_ends_the_link_holds_up_no_other_key(
    make_relay: RelayMaker, servicebus: ServiceBusServer, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    if not apart:
        monkeypatch.setattr(PipelinedSender, "_suspect", _not_suspected)
    # The limit is lower than the open link knows, and is announced by a detach alone.
    await answer_oversized(servicebus.admin_port, "detached-without-disposition")
    relay = make_relay()
    await relay.handle([event("first", "z")], "i0")
    await inject(servicebus.admin_port, kind="shrink-limit", entity="domain-events", bytes=4000)
    documents = [event("large", "large", text="x" * 5000), *of_keys(40)]

    with pytest.raises(PublishError, match="'large'") as raised:
        await relay.handle(documents, "i1")

    assert ("of 1 partition key(s)" in str(raised.value)) is apart


@pytest.fixture
async def over_tls(entities: Entities, tmp_path: Path) -> AsyncIterator[tuple[ServiceBusServer, ServiceBusClient]]:
    """A broker that speaks TLS, as the service always does, and a client of it."""
    async with ServiceBusServer(entities, tls=Tls(ca_file=tmp_path / "ca.pem")) as server:
        assert server.secured is not None
        assert server.secure_connection_strings is not None
        client = ServiceBusClient.from_connection_string(
            server.secure_connection_strings[0],
            # With TLS, the SDK takes a port other than the service's as a custom endpoint only.
            custom_endpoint_address=f"sb://localhost:{server.secured.port}",
            transport_type=TransportType.Amqp,
            connection_verify=str(server.secured.ca_file),
            retry_total=0,
        )
        async with client:
            yield server, client


async def test_batches_of_every_size_pass_over_tls(over_tls: tuple[ServiceBusServer, ServiceBusClient]) -> None:
    server, client = over_tls
    sizes = [10, 3_000, 60_000, 120_000, 240_000] * 12
    each_one = {
        f"k{number}": [sound(event(f"e{number}-{at}", f"k{number}", text="x" * size)) for at in range(3)]
        for number, size in enumerate(sizes)
    }
    senders = PipelinedSenders(client, "domain-events", len(sizes))
    publisher = ServiceBusPublisher(senders, plain, AcceptedLedger(), send_timeout_s=30, attempt_timeout_s=60)
    try:
        outcomes = await publisher.publish(each_one)
    finally:
        await senders.close()

    assert [outcome.error for outcome in outcomes] == [None] * len(sizes)
    assert (await topic_counts(server.admin_port))["accepted"] == 3 * len(sizes)
    held = server.broker.namespace.outlet("domain-events/Subscriptions/all").messages.peek(1, 1_000)
    ids = [entry.message.message_id or "" for entry in held]
    assert sorted(ids) == sorted(each.id for events in each_one.values() for each in events)
    assert all(
        [each for each in ids if each.startswith(f"e{number}-")] == [f"e{number}-{at}" for at in range(3)]
        for number in range(len(sizes))
    )


# Where the SDK's inside is another than the pipelined sender was tested with, the pool of senders sends


KEYS = [f"k{number}" for number in range(20)]
TOPIC = "domain-events"


@pytest.fixture
def settings(servicebus: ServiceBusServer) -> Settings:
    return Settings.from_environment(
        {
            "COSMOS": "AccountEndpoint=https://a.documents.azure.com:443/;AccountKey=YQ==;",
            "SERVICEBUS": servicebus.connection_string,
            "RELAY_SENDERS": "4",
        }
    )


@pytest.fixture
async def closing() -> AsyncIterator[list[Senders]]:
    made: list[Senders] = []
    yield made
    for each in made:
        await each.close()


@pytest.fixture
def imported_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter is imported for the first time, as it is in a process that starts with this SDK."""
    monkeypatch.setattr(relay.servicebus, "pipelined", relay.servicebus.pipelined)
    for name in [name for name in sys.modules if name.startswith("relay.servicebus.pipelined")]:
        monkeypatch.delitem(sys.modules, name)


async def _renamed(self: Any, channel: int, performative: Any) -> None:
    """Take an argument under the name that another version might give it."""


def _another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure.servicebus, "__version__", "7.16.0")


def _another_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "_process_incoming_frame", _renamed)


def _no_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ServiceBusSender, "_create_handler")


def _no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure.servicebus._pyamqp._decode", None)


DIFFERENCES = {
    "azure-servicebus is 7.16.0": _another_version,
    "_renamed takes other parameters": _another_signature,
    "'_create_handler'": _no_method,
    "azure.servicebus._pyamqp._decode": _no_module,
}


async def publish(chosen: Senders, servicebus: ServiceBusServer) -> None:
    """An event of each key, all of which are accepted."""
    sender = ServiceBusPublisher(chosen, messages.plain, AcceptedLedger(), send_timeout_s=10, attempt_timeout_s=60)

    outcomes = await sender.publish(by_partition_key(sound(event(f"e-{key}", key)) for key in KEYS))

    assert [(outcome.published, outcome.error) for outcome in outcomes] == [(1, None)] * len(KEYS)
    held = servicebus.broker.namespace.outlet(f"{TOPIC}/Subscriptions/all").messages
    assert sorted(str(entry.message.session_id) for entry in held.peek(0, 100)) == sorted(KEYS)


@pytest.mark.usefixtures("imported_anew")
@pytest.mark.parametrize("named", DIFFERENCES)
async def test_another_sdk_gets_the_pool_and_a_warning_that_names_the_difference(
    settings: Settings,
    servicebus: ServiceBusServer,
    closing: list[Senders],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    named: str,
) -> None:
    with monkeypatch.context() as changed:
        DIFFERENCES[named](changed)
        chosen = senders(settings.servicebus)
    closing.append(chosen)

    assert type(chosen) is SenderPool
    assert chosen.size == 4
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("RELAY_PIPELINED has no effect")
    assert named in warning
    await publish(chosen, servicebus)


async def test_what_shows_only_in_an_open_connection_leads_to_the_pool_too(
    settings: Settings,
    servicebus: ServiceBusServer,
    closing: list[Senders],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    chosen = senders(settings.servicebus)
    closing.append(chosen)
    assert type(chosen) is not SenderPool
    original: Any = SendClientAsync.auth_complete_async

    async def completed(self: Any) -> bool:
        is_complete = bool(await original(self))
        # Only the adapter asks for no interval.
        if is_complete and self._keep_alive_interval == 0:
            del self._connection._transport.reader
        return is_complete

    monkeypatch.setattr(SendClientAsync, "auth_complete_async", completed)
    relay = ServiceBusPublisher(
        chosen, messages.plain, AcceptedLedger(), send_timeout_s=10, attempt_timeout_s=60, pauses_s=()
    )
    (failed,) = await relay.publish(by_partition_key([sound(event("e", "k"))]))
    assert "The next attempt sends through the pool of senders" in str(failed.error)

    await publish(chosen, servicebus)

    (warning,) = [each.getMessage() for each in caplog.records if each.name.startswith("relay.")]
    assert warning.startswith("RELAY_PIPELINED has no effect")
    assert "reader" in warning


async def test_the_sdk_that_was_tested_gets_the_pipelined_sender(
    settings: Settings,
    servicebus: ServiceBusServer,
    closing: list[Senders],
    caplog: pytest.LogCaptureFixture,
) -> None:
    chosen = senders(settings.servicebus)
    closing.append(chosen)

    await publish(chosen, servicebus)

    used: Any = chosen
    assert type(used._used).__name__ == "PipelinedSenders"
    assert "RELAY_PIPELINED" not in caplog.text
