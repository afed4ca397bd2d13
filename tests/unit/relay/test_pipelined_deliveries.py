"""The deliveries of a link by themselves: which is begun, which are settled, and when they time out."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest

from relay.core.errors import PoisonError, RetryableError, SendError, StaleClearanceError
from relay.servicebus import messages
from relay.servicebus.pipelined.credit import SERIAL
from relay.servicebus.pipelined.deliveries import Deliveries, Delivery
from relay.servicebus.transfers import alone
from tests.support import virtual_time
from tests.unit.relay.topics import event

ACCEPTED: dict[str, list[object]] = {"accepted": []}


def never() -> None:
    pytest.fail("called")


def allow() -> None:
    """It may be sent."""


def refuse() -> None:
    raise StaleClearanceError("not any more")


def delivery(
    identifier: str = "e",
    timeout_s: float = 60.0,
    may_send: Callable[[], None] = allow,
    accepted_late: Callable[[], None] = never,
    size: int = 0,
) -> Delivery:
    transfer = alone(event(identifier, size=size), messages.plain)
    return Delivery(transfer, timeout_s, may_send, accepted_late, asyncio.get_running_loop())


def made() -> Deliveries:
    return Deliveries(asyncio.get_running_loop())


def begun(deliveries: Deliveries, count: int) -> list[Delivery]:
    found = []
    for number in range(count):
        deliveries.add(delivery(str(number)))
        next_one = deliveries.begin_next()
        assert next_one is not None
        found.append(next_one)
    return found


async def test_deliveries_are_begun_in_their_order_without_those_given_up_or_not_allowed() -> None:
    deliveries = made()
    given_up, stale, first, second = delivery(), delivery(may_send=refuse), delivery(), delivery()
    for each in (given_up, stale, first, second):
        deliveries.add(each)
    given_up.fail(TimeoutError())

    assert [deliveries.begin_next() for _ in range(3)] == [first, second, None]

    assert (first.id, second.id, given_up.id, stale.id) == (0, 1, None, None)
    assert list(deliveries.unsettled.values()) == [first, second]
    assert isinstance(given_up.result.exception(), TimeoutError)
    assert isinstance(stale.result.exception(), StaleClearanceError)


async def test_it_is_idle_as_long_as_none_waits_or_is_unsettled() -> None:
    deliveries = made()
    assert deliveries.idle.is_set()
    waiting, other = delivery(), delivery()
    deliveries.add(waiting)
    assert not deliveries.idle.is_set()

    assert deliveries.begin_next() is waiting
    assert not deliveries.idle.is_set()
    deliveries.add(other)
    deliveries.forget(waiting)
    assert not deliveries.idle.is_set()
    deliveries.forget(other)
    assert deliveries.idle.is_set()

    given_up = delivery()
    deliveries.add(given_up)
    given_up.fail(TimeoutError())
    assert deliveries.begin_next() is None
    assert deliveries.idle.is_set()
    given_up.result.exception()


@pytest.mark.parametrize(
    ("kept", "first", "last", "found"),
    [
        ((0, 1, 2), 0, 0, [0]),
        ((0, 1, 2), 0, 1, [0, 1]),
        ((0, 1, 2), 1, 1, [1]),
        ((0, 1, 2), 1, 2, [1, 2]),
        # With gaps, by ids, or by looking at all.
        ((0, 2, 3), 0, 2, [0, 2]),
        ((5, 9), 5, 9, [5, 9]),
        ((5, 9), 6, 9, [9]),
        ((5, 9), 5, 8, [5]),
        ((5, 9), 6, 8, []),
        # Everything, and beyond the last serial number.
        ((5, 9), 7, 6, [5, 9]),
        ((0, 1, SERIAL - 1), SERIAL - 1, 0, [SERIAL - 1, 0]),
        ((0, 1, SERIAL - 1), SERIAL - 5, 0, [0, SERIAL - 1]),
    ],
)
async def test_a_range_has_both_its_ends(kept: tuple[int, ...], first: int, last: int, found: list[int]) -> None:
    deliveries = made()
    for number in kept:
        deliveries._ids = number
        begun(deliveries, 1)

    assert [each.id for each in deliveries.between(first, last)] == found


async def test_the_end_of_the_link_fails_what_is_in_flight_and_what_waits() -> None:
    deliveries = made()
    (in_flight,) = begun(deliveries, 1)
    waiting = delivery()
    deliveries.add(waiting)
    fate, lost = RetryableError("fate unknown"), RetryableError("not sent")

    deliveries.lose(fate, lost)

    assert (in_flight.result.exception(), waiting.result.exception()) == (fate, lost)
    assert (dict(deliveries.unsettled), list(deliveries.waiting)) == ({}, [])
    assert deliveries.idle.is_set()
    assert deliveries._timer is None


def test_each_delivery_times_out_at_its_own_time_by_one_timer() -> None:
    async def timed() -> None:
        deliveries, loop = made(), asyncio.get_running_loop()
        ended: dict[str, float] = {}

        async def wait(name: str, each: Delivery) -> None:
            with pytest.raises(TimeoutError):
                await each.result
            ended[name] = loop.time()

        named = {f"{timeout_s}-{at}": delivery(timeout_s=timeout_s) for timeout_s in (9, 3, 6) for at in "ab"}
        for each in named.values():
            deliveries.add(each)
        # Those in flight, and those that wait.
        for _ in range(3):
            deliveries.begin_next()
        answered = delivery(timeout_s=1)
        deliveries.add(answered)
        answered.fail(RetryableError("no"))
        due = [handle for handle in loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        assert [handle.when() for handle in due] == [1]

        await asyncio.gather(*(wait(name, each) for name, each in named.items()))

        assert ended == {name: float(name[0]) for name in named}
        assert isinstance(answered.result.exception(), RetryableError)
        await asyncio.sleep(1)
        assert (deliveries._timer, deliveries._expires) == (None, math.inf)

    virtual_time.run(timed())


@pytest.mark.parametrize(
    ("outcome", "kind", "refused"),
    [
        ({"released": []}, RetryableError, True),
        (None, RetryableError, True),
        ({"rejected": []}, RetryableError, True),
        ({"rejected": [None]}, RetryableError, True),
        ({"rejected": [[b"amqp:not-allowed", b"no", None]]}, PoisonError, None),
    ],
)
async def test_what_is_not_accepted_is_an_error_once(
    outcome: object, kind: type[SendError], refused: bool | None
) -> None:
    answered = delivery()
    answered.outcome = outcome

    assert not answered.settle()
    error = answered.result.exception()
    assert type(error) is kind
    assert getattr(error, "refused", None) == refused
    # The sender has given the delivery up.
    assert not answered.settle()


async def test_what_is_accepted_after_it_was_given_up_is_told_of() -> None:
    late: list[str] = []
    answered, given_up = delivery(), delivery(accepted_late=lambda: late.append("late"))
    answered.outcome = given_up.outcome = ACCEPTED
    given_up.fail(TimeoutError())
    given_up.result.exception()

    assert (answered.settle(), given_up.settle()) == (False, True)
    assert answered.result.result() is None
    assert late == ["late"]
    answered.fail(TimeoutError())
    assert answered.result.exception() is None


async def test_there_is_room_while_little_is_held() -> None:
    deliveries = made()
    halves = [delivery(size=2_100_000) for _ in range(2)]
    assert deliveries.has_room.is_set()

    deliveries.add(halves[0])
    assert deliveries.has_room.is_set()
    deliveries.add(halves[1])
    assert not deliveries.has_room.is_set()
    deliveries.release(halves[0])
    assert deliveries.has_room.is_set()
    deliveries.lose(RetryableError("over"), RetryableError("over"))
    for each in halves:
        each.result.exception()
