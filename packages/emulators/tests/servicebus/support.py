"""The broker as tests see it besides through the SDK: over its admin port, and into its queues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus._pyamqp.aio import AMQPClientAsync
from azure.servicebus._pyamqp.error import TokenAuthFailure
from azure.servicebus.aio import (
    ServiceBusClient,
    ServiceBusReceiver,
    _servicebus_receiver_async,
    _servicebus_sender_async,
)
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.support.watchdog import WATCHDOG_S


class _ImpatientAsyncio:
    """asyncio for the SDK's handlers, which look every 50 ms whether a link has opened."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, delay: float) -> None:
        await asyncio.sleep(min(delay, 0.002))


def spare_idle_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let azure-servicebus wait for nothing that is not on its way.

    Besides the above these waits are its keep-alive: a handler that closes waits up to a second for it to wake and
    end.
    """

    async def end_at_once(_: object) -> None:
        return None

    monkeypatch.setattr(AMQPClientAsync, "_keep_alive_async", end_at_once)
    for module in (_servicebus_sender_async, _servicebus_receiver_async):
        monkeypatch.setattr(module, "asyncio", _ImpatientAsyncio())


@contextmanager
def answered_as_missing(path: str) -> Iterator[None]:
    """Expect a token for this path to be answered with 404, which the SDK raises as a failure to authenticate."""
    with pytest.raises(ServiceBusAuthenticationError) as raised:
        yield
    refusal = raised.value.inner_exception
    assert isinstance(refusal, TokenAuthFailure)
    assert refusal.condition == b"amqp:client-error"
    assert refusal.status_code == 404
    assert f"/{path}' could not be found".encode() in refusal.status_description


async def send(client: ServiceBusClient, queue: str, *ids: str, **fields: Any) -> None:
    """Send messages whose bodies are their ids."""
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(each, message_id=each, **fields) for each in ids])


async def take(receiver: ServiceBusReceiver, count: int) -> list[Any]:
    """Receive this many messages."""
    found: list[Any] = []
    while len(found) < count:
        more = await receiver.receive_messages(count - len(found), max_wait_time=WATCHDOG_S)
        assert more, f"{count} messages expected, {len(found)} came"
        found += more
    return found


async def pages(receiver: ServiceBusReceiver, size: int = 1_000) -> list[list[ServiceBusReceivedMessage]]:
    """Peek every message, page by page."""
    found: list[list[ServiceBusReceivedMessage]] = []
    number = 1
    while page := await receiver.peek_messages(size, sequence_number=number):
        found.append(page)
        number = (page[-1].sequence_number or 0) + 1
    return found


class Broker:
    """A running broker."""

    def __init__(self, admin: aiohttp.ClientSession, server: ServiceBusServer) -> None:
        self.server = server
        self._admin = admin

    async def held(self, path: str) -> list[str | None]:
        """The ids of the messages of a queue or subscription, in order."""
        entries = self.server.broker.namespace.outlet(path).messages.peek(0, 1_000)
        return [entry.message.message_id for entry in entries]

    async def counts(self, path: str) -> dict[str, Any]:
        """The admin port's view of an entity."""
        counts: dict[str, Any] = (await self._ask("GET", "/admin/entities"))[path]
        return counts

    async def inject(self, **fault: Any) -> int:
        """Inject a fault; returns its id."""
        return int((await self._ask("POST", "/admin/faults", fault))["id"])

    async def end(self, fault_id: int | None = None) -> None:
        """End a fault, or all of them."""
        await self._ask("DELETE", "/admin/faults" + ("" if fault_id is None else f"/{fault_id}"))

    async def fault(self, fault_id: int) -> dict[str, Any]:
        """One fault as the admin port shows it."""
        found: dict[str, Any] = await self._ask("GET", f"/admin/faults/{fault_id}")
        return found

    async def pending(self) -> list[dict[str, Any]]:
        """The pending faults."""
        return list((await self._ask("GET", "/admin/faults"))["pending"])

    async def applied(self) -> dict[str, int]:
        """Number of times each kind was applied."""
        return dict((await self._ask("GET", "/admin/faults"))["applied"])

    async def edges(self) -> dict[str, int]:
        """Number of times each edge was met."""
        return dict((await self._ask("GET", "/admin/edges"))["edges"])

    async def restart(self, **options: Any) -> None:
        """Restart the broker."""
        await self._ask("POST", "/admin/restart", options)

    async def refused(self, method: str, path: str, body: Any, status: int) -> str:
        """Send a request that is refused with a status; returns the reason."""
        return str((await self._ask(method, path, body, status))["error"])

    async def _ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        async with self._admin.request(method, path, json=body) as answer:
            assert answer.status == status, await answer.text()
            return await answer.json()
