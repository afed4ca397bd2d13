"""Where the SDK's inside is another than the pipelined sender was tested with, the pool of senders sends."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import azure.servicebus
import pytest
from azure.servicebus._pyamqp.aio import SendClientAsync
from azure.servicebus._pyamqp.aio._connection_async import Connection
from azure.servicebus.aio import ServiceBusSender

import relay.servicebus.pipelined
from outbox_emulators.servicebus.server import ServiceBusServer
from relay.events import by_partition_key
from relay.evidence import AcceptedLedger
from relay.servicebus import messages
from relay.servicebus.pool import SenderPool
from relay.servicebus.publisher import ServiceBusPublisher
from relay.servicebus.senders import Senders, senders
from relay.settings import Settings
from tests.support.outbox import event, sound

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
    """As another version might have it."""


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
        chosen = senders(settings)
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
    chosen = senders(settings)
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
    chosen = senders(settings)
    closing.append(chosen)

    await publish(chosen, servicebus)

    used: Any = chosen
    assert type(used._used).__name__ == "PipelinedSenders"
    assert "RELAY_PIPELINED" not in caplog.text
