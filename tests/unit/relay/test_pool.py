"""A pooled sender whose transfer was given up, and one whose transfer has ended its link."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus._pyamqp.error import AMQPLinkError
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError, ServiceBusServerBusyError

from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from relay.config.clients import Connection, servicebus_client
from relay.core.errors import PoisonError, RetryableError
from relay.servicebus import messages
from relay.servicebus.link_suspects import GRACE_S
from relay.servicebus.pool import SenderPool
from relay.servicebus.transfers import alone, in_batches
from tests.support import virtual_time
from tests.support.amqp_proxy import Connection as Proxied
from tests.support.amqp_proxy import Proxy
from tests.support.telemetry import installed
from tests.support.waiting import look_again
from tests.support.watchdog import WATCHDOG_S
from tests.unit.relay.topics import FakeTopic, Link, event, events

ENTITIES = Path(__file__).resolve().parents[3] / "infra" / "emulators" / "Config.json"
TOPIC = "domain-events"
CUT = ServiceBusConnectionError(message="cut")
DETACHED = ServiceBusError("detached", error=AMQPLinkError(b"amqp:link:detach-forced", description="detached"))


class Socket:
    """The SDK's transport of bytes, with as many in its buffer as a test says."""

    def __init__(self, buffered: int) -> None:
        self._buffered = buffered
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self._buffered

    def abort(self) -> None:
        self.aborted = True


def connect(link: Link, *, buffered: int, sent: tuple[bool, ...]) -> Socket:
    """Give the link the inside of the SDK's: a socket, and the deliveries that have no answer."""
    socket = Socket(buffered)
    link._handler = SimpleNamespace(  # type: ignore[attr-defined]
        _connection=SimpleNamespace(
            _transport=SimpleNamespace(writer=SimpleNamespace(transport=socket)),
        ),
        _link=SimpleNamespace(_pending_deliveries=[SimpleNamespace(sent=each) for each in sent]),
    )
    return socket


def never() -> None:
    pytest.fail("called")


async def test_what_is_accepted_after_it_was_given_up_is_noted_once_and_its_connection_is_closed() -> None:
    async with ServiceBusServer(Entities.from_file(ENTITIES)) as server, Proxy(server.port) as proxy:
        client = servicebus_client(Connection(proxy.through(server.connection_string)), retry_total=0)
        pool = SenderPool(client, TOPIC, 1)
        late: asyncio.Queue[None] = asyncio.Queue()
        began = time.monotonic()
        async with asyncio.timeout(WATCHDOG_S), pool.acquire() as sender:
            await sender.limits(WATCHDOG_S)
            sending = asyncio.create_task(
                sender.send(
                    alone(event("a"), messages.plain), WATCHDOG_S, lambda: None, lambda: late.put_nowait(None)
                )
            )

            def give_up(_: Proxied, __: bytes) -> None:
                # It has left, and the service has not got it.
                sending.cancel()

            proxy.on_transfer = give_up
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert sender.known_limits is None

            await late.get()

            assert 0 < pool.late._longest_s < time.monotonic() - began
            while proxy.open_connections:
                await look_again()
            await pool.close()
        assert late.empty()


@pytest.mark.parametrize(
    ("buffered", "sent", "answers_after_s", "is_noted"),
    [
        (0, (True,), 5, True),
        (0, (True, True), 5, True),
        (1, (True,), 5, False),
        (0, (False,), 5, False),
        (0, (True, False), 5, False),
        # Not even if it would be accepted soon.
        (1, (False,), 1.2, False),
        (0, (True,), 1 + GRACE_S - 2, True),
        (0, (True,), 1 + GRACE_S + 2, False),
    ],
)
def test_a_transfer_that_was_given_up_is_awaited_for_a_while_if_it_has_left_whole(
    buffered: int, sent: tuple[bool, ...], answers_after_s: float, is_noted: bool
) -> None:
    async def attempts() -> None:
        topic = FakeTopic()
        publisher = topic.publisher(send_timeout_s=1, pauses_s=())
        await publisher.publish(events("opens the link", key="first"))
        socket = connect(topic.links[0], buffered=buffered, sent=sent)
        topic.answers_after_s = answers_after_s

        (failed,) = await publisher.publish(events("a"))
        assert (failed.published, failed.unsent) == (0, 1)
        assert "earlier transfer" not in str(failed.error)
        # Its bytes must not leave later, behind its successor.
        assert socket.aborted == (buffered > 0 or not all(sent))
        await asyncio.sleep(60)

        assert publisher.has_accepted(event("a")) == is_noted
        assert topic.ids() == (["a"] if is_noted else [])
        assert topic.links[0].closed
        topic.answers_after_s = 60
        (failed,) = await publisher.publish(events("b"))
        said = f"it accepted an earlier transfer after {answers_after_s:.1f} s: set a larger value"
        assert (said in str(failed.error)) == is_noted
        await publisher.close()

    virtual_time.run(attempts())


def test_what_is_accepted_late_is_counted_with_the_seconds_that_it_took() -> None:
    telemetry = installed()
    telemetry.forget()

    async def attempt() -> None:
        topic = FakeTopic()
        publisher = topic.publisher(send_timeout_s=1, pauses_s=())
        await publisher.publish(events("opens the link", key="first"))
        connect(topic.links[0], buffered=0, sent=(True,))
        topic.answers_after_s = 5
        await publisher.publish(events("a", "b"))
        await asyncio.sleep(60)
        await publisher.close()

    virtual_time.run(attempt())

    counted = telemetry.metrics()
    assert counted.total("relay.events.published") == 3
    assert counted.sum("relay.batch.events") == 3
    assert counted.sum("relay.send.duration") == 5


def test_closing_does_not_wait_for_what_was_given_up() -> None:
    async def attempt() -> None:
        topic = FakeTopic()
        publisher = topic.publisher(send_timeout_s=1, pauses_s=())
        await publisher.publish(events("opens the link", key="first"))
        connect(topic.links[0], buffered=0, sent=(True,))
        topic.answers_after_s = 20
        await publisher.publish(events("a"))

        await publisher.close()

        assert asyncio.get_running_loop().time() == 1
        assert topic.links[0].closed
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtual_time.run(attempt())


@pytest.mark.parametrize("closes", [True, False], ids=["closes", "does not close"])
def test_the_socket_of_a_link_that_was_given_up_is_closed_whatever_the_sdk_does(closes: bool) -> None:
    async def attempt() -> None:
        topic = FakeTopic(answers=[None, CUT])
        publisher = topic.publisher(pauses_s=())
        await publisher.publish(events("opens the link", key="first"))
        socket = connect(topic.links[0], buffered=0, sent=())
        topic.links[0].hangs_on_close = not closes
        await publisher.publish(events("a"))

        await publisher.close()

        assert socket.aborted
        assert topic.links[0].closed == closes

    virtual_time.run(attempt())


def test_the_socket_of_a_link_that_does_not_open_is_closed() -> None:
    async def attempt() -> None:
        topic = FakeTopic()
        pool = SenderPool(topic.client(), TOPIC, 1)
        link: Any = pool.new_link()
        pool.new_link = lambda: link  # type: ignore[method-assign]
        socket = connect(link, buffered=0, sent=())
        link.hangs = True
        async with pool.acquire() as sender:
            with pytest.raises(RetryableError, match="RELAY_SEND_TIMEOUT_S"):
                await sender.send(alone(event("a"), messages.plain), 1, never, never)

            assert socket.aborted
            # Nothing is sent on it any more.
            link = topic.client().get_topic_sender(TOPIC)
            await sender.send(alone(event("b"), messages.plain), 1, lambda: None, never)

        assert topic.ids() == ["b"]
        await pool.close()

    virtual_time.run(attempt())


def test_a_link_that_hangs_before_anything_is_sent_is_given_up() -> None:
    async def attempt() -> None:
        topic = FakeTopic()
        pool = SenderPool(topic.client(), TOPIC, 1)
        (batch,) = in_batches([event("a"), event("b")], messages.plain, topic.limit)
        async with pool.acquire() as sender:
            await sender.limits(1)
            topic.links[0].hangs = True
            with pytest.raises(RetryableError, match="RELAY_SEND_TIMEOUT_S"):
                await sender.send(batch, 1, never, never)

            await sender.send(batch, 1, lambda: None, never)

        assert topic.ids() == ["a", "b"]
        assert len(topic.links) == 2
        await pool.close()

    virtual_time.run(attempt())


async def test_a_batch_that_fits_the_link_no_more_is_too_large() -> None:
    topic = FakeTopic()
    pool = SenderPool(topic.client(), TOPIC, 1)
    (batch,) = in_batches([event("a", size=500), event("b", size=500)], messages.plain, topic.limit)
    topic.limit = 1_000
    async with pool.acquire() as sender:
        with pytest.raises(PoisonError) as raised:
            await sender.send(batch, 5, never, never)

    assert (raised.value.too_large, raised.value.condition) == (True, "")
    await pool.close()


@pytest.mark.parametrize("end", [CUT, DETACHED], ids=["connection", "link"])
async def test_a_transfer_that_ends_its_links_is_named_once_another_was_accepted(end: Exception) -> None:
    topic = FakeTopic(answers=[end, None, end])
    publisher = topic.publisher(pauses_s=())

    (first,) = await publisher.publish(events("a"))
    await publisher.publish(events("b", key="other"))
    (second,) = await publisher.publish(events("a"))

    assert (first.blocked_by, second.blocked_by) == (None, "a")
    assert "and has accepted others in between: " in str(second.error)


async def test_a_transfer_that_ends_its_link_is_named_in_one_attempt_by_a_repeat_that_is_accepted() -> None:
    topic = FakeTopic(answers=[None, CUT, None, CUT])
    publisher = topic.publisher(pauses_s=(0,), duplicate_window_s=600)
    await publisher.publish(events("w", key="witness"))

    (outcome,) = await publisher.publish(events("a"))

    assert topic.transfers == [["w"], ["a"], ["w"], ["a"]]
    assert outcome.blocked_by == "a"


async def test_the_end_of_a_link_of_a_busy_service_says_nothing_of_a_transfer() -> None:
    busy = AMQPLinkError(b"com.microsoft:server-busy", description="busy")
    topic = FakeTopic(answers=[None, *[ServiceBusServerBusyError(message="busy", error=busy)] * 9])
    publisher = topic.publisher(pauses_s=(0, 0), duplicate_window_s=600)
    await publisher.publish(events("w", key="witness"))

    for _ in range(3):
        (outcome,) = await publisher.publish(events("a"))
        assert (outcome.blocked_by, outcome.unsent) == (None, 1)

    # Nor is anything repeated because of it.
    assert topic.transfers == [["w"], *[["a"]] * 9]


@pytest.mark.parametrize("answer", [None, "amqp:not-allowed"], ids=["accepted", "refused"])
async def test_a_transfer_that_was_answered_is_suspected_no_more(answer: str | None) -> None:
    topic = FakeTopic(answers=[CUT])
    publisher = topic.publisher(pauses_s=(0,))
    pool: Any = publisher._senders
    topic.by_id = {"a": answer} if answer else {}

    await publisher.publish(events("a"))

    assert topic.transfers == [["a"], ["a"]]
    assert not pool.suspects
