"""The pipelined sender's link, opened by the SDK, against a peer that answers as each test says."""

from __future__ import annotations

import asyncio
import gc
import math
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.entities import Entities
from relay.core.errors import PoisonError, RetryableError, SendError, StaleClearanceError
from relay.core.events import Event
from relay.core.evidence import AcceptedLedger
from relay.servicebus import messages
from relay.servicebus.pipelined import deliveries, outgoing, sdk
from relay.servicebus.pipelined import frames as frames_module
from relay.servicebus.pipelined import link as links
from relay.servicebus.pipelined.credit import unwrapped
from relay.servicebus.pipelined.lanes import PipelinedSenders
from relay.servicebus.pipelined.link import Link, LinkLostError
from relay.servicebus.publisher import ServiceBusPublisher
from relay.servicebus.transfers import LinkLimits, Transfer, alone
from tests.support import amqp_peer
from tests.support.amqp_peer import DISPOSITION, FLOW, MODIFIED, REJECTED, RELEASED, Peer, described, error
from tests.support.waiting import forever, look_again
from tests.support.watchdog import WATCHDOG_S
from tests.unit.relay.topics import event

ENTITIES = Path(__file__).resolve().parents[3] / "infra" / "emulators" / "Config.json"
TOPIC = "domain-events"
WAIT_S = float(WATCHDOG_S)
SERIAL = 2**32


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
async def peer(request: pytest.FixtureRequest) -> AsyncIterator[Peer]:
    async with Peer(Entities.from_file(ENTITIES), secure=request.param) as running:
        yield running


@asynccontextmanager
async def opened(peer: Peer) -> AsyncIterator[Link]:
    """A link to the peer, without credit."""
    client = peer.client()
    async with asyncio.timeout(WAIT_S):
        made = await Link.open(await sdk.Connection.open(client, TOPIC), lambda seconds: None)
    try:
        yield made
    finally:
        async with asyncio.timeout(WAIT_S):
            await made.close()
            await client.close()


@pytest.fixture
async def link(peer: Peer) -> AsyncIterator[Link]:
    async with opened(peer) as made:
        yield made


def transfer(identifier: str, size: int = 0) -> Transfer:
    made = event(identifier, size=size)
    return alone(made, messages.plain)


def never_late() -> None:
    pytest.fail("accepted after it was given up")


class Sends:
    """Sends in the background, and in which order they were allowed to leave."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.left: list[str] = []
        self.made: list[asyncio.Task[None]] = []

    def __call__(self, *ids: str, size: int = 0) -> list[asyncio.Task[None]]:
        begun = [
            asyncio.create_task(
                self._link.send(transfer(each, size), 60, partial(self.left.append, each), never_late)
            )
            for each in ids
        ]
        self.made += begun
        return begun

    async def errors(self) -> list[BaseException | None]:
        """The outcome of all of them: an error, or None."""
        async with asyncio.timeout(WAIT_S):
            return await asyncio.gather(*self.made, return_exceptions=True)


@pytest.fixture
async def send(link: Link) -> AsyncIterator[Sends]:
    sends = Sends(link)
    yield sends
    for task in sends.made:
        task.cancel()
    await asyncio.gather(*sends.made, return_exceptions=True)


async def all_read(peer: Peer, window: int | None = None) -> int:
    """Wait until the link has read all that the peer sent: it answers how far it is. Returns the credit left."""
    peer.flow(None, window=window, echo=True)
    return int((await peer.next(FLOW))[6])


# Credit


async def test_nothing_leaves_beyond_the_credit(peer: Peer, send: Sends) -> None:
    send("a", "b", "c", "d")
    assert await all_read(peer) == 0
    assert send.left == []

    peer.flow(1)
    first = await peer.delivery()
    peer.flow(0, count=1)
    assert await all_read(peer) == 0
    assert (send.left, peer.nothing_more()) == (["a"], True)

    peer.flow(2, count=1)
    others = [await peer.delivery(), await peer.delivery()]
    assert await all_read(peer) == 0
    assert ([first.id, *(each.id for each in others)], send.left) == ([0, 1, 2], ["a", "b", "c"])
    # A disposition is no credit.
    peer.settle(0, 2)
    await asyncio.gather(*send.made[:3])
    assert await all_read(peer) == 0
    assert peer.nothing_more()


async def test_a_settled_delivery_makes_room_for_one_that_waits(
    peer: Peer, send: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "IN_FLIGHT", 1)
    peer.flow(5)
    send("a", "b")
    first = await peer.delivery()
    assert (await all_read(peer), send.left, peer.nothing_more()) == (4, ["a"], True)

    peer.settle(first.id)

    assert (await peer.delivery()).id == 1
    assert send.left == ["a", "b"]


async def test_credit_counts_from_the_delivery_that_the_peer_says(peer: Peer, send: Sends) -> None:
    peer.flow(2)
    send("a", "b", "c", "d")
    await peer.delivery()
    await peer.delivery()

    # Granted before it had received the second one: of these two, one is used.
    peer.flow(2, count=1)

    assert (await peer.delivery()).id == 2
    assert await all_read(peer) == 0
    assert send.left == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("serial", "near", "number"),
    [
        (0, 0, 0),
        (5, 3, 5),
        (3, 5, 3),
        (SERIAL - 1, SERIAL, SERIAL - 1),
        (0, SERIAL - 1, SERIAL),
        (2, SERIAL - 3, SERIAL + 2),
        (SERIAL - 2, SERIAL + 4, SERIAL - 2),
        (7, 5 * SERIAL, 5 * SERIAL + 7),
        (SERIAL - 7, 5 * SERIAL, 5 * SERIAL - 7),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31, 0, -(2**31)),
    ],
)
def test_a_serial_stands_for_the_nearest_number(serial: int, near: int, number: int) -> None:
    assert unwrapped(serial, near) == number


async def test_counts_go_on_beyond_32_bits(peer: Peer, link: Link, send: Sends) -> None:
    start = SERIAL - 2
    link._credit.deliveries = link._credit.delivery_limit = link._credit.transfers = start
    link._deliveries._ids = start
    send("a", "b", "c", "d", "e")

    peer.flow(3, count=start, received=start)
    ids = [(await peer.delivery()).id for _ in range(3)]
    peer.flow(1, count=1, received=1)
    ids.append((await peer.delivery()).id)
    assert ids == [SERIAL - 2, SERIAL - 1, 0, 1]

    # A range of serial numbers, too, continues beyond.
    peer.settle(SERIAL - 2, 1)
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*send.made[:4])
    peer.flow(None, received=2, echo=True)
    flow = await peer.next(FLOW)
    assert (flow[2], flow[5], flow[6]) == (2, 2, 0)


async def test_a_drain_takes_back_what_is_not_used(peer: Peer, send: Sends) -> None:
    peer.flow(10)
    send("a")
    await peer.delivery()

    peer.flow(9, count=1, drain=True)
    flow = await peer.next(FLOW)
    send("b")
    assert (flow[5], flow[6], await all_read(peer)) == (10, 0, 0)
    assert send.left == ["a"]

    peer.flow(1, count=10)
    # Delivery-ids follow one another, whatever the delivery-count is.
    assert (await peer.delivery()).id == 1


async def test_a_drain_sends_what_waits_before_it_is_answered(peer: Peer, send: Sends) -> None:
    send("a", "b", "c")
    await all_read(peer)

    peer.flow(5, drain=True)

    assert [(await peer.delivery()).id for _ in range(3)] == [0, 1, 2]
    flow = await peer.next(FLOW)
    assert (flow[5], flow[6]) == (5, 0)


async def test_an_echo_is_answered_with_how_far_both_sides_are(peer: Peer, send: Sends) -> None:
    peer.flow(10)
    send("a", "b")
    await peer.delivery()
    await peer.delivery()

    peer.flow(8, count=2, echo=True)

    flow = await peer.next(FLOW)
    assert (flow[0], flow[2], flow[4], flow[5], flow[6]) == (0, 2, 0, 2, 8)


async def test_the_frames_of_a_delivery_wait_for_the_sessions_window(peer: Peer, send: Sends) -> None:
    peer.flow(5, window=1)
    send("large", size=200_000)
    send("small")
    payload = b""
    frames = 0
    while True:
        frame = await peer.next(amqp_peer.TRANSFER)
        payload += frame.payload
        frames += 1
        await all_read(peer, window=0)
        if not frame[5]:
            break
        assert peer.nothing_more()
        peer.flow(None, window=1)

    assert frames > 3
    assert payload == transfer("large", 200_000).payload
    peer.flow(None, window=1)
    assert (await peer.delivery()).payload == transfer("small").payload


async def test_what_may_not_be_sent_uses_no_credit(peer: Peer, link: Link, send: Sends) -> None:
    def refuse() -> None:
        raise RetryableError("the clearance has ended")

    await all_read(peer)
    refused = asyncio.create_task(link.send(transfer("refused"), 60, refuse, never_late))
    await asyncio.sleep(0)
    send("b")

    peer.flow(1)

    delivery = await peer.delivery()
    assert (delivery.id, delivery.payload) == (0, transfer("b").payload)
    with pytest.raises(RetryableError, match="clearance"):
        await refused


async def test_a_send_that_is_cancelled_while_it_waits_never_leaves(peer: Peer, send: Sends) -> None:
    first, second = send("a", "b")
    await all_read(peer)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

    peer.flow(1)

    delivery = await peer.delivery()
    peer.settle(delivery.id)
    await second
    assert (delivery.payload, send.left) == (transfer("b").payload, ["b"])


# What is given up, or may not be sent any more, once its first frame has left


async def _cancel(sending: asyncio.Task[None], _: Link) -> None:
    sending.cancel()


async def _time_out(_: asyncio.Task[None], link: Link) -> None:
    for delivery in link._deliveries.unsettled.values():
        delivery.ends = 0.0
    link._deliveries._expire()


async def _settle_early(_: asyncio.Task[None], link: Link) -> None:
    link._settle([True, 0, None, True, {sdk.REJECTED: []}])


GIVEN_UP = {"cancelled": _cancel, "timed out": _time_out, "settled": _settle_early}


@pytest.mark.parametrize("how", GIVEN_UP)
async def test_a_delivery_that_is_given_up_among_its_frames_is_aborted(
    peer: Peer, link: Link, send: Sends, how: str
) -> None:
    peer.flow(5, window=1)
    (large,) = send("large", size=200_000)
    assert (await peer.next(amqp_peer.TRANSFER))[5]
    (successor,) = send("successor")
    assert await all_read(peer, window=0) == 4

    await GIVEN_UP[how](large, link)
    with pytest.raises((asyncio.CancelledError, TimeoutError, RetryableError)):
        await large
    peer.flow(4, count=1)

    last = await peer.next(amqp_peer.TRANSFER)
    assert (last[1], last[5], last[9], last.payload) == (0, False, True, b"")
    delivery = await peer.delivery()
    assert (delivery.id, delivery.payload) == (1, transfer("successor").payload)
    # The peer settles an aborted delivery without a word.
    peer.settle(1)
    await successor
    assert await all_read(peer) == 3
    assert peer.nothing_more()
    # A link on which a transfer was given up takes no more of them.
    assert link.is_usable is (how == "settled")
    async with asyncio.timeout(WAIT_S / 2):
        await link.close(WAIT_S)


async def test_a_delivery_that_waits_is_asked_about_before_each_further_frame(peer: Peer, link: Link) -> None:
    lasts = True

    def may_send() -> None:
        if not lasts:
            raise StaleClearanceError("the clearance has ended")

    peer.flow(5, window=1)
    large = asyncio.create_task(link.send(transfer("large", 400_000), 60, may_send, never_late))
    first = await peer.next(amqp_peer.TRANSFER)
    await all_read(peer, window=0)
    peer.flow(None, window=1)
    second = await peer.next(amqp_peer.TRANSFER)
    assert [first[5], second[5]] == [True, True]

    lasts = False
    peer.flow(None)

    last = await peer.next(amqp_peer.TRANSFER)
    assert (last[5], last[9]) == (False, True)
    with pytest.raises(StaleClearanceError):
        await large
    assert (await all_read(peer), peer.nothing_more(), link.is_usable) == (4, True, True)


async def test_an_answer_that_comes_with_the_end_of_its_waiter_counts(peer: Peer, link: Link) -> None:
    accepted: list[str] = []
    peer.flow(5)
    sending = asyncio.create_task(link.send(transfer("a"), 60, lambda: None, lambda: accepted.append("a")))
    await peer.delivery()

    link._settle([True, 0, None, True, {sdk.ACCEPTED: []}])
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending

    assert accepted == ["a"]


async def test_what_is_accepted_after_it_was_given_up_is_noted_once(peer: Peer) -> None:
    accepted: list[str] = []
    seconds: list[float] = []
    client = peer.client()
    link = await Link.open(await sdk.Connection.open(client, TOPIC), seconds.append)
    peer.flow(5)
    with pytest.raises(TimeoutError):
        await link.send(transfer("a"), 0.05, lambda: None, lambda: accepted.append("a"))
    assert not link.is_usable

    closing = asyncio.create_task(link.close(WAIT_S))
    peer.settle((await peer.delivery()).id)
    async with asyncio.timeout(WAIT_S / 2):
        await closing

    assert accepted == ["a"]
    assert [each for each in seconds if each >= 0.05] == seconds
    assert len(seconds) == 1
    await client.close()


@pytest.mark.parametrize("frames", [1, 2])
async def test_a_payload_of_exactly_the_room_of_its_frames(
    peer: Peer, link: Link, send: Sends, frames: int
) -> None:
    room = link._connection.max_frame_bytes - frames_module._HEADER_BYTES
    size = frames * room - len(transfer("a", 10_000).payload) + 10_000
    assert len(transfer("a", size).payload) == frames * room
    peer.flow(5)

    send("a", size=size)

    delivery = await peer.delivery()
    assert (delivery.frames, delivery.payload) == (frames, transfer("a", size).payload)
    peer.settle(0)
    send("b", size=size + 1)
    assert (await peer.delivery()).frames == frames + 1
    peer.settle(1)
    assert await send.errors() == [None, None]


async def test_waiting_for_credit_ends_with_the_timeout_and_nothing_leaves_later(peer: Peer, link: Link) -> None:
    with pytest.raises(TimeoutError):
        await link.send(transfer("a"), 0.05, lambda: None, never_late)

    peer.flow(5)

    assert (await all_read(peer), peer.nothing_more(), link.is_usable) == (5, True, False)


# Dispositions


async def test_dispositions_settle_in_any_order_and_in_ranges(peer: Peer, send: Sends) -> None:
    peer.flow(100)
    tasks = send(*"abcdef")
    for _ in tasks:
        await peer.delivery()

    peer.settle(5)
    await tasks[5]
    peer.settle(1, 3)
    await asyncio.gather(*tasks[1:4])
    assert [task.done() for task in tasks] == [False, True, True, True, False, True]
    # Twice, of ids that there are not, and of all that there could be.
    peer.settle(1, 3, described(RELEASED))
    peer.settle(77)
    peer.settle(4)
    await tasks[4]
    peer.settle(0, SERIAL - 1)

    assert await send.errors() == [None] * 6


async def test_a_delivery_is_not_settled_before_the_peer_says_so(peer: Peer, send: Sends) -> None:
    peer.flow(100)
    (task,) = send("a")
    await peer.delivery()

    peer.settle(0, settled=False)
    await all_read(peer)

    assert not task.done()
    peer.settle(0)
    await task


async def test_a_delivery_is_settled_here_where_the_peer_waits_for_that(peer: Peer) -> None:
    peer.settles_second = True
    async with opened(peer) as link:
        sends = Sends(link)
        sends("a", "b")
        peer.flow(100)
        await peer.delivery()
        await peer.delivery()

        peer.settle(0, settled=False)
        peer.settle(1, state=described(RELEASED), settled=False)
        settled = [await peer.next(DISPOSITION), await peer.next(DISPOSITION)]

        # It is the sender that settles: its role is false.
        assert [each.fields[:4] for each in settled] == [[False, 0, None, True], [False, 1, None, True]]
        accepted, released = await sends.errors()
        assert accepted is None
        assert isinstance(released, RetryableError)
        # That both ends have settled changes nothing.
        peer.settle(0, 1)
        await all_read(peer)
        assert link.is_usable


REFUSALS: dict[str, tuple[bytes, type[SendError], str]] = {
    "rejected with all": (
        described(
            REJECTED,
            [error("amqp:not-allowed", codec.encode_string("no"), codec.encode_map(0, b""))],
        ),
        PoisonError,
        "no",
    ),
    "rejected without info": (
        described(REJECTED, [error("amqp:not-allowed", codec.encode_string("no"))]),
        PoisonError,
        "no",
    ),
    "rejected without description": (
        described(REJECTED, [error("amqp:not-allowed")]),
        PoisonError,
        "not-allowed",
    ),
    "too large": (
        described(REJECTED, [error("amqp:link:message-size-exceeded")]),
        PoisonError,
        "message-size-exceeded",
    ),
    "busy": (described(REJECTED, [error("com.microsoft:server-busy")]), RetryableError, "busy"),
    "rejected without error": (described(REJECTED), RetryableError, "no reason"),
    "rejected with null": (described(REJECTED, [b"\x40"]), RetryableError, "no reason"),
    "released": (described(RELEASED), RetryableError, "no reason"),
    "modified": (described(MODIFIED, [b"\x41"]), RetryableError, "no reason"),
    "settled without a state": (b"", RetryableError, "no reason"),
}


async def test_what_is_not_accepted_is_classified_and_leaves_the_others_alone(peer: Peer, send: Sends) -> None:
    peer.flow(100)
    tasks = send(*REFUSALS, "accepted")
    for number, (state, _, _) in enumerate(REFUSALS.values()):
        await peer.delivery()
        peer.settle(number, state=state)
    peer.settle((await peer.delivery()).id)

    await tasks[-1]
    errors = await send.errors()
    for found, (name, (_, kind, text)) in zip(errors, REFUSALS.items(), strict=False):
        assert type(found) is kind, name
        assert text in str(found), name
        about_the_service = name in ("busy", "full")
        assert not isinstance(found, RetryableError) or found.refused is not about_the_service, name


# The end


def _garbage(peer: Peer) -> None:
    peer.write(b"\x00\x00\x00\x10\x02\x00\x00\x09" + b"\xff" * 8)


def _too_small(peer: Peer) -> None:
    peer.write(b"\x00\x00\x00\x02\x02\x00\x00\x09")


def _not_amqp(peer: Peer) -> None:
    peer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def _begins(peer: Peer, ours: int) -> None:
    """Answer the relay's session, or one that it has not begun, on another channel."""
    numbers = [codec.encode_uint(number) for number in (0, 100, 5_000, 255)]
    peer.send(amqp_peer.BEGIN, [b"\x60" + ours.to_bytes(2, "big"), *numbers], channel=10)


DETACH_FORCED = error("amqp:link:detach-forced", codec.encode_string("moved"))
ENDS: dict[str, Callable[[Peer], None]] = {
    "detach": lambda peer: peer.detach(),
    "detach while busy": lambda peer: peer.detach(error("com.microsoft:server-busy")),
    "detach with error": lambda peer: peer.detach(DETACH_FORCED),
    "detach of a disabled topic": lambda peer: peer.detach(error("com.microsoft:entity-disabled")),
    "detach without the right": lambda peer: peer.detach(error("amqp:unauthorized-access")),
    "end": lambda peer: peer.end(),
    "end with error": lambda peer: peer.end(error("amqp:internal-error")),
    "close": lambda peer: peer.close(),
    "close with error": lambda peer: peer.close(error("amqp:connection:forced")),
    "reset": lambda peer: peer.reset(),
    "end of stream": lambda peer: peer.end_of_stream(),
    "garbage": _garbage,
    "a frame without a header": _too_small,
    "another protocol": _not_amqp,
}
NOT_ALLOWED: dict[str, Callable[[Peer], None]] = {
    "a second answer to the session": partial(_begins, ours=frames_module.CHANNEL),
    "an answer to a session that nobody began": partial(_begins, ours=frames_module.CHANNEL + 1),
}
ENDS |= NOT_ALLOWED
SAYS = {
    "detach": "detached the link without a reason",
    "detach with error": "moved",
    "end": "ended the session without a reason",
    "end with error": "internal-error",
    "close": "closed the connection",
    "close with error": "forced",
}
"""A part of the error, for ends that may have a reason."""


async def test_every_send_ends_with_the_link() -> None:
    """Each on its own connection, all at once: opening one takes the SDK half a second."""
    async with asyncio.TaskGroup() as ends:
        for name in ENDS:
            ends.create_task(_ended(name), name=name)


async def _ended(name: str) -> None:
    async with Peer(Entities.from_file(ENTITIES)) as peer, opened(peer) as link:
        send = Sends(link)
        peer.flow(2)
        send("in flight", "in flight too", "waits", "waits too")
        await peer.delivery()
        await peer.delivery()

        ENDS[name](peer)

        errors = await send.errors()
        assert {str(found) for found in errors} == {str(errors[0])}, name
        assert SAYS.get(name, "") in str(errors[0]), (name, errors[0])
        assert ("AMQP does not allow" in str(errors[0])) is (name in NOT_ALLOWED), (name, errors[0])
        lost = [each for each in errors if isinstance(each, LinkLostError)]
        # What waits has not ended the link.
        assert [each.in_flight for each in lost] == [2, 2, 0, 0], (name, errors)
        assert [each.behind for each in lost] == [0, 0, 2, 2], name
        assert {each.busy for each in lost} == {name == "detach while busy"}, name
        assert send.left == ["in flight", "in flight too"], name
        assert not link.is_usable, name
        with pytest.raises(LinkLostError):
            await link.send(transfer("later"), 60, lambda: pytest.fail("sent on a link that is lost"), never_late)


async def test_a_link_that_is_refused_says_why(peer: Peer) -> None:
    peer.refuses_link = error("amqp:not-found", codec.encode_string("no such topic"))

    with pytest.raises(SendError, match="no such topic"):
        async with opened(peer):
            pytest.fail("it was opened")


async def test_a_link_says_what_it_takes(peer: Peer) -> None:
    peer.message_limit = 100_000_000
    async with opened(peer) as large:
        assert large.limits == LinkLimits(batch=100_000_000, message=100_000_000)
    peer.message_limit = 262_144
    async with opened(peer) as standard:
        assert standard.limits == LinkLimits(batch=262_144, message=262_144)
    peer.message_limit = 1_000_000
    async with opened(peer) as between:
        assert between.limits == LinkLimits(batch=262_144, message=1_000_000)
    peer.message_limit = 0
    async with opened(peer) as unlimited:
        assert unlimited.limits == LinkLimits(batch=1_048_576, message=1_048_576)


async def test_closing_waits_for_what_is_in_flight(peer: Peer, link: Link, send: Sends) -> None:
    peer.flow(100)
    (first,) = send("a")
    peer.settle((await peer.delivery()).id)
    await first
    # It was idle once.
    (second,) = send("b")
    await peer.delivery()

    closing = asyncio.create_task(link.close(WAIT_S))
    await all_read(peer)
    assert not closing.done()
    peer.settle(1)

    await second
    async with asyncio.timeout(WAIT_S / 2):
        await closing


async def test_closing_does_not_wait_for_what_was_given_up(peer: Peer, link: Link, send: Sends) -> None:
    (given_up,) = send("a")
    await all_read(peer)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)

    async with asyncio.timeout(WAIT_S / 2):
        await link.close(WAIT_S)


@pytest.mark.parametrize(("size", "left"), [(0, []), (5_000, ["a"])], ids=["small", "large"])
async def test_what_is_large_leaves_before_the_next_key_has_its_turn(
    peer: Peer, send: Sends, size: int, left: list[str]
) -> None:
    async def next_key() -> list[str]:
        return list(send.left)

    peer.flow(1)
    await all_read(peer)
    send("a", size=size)
    assert await asyncio.create_task(next_key()) == left

    peer.settle((await peer.delivery()).id)
    assert await send.errors() == [None]


# What lasts


async def test_a_peer_that_does_not_read_leaves_little_in_this_process(
    peer: Peer, link: Link, send: Sends
) -> None:
    writer = link._connection._writer
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    peer.flow(500)
    await all_read(peer)
    peer.stop_reading()
    ids = [str(number) for number in range(100)]
    send(*ids, size=100_000)

    async with asyncio.timeout(WAIT_S):
        while link._connection.is_drained:
            await look_again()

    # What is written at a time, and the rest of a frame.
    secure = writer.get_extra_info("ssl_object") is not None
    buffers = [writer.transport, writer.transport._ssl_protocol._transport] if secure else [writer.transport]  # type: ignore[attr-defined]
    left = sum(each.get_write_buffer_size() for each in buffers)
    assert left <= outgoing._WRITE_BYTES + link._connection.max_frame_bytes
    # What has left are those that the buffers of the system hold.
    assert 0 < len(set(send.left)) < 60
    peer.go_on_reading()
    for number, _ in enumerate(ids):
        assert (await peer.delivery()).id == number
    peer.settle(0, 99)
    assert await send.errors() == [None] * 100
    # Asked again before the frames that had to wait.
    assert list(dict.fromkeys(send.left)) == ids


async def test_a_connection_that_is_reset_while_frames_wait_ends_each_send(
    peer: Peer, link: Link, send: Sends
) -> None:
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
    peer.flow(500)
    await all_read(peer)
    peer.stop_reading()
    send(*map(str, range(100)), size=100_000)
    async with asyncio.timeout(WAIT_S):
        while link._connection.is_drained:
            await look_again()

    peer.reset()

    assert {type(found) for found in await send.errors()} == {LinkLostError}
    async with asyncio.timeout(WAIT_S):
        while any("_drain" in repr(task) for task in link._tasks):
            await look_again()
    gc.collect()
    assert unseen == []


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens and idle timeouts are looked at often."""
    monkeypatch.setattr(links, "_KEEP_ALIVE_S", 0.02)


@pytest.mark.usefixtures("often")
async def test_the_token_is_renewed_while_transfers_are_in_flight(peer: Peer) -> None:
    async with opened(peer) as link:
        peer.flow(100)
        before = peer.other_transfers
        in_flight = asyncio.create_task(link.send(transfer("a"), 60, lambda: None, never_late))
        await peer.delivery()

        # As it is when nine tenths of its life are over.
        link._connection._handler._cbs_authenticator._refresh_window = 10**6
        await peer.until(lambda: peer.other_transfers > before)

        peer.settle(0)
        await in_flight
        # The answer to it has come, and the next transfers leave as before.
        async with asyncio.timeout(WAIT_S):
            while not await link._connection._handler._cbs_authenticator.handle_token():
                await look_again()
        later = asyncio.create_task(link.send(transfer("b"), 60, lambda: None, never_late))
        peer.settle((await peer.delivery()).id)
        await later


@pytest.mark.usefixtures("often")
async def test_empty_frames_keep_a_connection_whose_idle_timeout_is_short(peer: Peer) -> None:
    peer.idle_timeout_ms = 2_000
    async with opened(peer) as link:
        await peer.until(lambda: peer.empty_frames >= 3)
        assert link.is_usable


@pytest.mark.usefixtures("often")
async def test_a_token_that_cannot_be_renewed_ends_the_link(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(peer) as link:
        peer.flow(100)
        in_flight = asyncio.create_task(link.send(transfer("a"), 60, lambda: None, never_late))
        await peer.delivery()

        async def fail(*_: Any) -> None:
            raise OSError("no identity endpoint")

        handler = link._connection._handler
        monkeypatch.setattr(handler._cbs_authenticator._auth, "get_token", fail)
        handler._cbs_authenticator._refresh_window = 10**6

        with pytest.raises(SendError, match="no identity endpoint"):
            async with asyncio.timeout(WAIT_S):
                await in_flight


@pytest.mark.usefixtures("often")
async def test_a_connection_that_cannot_be_kept_is_lost(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(peer) as link:
        peer.flow(100)
        in_flight = asyncio.create_task(link.send(transfer("a"), 60, lambda: None, never_late))
        await peer.delivery()

        # As if the SDK had changed inside: nobody renews the token any more.
        monkeypatch.setattr(link._connection._sdk, "_remote_idle_timeout", "soon")

        with pytest.raises(LinkLostError, match="could not be kept: TypeError"):
            async with asyncio.timeout(WAIT_S):
                await in_flight


@pytest.mark.parametrize("is_open", [True, False], ids=["the link is open", "it is not"])
async def test_few_batches_are_held_until_they_are_settled(peer: Peer, is_open: bool) -> None:
    made: list[str] = []
    begun = asyncio.Event()

    def message_of(source: Event) -> messages.Message:
        made.append(source.id)
        begun.set()
        return messages.plain(source)

    size, keys = 200_000, 40
    bound = math.ceil(deliveries._HELD_BYTES / size)
    assert bound < keys
    client = peer.client()
    senders = PipelinedSenders(client, TOPIC, keys)
    publisher = ServiceBusPublisher(senders, message_of, AcceptedLedger(), send_timeout_s=30, attempt_timeout_s=60)
    each_one = {f"k{number}": [event(f"e{number}", f"k{number}", size=size)] for number in range(keys)}
    try:
        async with asyncio.timeout(WAIT_S):
            if is_open:
                await senders.shared.link(WAIT_S)
            publishing = asyncio.create_task(publisher.publish(each_one))
            await begun.wait()
            assert await all_read(peer) == 0
            assert len(made) <= bound
            peer.flow(keys)
            for settled in range(keys):
                delivery = await peer.delivery()
                assert len(made) - settled <= bound
                peer.settle(delivery.id)
            outcomes = await publishing
    finally:
        await senders.close()
        await client.close()

    assert [outcome.published for outcome in outcomes] == [1] * keys


# A peer, or a credential, that does not answer


async def _credential_hangs(peer: Peer, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(*_: Any) -> None:
        await forever()

    monkeypatch.setattr(link._connection._handler._cbs_authenticator._auth, "get_token", hang)


async def _peer_is_silent(peer: Peer, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    peer.stop_reading()
    # It stops behind what it reads next.
    before = peer.empty_frames
    link._connection.write(sdk._EMPTY_FRAME)
    await peer.until(lambda: peer.empty_frames > before)


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("silence", [_credential_hangs, _peer_is_silent])
async def test_a_token_that_is_not_renewed_in_time_ends_the_link_and_nobody_is_suspected(
    peer: Peer,
    monkeypatch: pytest.MonkeyPatch,
    silence: Callable[[Peer, Link, pytest.MonkeyPatch], Awaitable[None]],
) -> None:
    async with opened(peer) as link:
        peer.flow(100)
        in_flight = asyncio.create_task(link.send(transfer("a"), 60, lambda: None, never_late))
        await peer.delivery()
        monkeypatch.setattr(sdk, "_RENEW_TIMEOUT_S", 0.2)
        monkeypatch.setattr(sdk, "_CLOSE_TIMEOUT_S", 0.2)
        await silence(peer, link, monkeypatch)

        link._connection._handler._cbs_authenticator._refresh_window = 10**6

        async with asyncio.timeout(WAIT_S):
            with pytest.raises(RetryableError, match=r"not renewed within 0\.2 s") as raised:
                await in_flight
        assert not isinstance(raised.value, LinkLostError)
        assert not link.is_usable


async def test_closing_is_bounded_where_the_peer_takes_nothing(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "_CLOSE_TIMEOUT_S", 0.2)
    async with opened(peer) as link:
        writer = link._connection._writer
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        peer.flow(500)
        await all_read(peer)
        peer.stop_reading()
        sending = [
            asyncio.create_task(link.send(transfer(str(number), 100_000), 0.3, lambda: None, never_late))
            for number in range(20)
        ]
        async with asyncio.timeout(WAIT_S):
            found = await asyncio.gather(*sending, return_exceptions=True)
        assert {type(each) for each in found} == {TimeoutError}
        assert not link._connection.is_drained

        async with asyncio.timeout(WAIT_S / 2):
            await link.close(0.2)

        assert writer.transport.is_closing()
        assert not link._tasks
