"""The counts of deliveries and frames, and how far the peer lets them go."""

from __future__ import annotations

import pytest

from relay.servicebus.pipelined.credit import SERIAL, Credit
from relay.servicebus.pipelined.frames import Begin, Flow


def flow(
    *,
    received: int | None = 0,
    window: int = 0,
    next_id: int = 0,
    count: int | None = 0,
    credit: int | None = None,
) -> Flow:
    return Flow(received, window, next_id, 0, 0, count, credit, None, None, None)


def test_nothing_may_leave_before_the_peer_has_said_how_much() -> None:
    credit = Credit()

    assert (credit.deliveries, credit.transfers, credit.left) == (0, 0, 0)
    assert credit.delivery_limit <= 0
    assert credit.transfer_limit <= 0


def test_the_beginning_of_a_session_gives_room_for_frames() -> None:
    credit = Credit()

    credit.begun(Begin(2, 7, 100))

    assert (credit.next_incoming_id, credit.transfer_limit) == (7, 100)
    assert credit.left == 0


@pytest.mark.parametrize(
    ("sent", "received", "window", "limit"),
    [
        (0, None, 5, 5),
        (0, 0, 5, 5),
        (3, 1, 5, 6),
        (SERIAL + 3, 1, 5, SERIAL + 6),
        (SERIAL + 1, SERIAL - 1, 4, SERIAL + 3),
    ],
)
def test_the_window_of_a_session_counts_from_what_the_peer_has_received(
    sent: int, received: int | None, window: int, limit: int
) -> None:
    credit = Credit()
    credit.transfers = sent

    credit.session_flow(flow(received=received, window=window, next_id=9))

    assert (credit.transfer_limit, credit.next_incoming_id) == (limit, 9)


@pytest.mark.parametrize(
    ("begun", "count", "granted", "left"),
    [
        (0, None, 5, 5),
        (0, 0, 5, 5),
        (0, 0, None, 0),
        (3, 1, 5, 3),
        (SERIAL + 3, 1, 5, 3),
        # It has taken back what was used already.
        (3, 1, 1, 0),
        (3, 0, None, 0),
    ],
)
def test_credit_counts_from_the_delivery_that_the_peer_says(
    begun: int, count: int | None, granted: int | None, left: int
) -> None:
    credit = Credit()
    credit.deliveries = begun

    credit.link_flow(flow(count=count, credit=granted))

    assert credit.left == left
    credit.drained()
    assert (credit.deliveries, credit.left) == (begun + left, 0)
