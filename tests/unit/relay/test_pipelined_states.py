"""The tables of the link and the connection: every cell is filled, and is what the link does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from outbox_relay.emulators.servicebus import codec
from relay.servicebus import messages
from relay.servicebus.pipelined import frames
from relay.servicebus.pipelined.link import Link, LinkLostError
from relay.servicebus.pipelined.states import REACTIONS, ROUTES, SESSION_FRAMES, Channel, Reaction, Route, State
from relay.servicebus.transfers import alone
from tests.support.amqp_memory import OURS, SDKS_CHANNEL, MemoryConnection
from tests.support.amqp_peer import ACCEPTED, FALSE, RELEASED, TRUE, described
from tests.support.watchdog import WATCHDOG_S
from tests.unit.relay.topics import event

NULL = b"\x40"
KINDS = ["open", "begin", "attach", "flow", "transfer", "disposition", "detach", "end", "close"]
NAMES = dict(enumerate(KINDS, frames.OPEN))

# By AMQP 1.0, parts 2.4 to 2.6, in the order of KINDS: what the tables must say, and the link must do.
REACTIONS_EXPECTED = {
    State.OPENING: "VIOLATION ATTACH SESSION_FLOW VIOLATION IGNORE ENDED ENDED",
    State.REFUSED: "VIOLATION VIOLATION SESSION_FLOW VIOLATION IGNORE ENDED ENDED",
    State.OPEN: "VIOLATION VIOLATION FLOW VIOLATION SETTLE ENDED ENDED",
    State.OVER: "IGNORE IGNORE IGNORE IGNORE IGNORE IGNORE IGNORE",
}
ROUTES_EXPECTED = {
    Channel.OURS: "VIOLATION SESSION SESSION SESSION SESSION SESSION SESSION SESSION CLOSED",
    Channel.SDK: "VIOLATION VIOLATION SDK SDK SDK SDK SDK SDK_ENDED CLOSED",
    Channel.OTHER: "VIOLATION BEGIN IGNORE IGNORE IGNORE IGNORE IGNORE IGNORE CLOSED",
}


def uint(number: int) -> bytes:
    return codec.encode_uint(number)


class Linked:
    """A link to a peer in memory, in one of its states, with one delivery in flight if it is open."""

    def __init__(self) -> None:
        self.connection = MemoryConnection()
        self.link = Link(self.connection, lambda seconds: None)
        self.reading = asyncio.create_task(self.link._read())
        self.sending: asyncio.Task[None] | None = None

    async def read(self) -> None:
        """Let the link read all that the peer has sent."""
        for _ in range(6):
            await asyncio.sleep(0)

    def attach(self, *, target: bool, name: str | None = None) -> None:
        name = self.link._name if name is None else name
        terminuses = [described(0x28), described(0x29) if target else NULL]
        self.connection.send(
            frames.ATTACH, [codec.encode_string(name), uint(0), TRUE, b"P\x00", b"P\x00", *terminuses]
        )

    async def enter(self, state: State) -> None:
        self.connection.send(frames.BEGIN, [b"\x60\x00\x02", uint(0), uint(5), uint(5)])
        if state is State.REFUSED:
            self.attach(target=False)
        elif state is not State.OPENING:
            self.attach(target=True)
            self.connection.send(frames.FLOW, [uint(0), uint(5), uint(0), uint(5), uint(0), uint(0), uint(3)])
            await self.read()
            transfer = alone(event("a"), messages.plain)
            self.sending = asyncio.create_task(self.link.send(transfer, 60, lambda: None, lambda: None))
        await self.read()
        if state is State.OVER:
            self.link._violated(0)
        assert self.link._state is state
        self.connection.written.clear()

    def give(self, kind: int) -> None:
        """A frame of the session, as a peer would send it whose link is attached."""
        {
            frames.BEGIN: lambda: self.connection.send(frames.BEGIN, [b"\x60\x00\x02", uint(0), uint(5), uint(5)]),
            frames.ATTACH: lambda: self.attach(target=True),
            frames.FLOW: lambda: self.connection.send(
                frames.FLOW, [uint(1), uint(7), uint(0), uint(5), uint(0), uint(1), uint(9)]
            ),
            frames.TRANSFER: lambda: self.connection.send(
                frames.TRANSFER, [uint(0), uint(0), b"\xa0\x01a", uint(0)]
            ),
            frames.DISPOSITION: lambda: self.connection.send(
                frames.DISPOSITION, [TRUE, uint(0), NULL, TRUE, described(ACCEPTED)]
            ),
            frames.DETACH: lambda: self.connection.send(frames.DETACH, [uint(0), TRUE, NULL]),
            frames.END: lambda: self.connection.send(frames.END, [NULL]),
        }[kind]()


@asynccontextmanager
async def linked(state: State) -> AsyncIterator[Linked]:
    made = Linked()
    await made.enter(state)
    yield made
    made.link._attached.cancel() if not made.link._attached.done() else made.link._attached.exception()
    await made.link.close()
    made.reading.cancel()
    await asyncio.gather(made.reading, *([made.sending] if made.sending else []), return_exceptions=True)


async def reaction(state: State, kind: int) -> Reaction:
    """The link's observed action on a frame; a flow of a link that is not attached belongs to no link here."""
    async with linked(state) as made:
        link, credit, written = made.link, made.link._credit, made.connection.written
        lost = link._lost
        if kind == frames.FLOW and state is not State.OPEN:
            made.connection.send(frames.FLOW, [uint(0), uint(7), uint(0), uint(5)])
        else:
            made.give(kind)
        await made.read()
        if link._lost is not lost:
            if "AMQP does not allow" in str(link._lost):
                return Reaction.VIOLATION
            assert [code for code, _, _ in written] == [kind]
            return Reaction.ENDED
        if link._state is not state:
            assert link._state is State.OPEN
            return Reaction.ATTACH
        if made.sending is not None and made.sending.done() and lost is None:
            return Reaction.SETTLE
        if credit.delivery_limit == 10:
            return Reaction.FLOW
        return Reaction.SESSION_FLOW if credit.transfer_limit == 7 else Reaction.IGNORE


@pytest.mark.parametrize("state", State)
async def test_the_link_does_what_its_table_says(state: State) -> None:
    expected = dict(zip(KINDS[1:-1], REACTIONS_EXPECTED[state].split(), strict=True))

    assert {NAMES[kind]: said.name for kind, said in REACTIONS[state].items()} == expected
    assert {NAMES[kind]: (await reaction(state, kind)).name for kind in SESSION_FRAMES} == expected


async def route(channel: Channel, kind: int) -> Route:
    """The observed path of a frame."""
    numbers = {Channel.OURS: OURS, Channel.SDK: SDKS_CHANNEL, Channel.OTHER: 77}
    state = State.OPENING if (channel, kind) == (Channel.OTHER, frames.BEGIN) else State.OPEN
    async with linked(state) as made:
        if state is State.OPENING:
            # The session is begun, so that another answer to our begin is a second one.
            made.link._remote_channel = None
        fields = {
            frames.BEGIN: [b"\x60\x00\x02", uint(0), uint(5), uint(5)],
            frames.FLOW: [uint(1), uint(7), uint(0), uint(5)],
            frames.DISPOSITION: [FALSE, uint(0)],
        }.get(kind, [NULL])
        made.connection.send(kind, fields, channel=numbers[channel])
        await made.read()
        said, given_back = str(made.link._lost or ""), made.connection.given_back
        if "closed the connection" in said:
            assert given_back == [(numbers[channel], frames.CLOSE)]
            return Route.CLOSED
        if "session of the tokens" in said:
            return Route.SDK_ENDED
        if given_back:
            return Route.SDK
        if channel is Channel.OURS and kind in SESSION_FRAMES:
            return Route.SESSION
        if "AMQP does not allow" in said:
            return Route.VIOLATION
        return Route.BEGIN if made.link._remote_channel == 77 else Route.IGNORE


@pytest.mark.parametrize("channel", Channel)
async def test_the_connection_does_what_its_table_says(channel: Channel) -> None:
    expected = dict(zip(KINDS, ROUTES_EXPECTED[channel].split(), strict=True))

    assert {NAMES[kind]: said.name for kind, said in ROUTES[channel].items()} == expected
    assert {NAMES[kind]: (await route(channel, kind)).name for kind in NAMES} == expected


async def test_what_a_link_is_refused_with_comes_with_its_detach() -> None:
    async with linked(State.REFUSED) as made:
        made.give(frames.DETACH)
        await made.read()
        assert made.link._attached.exception() is made.link._lost


@pytest.mark.parametrize(
    ("kind", "state"),
    # While it opens, it is not known which handle the peer will have.
    [(frames.FLOW, State.OPENING), (frames.FLOW, State.OPEN), (frames.DETACH, State.OPEN)],
)
async def test_a_frame_of_another_handle_is_not_of_this_link(kind: int, state: State) -> None:
    async with linked(state) as made:
        fields = [uint(1), uint(7), uint(0), uint(5), uint(4)] if kind == frames.FLOW else [uint(4), TRUE]
        made.connection.send(kind, fields)
        await made.read()
        assert "AMQP does not allow" in str(made.link._lost)


async def test_the_peers_own_links_and_sessions_are_not_taken_for_ours() -> None:
    async with linked(State.OPENING) as made:
        made.connection.send(frames.BEGIN, [NULL, uint(0), uint(5), uint(5)], channel=5)
        made.connection.send(frames.ATTACH, [codec.encode_string("its own"), uint(0), FALSE], channel=5)
        await made.read()
        assert made.link._lost is None
        made.attach(target=True, name="its own")
        await made.read()
        assert "AMQP does not allow" in str(made.link._lost)


async def test_a_disposition_of_a_sender_is_about_no_delivery_of_ours() -> None:
    async with linked(State.OPEN) as made:
        made.connection.send(frames.DISPOSITION, [FALSE, uint(0), NULL, TRUE, described(ACCEPTED)])
        await made.read()
        assert made.sending is not None
        assert not made.sending.done()
        assert made.link._lost is None


async def test_while_the_link_opens_the_session_says_how_far_it_is() -> None:
    async with linked(State.OPENING) as made:
        made.connection.send(
            frames.FLOW, [uint(0), uint(7), uint(3), uint(5), NULL, NULL, NULL, NULL, FALSE, TRUE]
        )
        await made.read()
        ((code, fields, _),) = made.connection.written
        assert (code, fields[0], fields[4]) == (frames.FLOW, 3, None)


async def test_a_session_whose_window_is_no_number_is_not_used() -> None:
    made = Linked()
    made.connection.send(frames.BEGIN, [b"\x60\x00\x02", uint(0), b"\x45", uint(5)])
    await made.read()
    assert "[]" in str(made.link._lost)
    assert made.link._attached.exception() is made.link._lost
    await made.link.close()
    made.reading.cancel()


async def test_a_delivery_begins_only_where_its_first_frame_has_room() -> None:
    async with linked(State.OPEN) as made:
        made.connection.send(frames.FLOW, [uint(1), uint(0), uint(0), uint(5), uint(0), uint(1), uint(3)])
        await made.read()
        transfer = alone(event("b"), messages.plain)
        waiting = asyncio.create_task(made.link.send(transfer, 60, lambda: None, lambda: None))
        await made.read()

        # The peer takes its credit back, and says later that the session has room.
        made.connection.send(
            frames.FLOW, [uint(1), uint(0), uint(0), uint(5), uint(0), uint(1), uint(3), NULL, TRUE, FALSE]
        )
        made.connection.send(frames.FLOW, [uint(1), uint(9), uint(0), uint(5)])
        await made.read()

        ((code, fields, _),) = made.connection.written
        assert (code, fields[5], fields[6]) == (frames.FLOW, 4, 0)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_the_first_outcome_that_the_peer_says_stands() -> None:
    async with linked(State.OPEN) as made:
        received, accepted, released = described(0x23), described(ACCEPTED), described(RELEASED)
        for state, settled in ((received, FALSE), (accepted, FALSE), (released, FALSE), (released, TRUE)):
            made.connection.send(frames.DISPOSITION, [TRUE, uint(0), NULL, settled, state])
        assert made.sending is not None
        async with asyncio.timeout(WATCHDOG_S):
            await made.sending


@pytest.mark.parametrize(
    ("state", "written"),
    [(State.OPENING, []), (State.OPEN, [frames.DETACH, frames.END]), (State.OVER, [])],
    ids=["opening", "open", "over"],
)
async def test_a_link_that_is_closed_is_detached_unless_it_is_not_attached_any_more(
    state: State, written: list[int]
) -> None:
    async with linked(state) as made:
        await made.link.close()
        assert [code for code, _, _ in made.connection.written] == written
        assert made.connection.closed.is_set()
        assert not made.link.is_usable


async def test_once_the_link_is_over_nothing_is_sent_and_the_first_reason_stands() -> None:
    async with linked(State.OPEN) as made:
        made.link._violated(frames.BEGIN)
        reason = made.link._lost
        made.connection.written.clear()
        made.link._violated(frames.ATTACH)

        with pytest.raises(LinkLostError) as raised:
            await made.link.send(alone(event("b"), messages.plain), 60, lambda: None, lambda: None)

        assert raised.value is reason is made.link._lost
        assert made.connection.written == []
