"""Messages as the broker reads, changes and hands them on."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from proton import Message as ProtonMessage
from proton import int32, symbol

from outbox_relay.emulators.servicebus.errors import ArgumentInvalid, DecodeFailed, PropertiesTooLarge
from outbox_relay.emulators.servicebus.message import Property
from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.queue import MessageQueue, QueueSettings
from outbox_relay.emulators.servicebus.sections import split_batch
from packages.emulators.tests.servicebus.fakes import START_MS, FakeClock, a_message, decoded, encoded


def test_all_from_the_properties_on_is_delivered_byte_for_byte() -> None:
    sent = encoded(b"\x00\xff", message_id="m", properties={"n": int32(5)}, content_type="application/json")

    message = parse(sent)
    delivered = message.encode(3, 1000, [])

    assert sent.endswith(message.bare)
    assert delivered.endswith(message.bare)
    received = decoded(delivered)
    assert (received.delivery_count, received.ttl) == (3, 1.0)


def test_annotations_of_the_sender_stay_and_those_of_an_earlier_broker_go() -> None:
    sent = ProtonMessage(body=b"x", inferred=True)
    sent.annotations = {symbol("x-opt-sequence-number"): 77, symbol("mine"): "kept"}

    message = parse(bytes(sent.encode()))

    assert message.decoded_annotations == {"mine": "kept"}


def test_setting_a_property_leaves_the_types_of_the_others_alone() -> None:
    message = a_message(properties={"small": int32(5), "gone": "x"})

    changed = message.with_application_properties({"new": "y", "gone": None})

    received = decoded(changed.encode(0, None, []))
    assert received.properties == {"small": 5, "new": "y"}
    assert type(received.properties["small"]) is int32
    assert bytes(received.body) == b"{}"


def test_properties_can_be_set_on_a_message_that_has_none() -> None:
    message = parse(b"\x00\x53\x75\xa0\x02hi").with_application_properties({"why": "because"})

    received = decoded(message.with_property(Property.TO, "there").encode(0, None, []))

    assert (received.properties, received.address, bytes(received.body)) == ({"why": "because"}, "there", b"hi")


@pytest.mark.parametrize("broken", [b"junk", b"\x00\x53\x75\xa0\x09short", b"\x00\x53\x73\xc0\x02\x01"])
def test_what_is_no_message_is_refused_as_such(broken: bytes) -> None:
    with pytest.raises(DecodeFailed):
        parse(broken)


def test_a_batch_without_messages_is_refused() -> None:
    with pytest.raises(DecodeFailed):
        split_batch(b"")


@pytest.mark.parametrize("name", ["message_id", "session_id", "partition_key"])
def test_ids_may_have_128_characters_and_those_outside_the_basic_plane_count_twice(name: str) -> None:
    for longest, beyond, length in (("ü" * 128, "x" * 129, 129), ("\U0001f600" * 64, "\U0001f600" * 65, 130)):
        assert a_message(**{name: longest})
        with pytest.raises(ArgumentInvalid, match=f"{length} characters"):
            a_message(**{name: beyond})


@pytest.mark.parametrize("sent", [UUID("0b1c2d3e-4f50-4617-8293-a4b5c6d7e8f9"), 7, "text"])
def test_an_id_comes_back_with_the_type_that_it_was_sent_with(sent: Any) -> None:
    message = parse(encoded(b"x", message_id=sent)).identified()

    assert message.message_id == str(sent)
    assert decoded(message.encode(0, None, ())).id == sent


def test_one_property_may_take_32_kib_and_all_together_64() -> None:
    assert a_message(properties={"p": "x" * 32_000, "q": "x" * 32_000}, subject="x" * 1_000)
    for beyond in (
        {"properties": {"p": "x" * 32_768}},
        {"subject": "x" * 32_768},
        {"properties": {f"p{n}": "x" * 16_000 for n in range(5)}},
        {"properties": {"p": "x" * 32_000}, "subject": "x" * 32_000, "content_type": "x" * 2_000},
    ):
        with pytest.raises(PropertiesTooLarge, match="please retry"):
            a_message(**beyond)


def test_a_time_to_live_is_cut_to_that_of_the_queue_in_every_field(clock: FakeClock) -> None:
    queue = MessageQueue(QueueSettings("orders", 1_000, None, 30_000, False), clock.timers)
    created_s = START_MS / 1000

    def held(expires_s: int, scheduled_ms: int | None) -> Any:
        message = a_message(
            ttl_ms=expires_s * 1000,
            creation_time=created_s,
            expiry_time=created_s + expires_s,
            scheduled_ms=scheduled_ms,
        )
        return decoded(queue.enqueue(message).encode())

    for scheduled_ms in (None, START_MS + 5_000):
        long, short = held(18_000, scheduled_ms), held(20, scheduled_ms)
        assert (long.ttl, long.expiry_time - long.creation_time) == (30, 30)
        assert (short.ttl, short.expiry_time - short.creation_time) == (20, 20)


def test_a_time_to_live_too_long_for_the_header_is_in_two_properties() -> None:
    message = ProtonMessage(body=b"x", inferred=True, ttl=0xFFFFFFFF / 1000)
    message.creation_time, message.expiry_time = 1000.0, 1000.0 + 100 * 86400

    assert parse(bytes(message.encode())).ttl_ms == 100 * 86_400_000
