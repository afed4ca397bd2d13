"""Links of the pipelined sender: opened, given up and replaced, and transfers that end them, in virtual time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.parsing import parse
from relay.core.errors import PoisonError, RetryableError
from relay.servicebus import messages
from relay.servicebus.pipelined import frames
from relay.servicebus.pipelined.lanes import Lane, PipelinedSenders
from relay.servicebus.pipelined.link import Link, LinkLostError
from relay.servicebus.pipelined.sdk import DifferentSdkError
from relay.servicebus.transfers import alone
from tests.support import virtual_time
from tests.support.amqp_memory import MemoryConnection
from tests.support.amqp_peer import ACCEPTED, REJECTED, RELEASED, TRUE, described, error
from tests.support.waiting import forever
from tests.support.watchdog import WATCHDOG_S
from tests.unit.relay.topics import event

NULL = b"\x40"


class Topic:
    """Accepts every transfer, unless an answer is given for its event, one for each time that it comes.

    Attributes:
        answers: By event: "accept", "refuse", "release", "end" or "busy", which end the link, or seconds until
            it is accepted.
        transfers: The ids that have come, each with the number of the connection.
        credit: What each link is granted.
        connections: Every connection that was made.
    """

    def __init__(self, **answers: list[str | float]) -> None:
        self.answers = answers
        self.transfers: list[tuple[int, str]] = []
        self.credit = 100
        self.connections: list[MemoryConnection] = []

    async def connect(self, lane: Lane) -> Link:
        number = len(self.connections)
        connection = MemoryConnection(partial(self._take, number))
        self.connections.append(connection)
        return await Link.open(connection, lane._accepted_late)

    @property
    def closed(self) -> list[bool]:
        return [each.closed.is_set() for each in self.connections]

    def _take(self, number: int, code: int, fields: list[Any], payload: bytes) -> None:
        connection = self.connections[number]
        if code == frames.BEGIN:
            connection.send(frames.BEGIN, [b"\x60\x00\x02", *map(codec.encode_uint, (0, 5_000, 5_000))])
        elif code == frames.ATTACH:
            name = codec.encode_string(str(fields[0]))
            connection.send(
                frames.ATTACH,
                [name, codec.encode_uint(0), TRUE, NULL, NULL, described(0x28), described(0x29)],
            )
            flow = (0, 5_000, 0, 5_000, 0, 0, self.credit)
            connection.send(frames.FLOW, list(map(codec.encode_uint, flow)))
        elif code == frames.TRANSFER:
            identifier = str(parse(payload).message_id)
            self.transfers.append((number, identifier))
            # All that leave in the same turn of the loop are in flight.
            asyncio.get_running_loop().call_later(
                *self._answer(connection, fields[1], (self.answers.get(identifier) or ["accept"]).pop(0))
            )

    def _answer(
        self, connection: MemoryConnection, number: int, answer: str | float
    ) -> tuple[float, Callable[[], None]]:
        outcomes = {
            "refuse": described(REJECTED, [error("amqp:not-allowed")]),
            "release": described(RELEASED),
        }
        ends = {"end": NULL, "busy": error("com.microsoft:server-busy")}
        if answer in ends:
            fields = [codec.encode_uint(0), TRUE, ends[str(answer)]]
            return 0.1, partial(connection.send, frames.DETACH, fields)
        state = outcomes.get(str(answer), described(ACCEPTED))
        fields = [TRUE, codec.encode_uint(number), NULL, TRUE, state]
        return (answer if isinstance(answer, float) else 0.2), partial(connection.send, frames.DISPOSITION, fields)


@contextmanager
def connecting(connect: Callable[[Lane], Awaitable[Link]]) -> Iterator[PipelinedSenders]:
    client: Any = None
    # A method of another object would not be bound to the lane.
    with patch.object(Lane, "_connect", lambda lane: connect(lane)):
        yield PipelinedSenders(client, "topic", 8)


def run(
    connect: Callable[[Lane], Awaitable[Link]], work: Callable[[PipelinedSenders], Coroutine[Any, Any, None]]
) -> None:
    """Run `work` with senders whose links `connect` opens, and close them; no task may be left."""

    async def whole() -> None:
        with connecting(connect) as senders:
            await work(senders)
            async with asyncio.timeout(WATCHDOG_S):
                await senders.close()
        # asyncio logs an error that was never retrieved when it collects the task.
        gc.collect()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    virtual_time.run(whole())


def now() -> float:
    return round(asyncio.get_running_loop().time(), 3)


def never() -> None:
    pytest.fail("called")


async def send(
    senders: PipelinedSenders,
    identifier: str,
    timeout_s: float = 30.0,
    accepted_late: Callable[[], None] = never,
    wait_s: float | None = None,
) -> None:
    """Send an event of a key of its own."""
    async with senders.acquire() as sender:
        transfer = alone(event(identifier, f"key of {identifier}"), messages.plain)
        await sender.send(transfer, timeout_s, lambda: None, accepted_late, wait_s)


async def outcomes(senders: PipelinedSenders, *ids: str) -> list[BaseException | None]:
    return await asyncio.gather(*(send(senders, each) for each in ids), return_exceptions=True)


def is_named(outcome: BaseException | None) -> bool:
    """Return True if this is the error of a transfer that ends links."""
    return isinstance(outcome, RetryableError) and outcome.refused and outcome.ended_alone


# Opening and closing


def test_a_link_that_fails_to_open_while_its_lane_is_closed_leaves_no_traceback() -> None:
    async def connect(_: Lane) -> Link:
        # The SDK's waits can swallow a cancellation before Python 3.12.
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1_000)
        raise LinkLostError("the peer has closed the connection")

    async def close_while_it_opens() -> None:
        client: Any = None
        lane = Lane(client, "topic", lambda _: None, open_timeout_s=15.0)
        waiting = asyncio.create_task(lane.link(60.0))
        await asyncio.sleep(1)
        await lane.close()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        gc.collect()

    with patch.object(Lane, "_connect", connect):
        virtual_time.run(close_while_it_opens())


def test_a_link_that_does_not_open_costs_a_connection_and_its_time() -> None:
    topic = Topic()
    cancelled: list[float] = []

    async def connect(lane: Lane) -> Link:
        if cancelled:
            return await topic.connect(lane)
        try:
            await forever()
        finally:
            cancelled.append(now())

    async def work(senders: PipelinedSenders) -> None:
        with pytest.raises(RetryableError, match="did not open a link within 15 s"):
            await send(senders, "a")
        await asyncio.sleep(0)
        assert cancelled == [15]

        await send(senders, "a")
        await send(senders, "b")

        assert topic.transfers == [(0, "a"), (0, "b")]

    run(connect, work)


def test_a_link_that_opens_after_all_is_closed() -> None:
    topic = Topic()

    async def connect(lane: Lane) -> Link:
        if not topic.connections:
            with suppress(asyncio.CancelledError):
                await forever()
        return await topic.connect(lane)

    async def work(senders: PipelinedSenders) -> None:
        with pytest.raises(RetryableError, match="did not open"):
            await senders.shared.link(60)

        await asyncio.sleep(1)

        assert (topic.closed, senders.shared.open_link) == ([True], None)

    run(connect, work)


def test_a_waiter_that_gives_up_takes_the_opening_from_no_other() -> None:
    topic = Topic()

    async def connect(lane: Lane) -> Link:
        await asyncio.sleep(5)
        return await topic.connect(lane)

    async def work(senders: PipelinedSenders) -> None:
        patient = asyncio.create_task(senders.shared.link(60))
        with pytest.raises(RetryableError, match="No link to Service Bus was opened within 1 s"):
            await senders.shared.link(1)
        assert now() == 1

        assert await patient is senders.shared.open_link
        assert len(topic.connections) == 1

    run(connect, work)


def test_an_opening_that_fails_when_nobody_waits_for_it_any_more_leaves_no_traceback() -> None:
    async def connect(_: Lane) -> Link:
        with suppress(asyncio.CancelledError):
            await forever()
        raise LinkLostError("the peer has closed the connection")

    async def work(senders: PipelinedSenders) -> None:
        with pytest.raises(RetryableError, match="No link"):
            await senders.shared.link(1)
        await asyncio.sleep(60)

    run(connect, work)


def test_closing_ends_an_opening() -> None:
    async def connect(_: Lane) -> Link:
        await forever()

    async def work(senders: PipelinedSenders) -> None:
        waiting = asyncio.create_task(senders.shared.link(60))
        await asyncio.sleep(1)
        await senders.close()
        assert (now(), asyncio.all_tasks() - {waiting}) == (1, {asyncio.current_task()})
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(connect, work)


def test_another_sdk_is_remembered() -> None:
    async def connect(_: Lane) -> Link:
        raise DifferentSdkError("azure-servicebus is not as expected: it is another")

    async def work(senders: PipelinedSenders) -> None:
        assert senders.different_sdk is None
        with pytest.raises(RetryableError, match=r"it is another\. The next attempt sends through the pool"):
            await send(senders, "a")
        assert senders.different_sdk == "azure-servicebus is not as expected: it is another"

    run(connect, work)


def test_a_link_that_was_given_up_is_closed_once_its_deliveries_are_settled() -> None:
    topic = Topic(a=[10.0])
    late: list[float] = []

    async def work(senders: PipelinedSenders) -> None:
        with pytest.raises(RetryableError, match=r"within RELAY_SEND_TIMEOUT_S \(1 s\)\.$"):
            await send(senders, "a", timeout_s=1, accepted_late=lambda: late.append(now()))
        assert senders.shared.open_link is None

        await send(senders, "b")
        assert (topic.closed, late) == ([False, False], [])
        await asyncio.sleep(15)

        assert (topic.closed, late) == ([True, False], [10])
        assert "accepted an earlier transfer after 10.0 s" in str(senders.late.unanswered(1))
        assert senders.shared._background == set()

    run(topic.connect, work)


@pytest.mark.parametrize("given_up", [False, True], ids=["in use", "given up"])
def test_closing_waits_for_no_answer_and_leaves_nothing_open(given_up: bool) -> None:
    topic = Topic(a=[1_000.0])

    async def work(senders: PipelinedSenders) -> None:
        sending = asyncio.create_task(send(senders, "a", timeout_s=1 if given_up else 500))
        await asyncio.sleep(2)
        if given_up:
            await send(senders, "b")
        began = now()

        await senders.close()

        assert now() == began
        assert topic.closed == [True] * (2 if given_up else 1)
        with pytest.raises(RetryableError):
            await sending

    run(topic.connect, work)


def test_as_many_keys_send_at_a_time_as_there_are_permits_and_each_is_given_back() -> None:
    async def work(senders: PipelinedSenders) -> None:
        for _ in range(20):
            with pytest.raises(ValueError, match="surprise"):
                async with senders.acquire():
                    raise ValueError("surprise")
        for _ in range(8):
            assert not senders.free.locked()
            await senders.acquire().__aenter__()
        assert senders.free.locked()

    run(Topic().connect, work)


def test_the_limits_are_known_while_the_link_is_open_and_has_room() -> None:
    async def work(senders: PipelinedSenders) -> None:
        sender = senders.acquire()
        assert sender.known_limits is None
        limits = await sender.limits(5)
        assert sender.known_limits == limits
        link = await senders.shared.link(5)
        link.has_room.clear()
        assert sender.known_limits is None

        with pytest.raises(RetryableError):
            await sender.limits(5)
        assert now() == 5
        asyncio.get_running_loop().call_later(2, link.has_room.set)
        assert await sender.limits(5) == limits
        assert now() == 7

    run(Topic().connect, work)


def test_tokens_and_idle_timeouts_are_looked_at_every_second() -> None:
    topic = Topic()
    looks = {"renew": 0, "keep_alive": 0}

    async def renew() -> None:
        looks["renew"] += 1

    def keep_alive() -> None:
        looks["keep_alive"] += 1

    async def work(senders: PipelinedSenders) -> None:
        await send(senders, "a")
        (connection,) = topic.connections
        with patch.object(connection, "renew", renew), patch.object(connection, "keep_alive", keep_alive):
            await asyncio.sleep(10)
            assert looks == {"renew": 10, "keep_alive": 10}

    run(topic.connect, work)


def test_closing_a_link_does_not_wait_for_a_token_that_is_being_renewed() -> None:
    topic = Topic()
    renewed = asyncio.Event()

    async def renew() -> None:
        # The SDK's waits can swallow a cancellation before Python 3.12.
        while not renewed.is_set():
            with suppress(asyncio.CancelledError):
                await renewed.wait()

    async def work(senders: PipelinedSenders) -> None:
        link = await senders.shared.link(5)
        (connection,) = topic.connections
        with patch.object(connection, "renew", renew):
            await asyncio.sleep(2)
            await link.close()
            assert 2 < now() <= 10
        assert connection.closed.is_set()
        renewed.set()
        await asyncio.sleep(0)

    run(topic.connect, work)


# What ends a link


def test_what_is_not_begun_when_the_link_ends_is_not_suspected() -> None:
    topic = Topic(a=["end"])
    topic.credit = 1

    async def work(senders: PipelinedSenders) -> None:
        first, second = await outcomes(senders, "a", "b")

        assert isinstance(first, LinkLostError)
        assert (first.in_flight, first.ended_alone) == (1, True)
        assert isinstance(second, LinkLostError)
        assert (second.in_flight, second.behind, second.ended_alone) == (0, 1, False)
        assert (isinstance(second, LinkLostError), is_named(second)) == (True, False)
        assert topic.transfers == [(0, "a")]
        assert senders.suspects._by_key.keys() == {"key of a"}

    run(topic.connect, work)


def test_a_transfer_alone_on_its_link_is_named_at_the_second_end_with_another_accepted_in_between() -> None:
    topic = Topic(a=["end", "end", "end"])

    async def work(senders: PipelinedSenders) -> None:
        assert [is_named(each) for each in await outcomes(senders, "a")] == [False]
        assert [is_named(each) for each in await outcomes(senders, "a")] == [False]
        assert await outcomes(senders, "b") == [None]

        assert [is_named(each) for each in await outcomes(senders, "a")] == [True]
        # It went apart from the others: the shared link is the second one.
        assert topic.transfers == [(0, "a"), (1, "a"), (2, "b"), (3, "a")]

    run(topic.connect, work)


def test_of_many_in_flight_the_one_that_ends_the_link_is_named_and_the_others_are_accepted() -> None:
    topic = Topic(c=["end"] * 9)

    async def work(senders: PipelinedSenders) -> None:
        found = await outcomes(senders, *"abcdefgh")
        (again,) = await outcomes(senders, "c") if not is_named(found[2]) else [found[2]]

        assert [each for at, each in enumerate(found) if at != 2] == [None] * 7
        assert is_named(again)
        assert "has accepted others in between" in str(again)
        assert list(senders.suspects._by_key) == ["key of c"]

    run(topic.connect, work)


def test_a_busy_service_that_ends_the_link_names_nobody_and_all_come_again() -> None:
    topic = Topic(a=["busy"] * 9, b=[5.0])

    async def work(senders: PipelinedSenders) -> None:
        for _ in range(3):
            found = await outcomes(senders, "a")
            assert [isinstance(each, LinkLostError) and each.busy for each in found] == [True]
            assert not any(isinstance(each, LinkLostError) and each.ended_alone for each in found)
            assert not any(map(is_named, found))
        assert await outcomes(senders, "c") == [None]
        assert not is_named((await outcomes(senders, "a"))[0])
        found = await outcomes(senders, "a", "b")
        assert [type(each) for each in found] == [LinkLostError, type(None)]

    run(topic.connect, work)


@pytest.mark.parametrize(
    ("answer", "kind"), [("accept", type(None)), ("refuse", PoisonError), ("release", RetryableError)]
)
def test_a_suspect_that_is_answered_is_none_any_more(answer: str, kind: type) -> None:
    topic = Topic(a=["end", answer], b=["end", "accept"])

    async def work(senders: PipelinedSenders) -> None:
        first, second = await outcomes(senders, "a", "b")

        assert (type(first), second) == (kind, None)
        assert not senders.suspects

    run(topic.connect, work)


@pytest.mark.parametrize(
    ("timeout_s", "wait_s", "seconds"), [(5, 8, 5), (5, 3, 3), (5, None, 5)], ids=["timeout", "attempt", "neither"]
)
def test_a_suspect_waits_for_its_answer_as_long_as_a_transfer_and_no_longer_than_the_attempt(
    timeout_s: float, wait_s: float | None, seconds: float
) -> None:
    topic = Topic(a=["end", 1_000.0], b=["end", "accept"])

    async def work(senders: PipelinedSenders) -> None:
        await outcomes(senders, "x")
        await asyncio.sleep(100 - now())
        other = asyncio.create_task(send(senders, "b"))
        with pytest.raises(RetryableError, match="RELAY_SEND_TIMEOUT_S"):
            await send(senders, "a", timeout_s, never, wait_s)

        # The link ended after a moment, which counts towards the attempt only.
        assert seconds <= now() - 100 <= seconds + 0.2
        await other

    run(topic.connect, work)
