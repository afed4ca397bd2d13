"""Unsupported operations are refused by name, and missing entities are named by their full address."""

from __future__ import annotations

import asyncio

import pytest
from proton import Link, Message, Terminus, symbol
from proton.reactor import LinkOption
from proton.utils import LinkDetached

from outbox_relay.emulators.servicebus.server import ServiceBusServer
from packages.emulators.tests.servicebus.raw_amqp import Management, connected
from tests.support.watchdog import WATCHDOG_S


class Coordinator(LinkOption):
    """A link that declares transactions, as clients open it (OASIS AMQP 1.0, part 4, section 4.2)."""

    def apply(self, link: Link) -> None:
        link.target.type = Terminus.COORDINATOR
        link.target.capabilities.put_object(symbol("amqp:local-transactions"))


class Via(LinkOption):
    """A link that sends to one entity by way of another."""

    def apply(self, link: Link) -> None:
        link.properties = {symbol("com.microsoft:transfer-destination-address"): "chats"}


async def test_transactions_and_sends_across_entities_are_refused_by_name(server: ServiceBusServer) -> None:
    def declare() -> None:
        with connected(server) as connection:
            with pytest.raises(LinkDetached, match=r"amqp:not-implemented.*Transactions are not supported"):
                connection.create_sender(None, options=Coordinator())
            with pytest.raises(LinkDetached, match=r"amqp:not-implemented.*'chats' by way of another entity"):
                connection.create_sender("orders", options=Via())

    await asyncio.to_thread(declare)


async def test_an_operation_that_is_unknown_is_refused_by_name(server: ServiceBusServer) -> None:
    def ask() -> tuple[int, str, str]:
        with connected(server) as connection:
            answer = Management(connection, "orders").ask("make-coffee")
            return answer.status, answer.error, answer.description

    status, error, description = await asyncio.to_thread(ask)

    assert (status, error) == (501, "amqp:not-implemented")
    assert "com.microsoft:make-coffee" in description


async def test_what_is_missing_is_named_by_its_full_address(server: ServiceBusServer) -> None:
    address = f"sb://127.0.0.1:{server.port}"
    paths = ("no", "events/Subscriptions/no", "no/$DeadLetterQueue")

    def attach() -> None:
        with connected(server) as connection:
            for path in paths:
                with pytest.raises(LinkDetached, match="amqp:not-found") as refused:
                    connection.create_receiver(path)
                missing = path.removesuffix("/$DeadLetterQueue")
                assert f"The messaging entity '{address}/{missing}' could not be found." in str(refused.value)
                assert "https://aka.ms/sbResourceMgrExceptions" in str(refused.value)
            with pytest.raises(LinkDetached, match=f"'{address}/no' could not be found"):
                connection.create_sender("no")
            with pytest.raises(LinkDetached, match="could not be found") as refused:
                Management(connection, "no")
            assert f"'{address}/no/$management'" in str(refused.value)

    await asyncio.to_thread(attach)


async def test_a_link_that_loses_its_entity_is_told_its_full_address(server: ServiceBusServer) -> None:
    loop = asyncio.get_running_loop()

    async def delete() -> None:
        server.broker.delete(server.broker.namespace.queues["orders"])

    def lose() -> None:
        with connected(server) as connection:
            sender, receiver = connection.create_sender("orders"), connection.create_receiver("orders", credit=0)
            asyncio.run_coroutine_threadsafe(delete(), loop).result(WATCHDOG_S)
            for use in (
                lambda: sender.send(Message(body=b"x", inferred=True)),
                lambda: receiver.receive(WATCHDOG_S),
            ):
                with pytest.raises(LinkDetached, match="amqp:not-found") as refused:
                    use()
                assert f"'sb://127.0.0.1:{server.port}/orders' could not be found" in str(refused.value)

    await asyncio.to_thread(lose)
