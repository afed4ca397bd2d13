"""Sequences of operations on a session queue of the local Service Bus through azure-servicebus, against lists."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any
from unittest.mock import patch

from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp.aio import AMQPClientAsync
from azure.servicebus.aio import ServiceBusClient, _servicebus_receiver_async, _servicebus_sender_async
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.fuzz.budget import DOCUMENTS, tried, trying
from tests.support.watchdog import WATCHDOG_S

_MOST_DELIVERIES = 3
_ENTITIES = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "n",
                "Queues": [
                    {
                        "Name": "q",
                        "Properties": {
                            "RequiresSession": True,
                            "RequiresDuplicateDetection": True,
                            "MaxDeliveryCount": _MOST_DELIVERIES,
                        },
                    }
                ],
            }
        ]
    }
}
_SESSIONS = st.sampled_from(["s", "鍵"])
_SETTLEMENTS = st.sampled_from(["complete", "abandon", "dead_letter"])


class ServiceBusHistories(RuleBasedStateMachine):
    """The model: by session, the messages that wait with their deliveries; and those that are dead."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._waiting: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self._dead: list[str] = []
        self._seen: set[str] = set()
        self._run(self._start())
        tried["histories"] += 1

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        tried["operations"] += 1
        return self._runner.run(coroutine)

    async def _start(self) -> None:
        self._open = AsyncExitStack()
        # A handler that closes waits up to a second for the SDK's keep-alive to wake and end.
        self._open.enter_context(patch.object(AMQPClientAsync, "_keep_alive_async", end_at_once))
        for module in (_servicebus_sender_async, _servicebus_receiver_async):
            self._open.enter_context(patch.object(module, "asyncio", ImpatientAsyncio()))
        self._server = await self._open.enter_async_context(ServiceBusServer(Entities.from_document(_ENTITIES)))
        self._client = await self._open.enter_async_context(
            ServiceBusClient.from_connection_string(
                self._server.connection_string, retry_total=0, socket_timeout=0.05
            )
        )
        self._sender = await self._open.enter_async_context(self._client.get_queue_sender("q"))

    def teardown(self) -> None:
        self._run(self._open.aclose())
        self._runner.close()

    @rule(session=_SESSIONS, ids=st.lists(st.integers(0, 30).map(str), min_size=1, max_size=5))
    def send(self, session: str, ids: list[str]) -> None:
        messages = [ServiceBusMessage(each, message_id=each, session_id=session) for each in ids]
        self._run(self._sender.send_messages(messages))
        for each in ids:
            if each not in self._seen:
                self._seen.add(each)
                self._waiting[session].append((each, 0))

    @precondition(lambda self: any(self._waiting.values()))
    @rule(data=st.data(), settlements=st.lists(_SETTLEMENTS, min_size=1, max_size=4))
    def receive(self, data: st.DataObject, settlements: list[str]) -> None:
        session = data.draw(st.sampled_from(sorted(key for key, held in self._waiting.items() if held)))
        self._run(self._receive(session, settlements))

    async def _receive(self, session: str, settlements: list[str]) -> None:
        held = self._waiting[session]
        async with self._client.get_queue_receiver("q", session_id=session) as receiver:
            for settlement in settlements[: len(held)]:
                if not held:
                    return
                identifier, deliveries = held[0]
                (message,) = await receiver.receive_messages(1, max_wait_time=WATCHDOG_S)
                assert (message.message_id, str(message)) == (identifier, identifier)
                assert message.delivery_count == deliveries
                await getattr(receiver, f"{settlement}_message")(message)
                self._settled(session, settlement)

    def _settled(self, session: str, settlement: str) -> None:
        identifier, deliveries = self._waiting[session].pop(0)
        if settlement == "abandon" and deliveries + 1 < _MOST_DELIVERIES:
            self._waiting[session].insert(0, (identifier, deliveries + 1))
        elif settlement != "complete":
            self._dead.append(identifier)

    @invariant()
    def the_broker_holds_what_the_model_holds(self) -> None:
        namespace = self._server.broker.namespace
        found: dict[str, list[str]] = defaultdict(list)
        for entry in namespace.outlet("q").messages.peek(0, 1000):
            found[entry.message.session_id or ""].append(entry.message.message_id or "")
        assert found == {
            session: [identifier for identifier, _ in held] for session, held in self._waiting.items() if held
        }
        dead = namespace.outlet("q").dead_letters.peek(0, 1000)
        # They keep their sequence numbers, and so are in the order in which they were sent.
        assert {entry.message.message_id for entry in dead} == set(self._dead)


class ImpatientAsyncio:
    """asyncio for the SDK's handlers, which look every 50 ms whether a link has opened."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, delay: float) -> None:
        await asyncio.sleep(min(delay, 0.002))


async def end_at_once(_: object) -> None:
    """A keep-alive that there is no need of here."""


TestServiceBusHistories = ServiceBusHistories.TestCase
TestServiceBusHistories.settings = trying(DOCUMENTS // 400, stateful_step_count=8)
