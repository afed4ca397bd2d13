"""A parked message as text, and back."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.inbox.errors import NotStorable
from outbox_relay.inbox.messages import Message
from outbox_relay.inbox.parking import decode, encode

TIMES = st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(fold=0))
SCALARS: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.uuids()
    | st.decimals(allow_nan=False)
    | TIMES
)
NAMES = st.text(max_size=5) | st.sampled_from(["$bytes", "$map", "$float"]) | st.binary(max_size=2)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
MESSAGES = st.builds(
    Message,
    id=st.text(),
    key=st.text(),
    body=st.binary(),
    action=st.text(),
    sequence=st.none() | st.integers(),
    created_at=st.none() | st.text(),
    traceparent=st.none() | st.text(),
    properties=st.dictionaries(NAMES, VALUES, max_size=4),
    delivery_count=st.integers(0, 10),
    sequence_number=st.integers(0, 2**63),
    enqueued_at=st.none() | TIMES,
    topic=st.text(),
)


@given(MESSAGES)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    text = encode(message)

    assert text.isascii()
    back = decode(text)
    assert back == message
    assert repr(back) == repr(message)  # 1, 1.0 and True are equal


def test_a_field_of_a_later_version_is_left_out() -> None:
    text = json.dumps({**json.loads(encode(Message(id="a", key="k", body=b"1"))), "later": 5})

    assert decode(text) == Message(id="a", key="k", body=b"1")


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(NotStorable, match="type object"):
        encode(Message(id="a", key="k", body=b"", properties={"x": object()}))
