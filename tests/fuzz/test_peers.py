"""Peers of the pipelined sender that conform to AMQP, and peers that do not, by a seed, in virtual time.

Whatever a peer does, an attempt ends in time, nothing is a defect, and no task is left. Once the peer behaves,
everything is accepted within a few attempts. With a peer that conforms, each key's events are in order, and the
sender conforms.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.sections import split_batch
from relay.core.errors import DefectError
from relay.core.events import Event
from relay.core.evidence import AcceptedLedger
from relay.servicebus import messages
from relay.servicebus.pipelined import frames
from relay.servicebus.pipelined.lanes import Lane, PipelinedSenders
from relay.servicebus.pipelined.link import Link
from relay.servicebus.publisher import ServiceBusPublisher
from tests.fuzz.budget import DOCUMENTS, tried, trying
from tests.support import virtual_time
from tests.support.amqp_memory import OURS, SDKS_CHANNEL, MemoryConnection
from tests.support.amqp_peer import ACCEPTED, FALSE, MODIFIED, REJECTED, RELEASED, TRUE, described, error
from tests.support.outbox import event, sound
from tests.support.waiting import forever

NULL = b"\x40"
KEYS = 10
ATTEMPT_S = 60.0
# The attempt, an opening that it waits for, and the last transfer.
BOUND_S = 2 * ATTEMPT_S
_BAD_ATTEMPTS, _GOOD_ATTEMPTS = 5, 4

# Values of every kind, of which the SDK's decoder knows only some; the last is a described map with an array.
VALUES = [
    NULL,
    TRUE,
    FALSE,
    b"\x43",
    b"\x44",
    b"\x45",
    codec.encode_uint(2**32 - 1),
    codec.encode_uint(7),
    b"\x55\xff",
    b"\x72\x40\x00\x00\x00",
    b"\x94" + bytes(16),
    b"\x98" + bytes(16),
    b"\x83" + bytes(8),
    codec.encode_string("text"),
    codec.encode_symbol("symbol"),
    codec.encode_binary(b"\x00\xff"),
    b"\xe0\x04\x02\x50\x01\x02",
    b"\xf0\x00\x00\x00\x05\x00\x00\x00\x01\x40",
    b"\x00\xa3\x03odd" + codec.encode_map(2, codec.encode_symbol("key") + b"\xe0\x03\x01\x50\x01"),
    b"\x00\x00\x53\x01\x53\x02\xc0\x02\x01\x40",
    codec.encode_list([codec.encode_list([codec.encode_list([])])]),
]
CONDITIONS = [
    "amqp:internal-error",
    "amqp:link:detach-forced",
    "amqp:connection:forced",
    "amqp:link:redirect",
    "amqp:connection:redirect",
    "amqp:not-found",
    "amqp:unauthorized-access",
    "com.microsoft:server-busy",
    "com.microsoft:timeout",
    "vendor:unknown",
]


class Service:
    """The topic behind the peers: what it has accepted, and how it behaves.

    Attributes:
        accepted: The ids by key, without duplicates, in order.
        behaves: Whether its peers answer everything at once.
        violations: What the sender has done that AMQP does not allow.
    """

    def __init__(self, seed: int, *, conforms: bool) -> None:
        self.random = random.Random(seed)
        self.conforms = conforms
        self.accepted: dict[str, list[str]] = defaultdict(list)
        self.behaves = False
        self.violations: list[str] = []
        self._seen: set[str] = set()

    def take(self, payload: bytes, message_format: int) -> None:
        for each in split_batch(payload) if message_format else [payload]:
            message = parse(each)
            if message.message_id not in self._seen:
                self._seen.add(str(message.message_id))
                self.accepted[str(message.session_id)].append(str(message.message_id))

    def chance(self, of: float) -> bool:
        return not self.behaves and self.random.random() < of

    def reason(self) -> bytes:
        """Nothing, or an error, with descriptions and maps of any kind, or without."""
        pick = self.random.choice
        more = [codec.encode_string("said"), codec.encode_map(2, codec.encode_symbol("k") + pick(VALUES))]
        made = error(pick(CONDITIONS), *more[: pick([0, 1, 2])])
        return pick([NULL, made, made])


class Peer:
    """The service's end of one connection."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.connection = MemoryConnection(self._take)
        self._loop = asyncio.get_running_loop()
        # By the peer's account: deliveries begun, frames received, and what it has granted of both.
        self._deliveries = self._frames = 0
        self._delivery_limit = self._frame_limit = 0
        self._payload: bytearray | None = None
        self._is_draining = False
        # Answers to flows that ask for one, of which the last may be to a drain.
        self._answers_due = 0
        self._is_over = False
        if not service.conforms and service.chance(0.3):
            self._soon(self._misbehave)

    def _soon(self, act: Callable[[], None], most_s: float = 5.0) -> None:
        self._loop.call_later(0 if self.service.behaves else self.service.random.uniform(0, most_s), act)

    def send(self, code: int, fields: list[bytes], channel: int = OURS) -> None:
        self.connection.send(code, fields, channel=channel)

    # What comes

    def _take(self, code: int, fields: list[Any], payload: bytes) -> None:
        if self._is_over or self.service.chance(0.01):
            # Silence, for good.
            self._is_over = True
        elif code == frames.BEGIN:
            self._soon(self._begin)
        elif code == frames.ATTACH:
            self._soon(lambda: self._attach(fields[0]))
        elif code == frames.TRANSFER:
            self._transfer(fields + [None] * 11, payload)
        elif code == frames.FLOW:
            self._answers_due -= 1
            if self._is_draining and not self._answers_due:
                # What it has not used is taken back.
                self._is_draining = False
                self._deliveries = fields[5]

    def _begin(self) -> None:
        if self.service.chance(0.2):
            self._session_of_its_own()
        self._frame_limit = self.service.random.choice([1, 3, 100]) if not self.service.behaves else 5_000
        numbers = [codec.encode_uint(each) for each in (0, self._frame_limit, 5_000)]
        self.send(frames.BEGIN, [b"\x60\x00\x02", *numbers])

    def _session_of_its_own(self) -> None:
        self.send(frames.BEGIN, [NULL, *[codec.encode_uint(5)] * 3], channel=4)
        self.send(frames.ATTACH, [codec.encode_string("its own"), codec.encode_uint(0), TRUE], channel=4)
        self.send(frames.FLOW, [codec.encode_uint(1)] * 7, channel=4)
        self.send(frames.END, [self.service.reason()], channel=4)

    def _attach(self, name: Any) -> None:
        refused = self.service.chance(0.1)
        name = name.encode() if isinstance(name, str) else bytes(name)
        target = NULL if refused else described(0x29)
        self.send(
            frames.ATTACH,
            [b"\xa1" + bytes([len(name)]) + name, codec.encode_uint(0), TRUE, NULL, NULL, described(0x28), target],
        )
        if refused:
            self._soon(lambda: self.send(frames.DETACH, [codec.encode_uint(0), TRUE, self.service.reason()]))
        else:
            self._soon(self._grant)

    def _grant(self) -> None:
        """Grant credit and room, none at times, and look again later."""
        if self._is_over:
            return
        self._loop.call_later(self.service.random.uniform(1, 20), self._grant)
        if self._is_draining:
            return
        pick = self.service.random.choice
        credit, window = (5_000, 5_000) if self.service.behaves else (pick([0, 1, 5, 100]), pick([0, 1, 5, 100]))
        self._delivery_limit = max(self._delivery_limit, self._deliveries + credit)
        self._frame_limit = max(self._frame_limit, self._frames + window)
        drain, echo = self.service.chance(0.1), self.service.chance(0.2)
        self._is_draining = drain
        self._answers_due += drain or echo
        numbers = (self._frames, self._frame_limit - self._frames, 0, 5_000, 0)
        link = (self._deliveries, self._delivery_limit - self._deliveries)
        flags = [NULL, TRUE if drain else FALSE, TRUE if echo else FALSE]
        self.send(frames.FLOW, [*map(codec.encode_uint, (*numbers, *link)), *flags])

    def _transfer(self, fields: list[Any], payload: bytes) -> None:
        self._frames += 1
        if self._frames > self._frame_limit:
            self.service.violations.append("a frame for which the session has no room")
        if self._payload is None:
            self._payload = bytearray()
            self._deliveries += 1
            if self._deliveries > self._delivery_limit:
                self.service.violations.append("a transfer without credit")
        self._payload += payload
        if fields[9]:
            self._payload = None
        elif not fields[5]:
            whole, self._payload = bytes(self._payload), None
            self._answer(fields[1], whole, fields[3] or 0)

    # What is answered

    def _answer(self, number: int, payload: bytes, message_format: int) -> None:
        service = self.service
        if service.behaves or service.random.random() < 0.7:
            service.take(payload, message_format)
            state = described(ACCEPTED)
        else:
            refusals = [described(RELEASED), described(MODIFIED, [TRUE]), described(REJECTED, [service.reason()])]
            state = service.random.choice(refusals)
        if service.chance(0.05):
            return
        if service.chance(0.05):
            self._soon(self._end, 1.0)
        if service.chance(0.2):
            self._settle(number, described(0x23, [codec.encode_uint(0), b"\x44"]), settled=False)
        if service.chance(0.3):
            self._settle(number, state, settled=False)
            self._soon(lambda: self._settle(number, NULL, settled=True), 40.0)
        else:
            self._soon(lambda: self._settle(number, state, settled=True), service.random.choice([0.1, 5, 40]))

    def _settle(self, number: int, state: bytes, *, settled: bool) -> None:
        if self._is_over:
            return
        numbers = [codec.encode_uint(number), NULL if self.service.chance(0.5) else codec.encode_uint(number)]
        self.send(frames.DISPOSITION, [TRUE, *numbers, TRUE if settled else FALSE, state])

    def _end(self) -> None:
        """The link, the session or the connection ends."""
        if self._is_over:
            return
        self._is_over = True
        reason = self.service.reason()
        handle = codec.encode_uint(0)
        ends: list[Callable[[], None]] = [
            lambda: self.send(frames.DETACH, [handle, TRUE, reason]),
            lambda: self.send(frames.END, [reason]),
            lambda: self.send(frames.END, [reason], channel=SDKS_CHANNEL),
            lambda: self.send(frames.CLOSE, [reason], channel=0),
            self.connection.end,
            lambda: self.connection.end(ConnectionResetError("reset")),
        ]
        self.service.random.choice(ends)()

    def _misbehave(self) -> None:
        """Send what AMQP does not allow: any frame, with any fields, anywhere, or what is no frame."""
        if self.service.behaves:
            return
        pick, number = self.service.random.choice, self.service.random.randrange
        for _ in range(number(1, 4)):
            if self.service.random.random() < 0.2:
                junk = self.service.random.randbytes(number(1, 40))
                self.connection.feed(pick([junk, (8 + len(junk)).to_bytes(4, "big") + b"\x02\x00\x00\x09" + junk]))
            else:
                fields = [pick(VALUES) for _ in range(number(0, 15))]
                self.send(
                    pick([*range(0x10, 0x19), 0x53, 0x70]), fields, channel=pick([0, SDKS_CHANNEL, 4, OURS, OURS])
                )
        self._soon(self._misbehave, 20.0)


async def publish_all(service: Service) -> None:
    """Publish while the service is as it is, and then while it behaves."""
    sizes = [service.random.choice([0, 0, 3_000]) for _ in range(KEYS)]
    page: dict[str, list[Event]] = {
        f"k{key}": [
            sound(event(f"{key}-{at}", f"k{key}", text="x" * size)) for at in range(service.random.randint(1, 4))
        ]
        for key, size in enumerate(sizes)
    }
    client: Any = None
    senders = PipelinedSenders(client, "topic", 256)
    publisher = ServiceBusPublisher(
        senders,
        messages.plain,
        AcceptedLedger(),
        send_timeout_s=30,
        attempt_timeout_s=ATTEMPT_S,
        duplicate_window_s=600,
    )
    for attempt in range(_BAD_ATTEMPTS + _GOOD_ATTEMPTS):
        service.behaves = attempt >= _BAD_ATTEMPTS
        left = {key: [each for each in mine if not publisher.has_accepted(each)] for key, mine in page.items()}
        async with asyncio.timeout(BOUND_S):
            outcomes = await publisher.publish({key: mine for key, mine in left.items() if mine}, rotate=attempt)
        assert not [each.error for each in outcomes if isinstance(each.error, DefectError)]
        assert not any(outcome.rejected for outcome in outcomes)
    assert [outcome.error for outcome in outcomes] == []
    async with asyncio.timeout(BOUND_S):
        await senders.close()
    # Timers of the peers may be left, but no task.
    assert asyncio.all_tasks() == {asyncio.current_task()}
    if service.conforms:
        assert service.violations == []
        assert service.accepted == {key: [each.id for each in mine] for key, mine in page.items()}


def play(seed: int, *, conforms: bool) -> None:
    service = Service(seed, conforms=conforms)

    async def connect(lane: Lane) -> Link:
        while service.chance(0.05):
            # No word, until the limit of an opening.
            await forever()
        return await Link.open(Peer(service).connection, lane._accepted_late)

    with patch.object(Lane, "_connect", connect):
        virtual_time.run(publish_all(service))
    tried["histories of peers"] += 1


SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("conforms", [True, False], ids=["conforms to AMQP", "does not"])
@trying(DOCUMENTS // 40)
@given(seed=SEEDS)
@example(seed=1)
def test_no_peer_stops_the_sender(conforms: bool, seed: int) -> None:
    play(seed, conforms=conforms)
