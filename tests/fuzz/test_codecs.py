"""Any bytes are read, or refused with the reader's own error, and what is read is no larger than what was sent."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from outbox_relay.emulators.cosmos import hybridrow, jsontext
from outbox_relay.emulators.cosmos.errors import CosmosError
from outbox_relay.emulators.cosmos.query.evaluation import Scope, compile_expression
from outbox_relay.emulators.cosmos.query.parsing import parse_query
from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.administration import atom
from outbox_relay.emulators.servicebus.administration.errors import ApiError
from outbox_relay.emulators.servicebus.errors import ServiceBusError
from outbox_relay.emulators.servicebus.frames import DeliveryTracker, FrameReader, encode_frame
from outbox_relay.emulators.servicebus.parsing import parse
from outbox_relay.emulators.servicebus.sasl import HEADER, Sasl
from outbox_relay.emulators.servicebus.sql import EvaluationError, SqlError, parse_action, parse_filter
from tests.fuzz.budget import DOCUMENTS, tried, trying

EXAMPLES = DOCUMENTS // 20
EMPTY_ITEMS = 255

_CODES = [0x00, 0x40, 0x41, 0x43, 0x45, 0x50, 0x53, 0x70, 0x80, 0xA0, 0xA1, 0xA3, 0xB1, 0xC0, 0xC1, 0xD0, 0xD1]
_ARRAYS = [0xE0, 0xF0]
_SMALL = st.integers(0, 12)


def _pieces() -> st.SearchStrategy[bytes]:
    """Pieces of AMQP: constructors, sizes and counts that may be right, and noise."""
    return st.one_of(
        st.sampled_from(_CODES + _ARRAYS).map(lambda code: bytes([code])),
        _SMALL.map(lambda size: bytes([size])),
        _SMALL.map(struct.Struct(">I").pack),
        st.tuples(st.sampled_from([0xC0, 0xC1, 0xE0]), _SMALL, _SMALL).map(bytes),
        st.tuples(st.sampled_from([0xD0, 0xD1, 0xF0]), _SMALL, _SMALL).map(
            lambda parts: struct.pack(">BII", *parts)
        ),
        st.binary(max_size=6),
    )


AMQP = st.lists(_pieces(), max_size=60).map(b"".join)


def _size(value: Any) -> int:
    """How many values there are in a value."""
    if isinstance(value, list):
        return 1 + sum(map(_size, value))
    if isinstance(value, dict):
        return 1 + sum(_size(key) + _size(each) for key, each in value.items())
    return 1


@trying(EXAMPLES)
@given(data=AMQP)
def test_amqp_values(data: bytes) -> None:
    tried["AMQP values"] += 1
    with suppress(*codec.DECODE_ERRORS):
        value, end = codec.decode(data)
        assert 0 < end <= len(data)
        assert _size(value) <= len(data) * EMPTY_ITEMS
    with suppress(*codec.DECODE_ERRORS):
        assert sum(map(len, codec.items(data, 0))) <= len(data)
    with suppress(*codec.DECODE_ERRORS):
        assert 0 < codec.skip(data, 0) <= len(data)


@trying(EXAMPLES)
@given(
    fields=AMQP, code=st.integers(0x0F, 0x19) | st.integers(0x3F, 0x45), kind=st.sampled_from([0, 1]), cut=_SMALL
)
def test_amqp_frames(fields: bytes, code: int, kind: int, cut: int) -> None:
    tried["AMQP frames"] += 1
    data = encode_frame(kind, code, [fields]) + encode_frame(0, code, [])[:cut] + HEADER
    sasl, tracker = Sasl(lambda name, key: False), DeliveryTracker()
    answered = 0
    for frame in FrameReader(512).feed(data):
        if Sasl.concerns(frame):
            answered += bool(sasl.answer(frame))
        else:
            tracker.follow(frame)

    assert answered <= 2


@trying(EXAMPLES)
@given(sections=st.lists(st.tuples(st.integers(0x6F, 0x79), AMQP), max_size=5))
def test_messages(sections: list[tuple[int, bytes]]) -> None:
    tried["AMQP messages"] += 1
    data = b"".join(bytes((codec.DESCRIBED, 0x53, code)) + value for code, value in sections)
    with suppress(ServiceBusError):
        message = parse(data)
        with suppress(*codec.DECODE_ERRORS):
            assert len(message.application_properties) <= len(data)


@trying(EXAMPLES)
@given(row=st.binary(max_size=80), schema=st.sampled_from([2145473648, 0]), kind=st.integers(0, 21))
def test_hybrid_rows(row: bytes, schema: int, kind: int) -> None:
    tried["HybridRow batches"] += 1
    whole = struct.pack("<BiBii", 0x81, schema, kind * 12 % 256, kind, 0) + row
    header = struct.pack("<BiBi", 0x81, 2147473648, 1, 10)
    record = struct.pack("<BiiI", 0x81, 2147473649, len(whole), zlib.crc32(whole))
    for body in (row, header + record + whole, header + record + whole[: len(whole) // 2]):
        with suppress(hybridrow.InvalidRow):
            hybridrow.operations(body)


_JSON = st.lists(st.sampled_from([*'[]{}",:0123456789.eE+-tfn\\ u', "true", "1e999", "9" * 400]), max_size=40)


@trying(EXAMPLES)
@given(text=_JSON.map("".join) | st.text(max_size=40))
def test_json(text: str) -> None:
    tried["JSON texts"] += 1
    with suppress(CosmosError):
        jsontext.parse(jsontext.decode(text.encode("utf-8", "surrogatepass")))


_QUERY = """
SELECT VALUE c FROM WHERE JOIN IN LIKE ESCAPE AND OR NOT BETWEEN ORDER BY GROUP TOP OFFSET LIMIT DISTINCT EXISTS
ARRAY REPLACE REPLICATE CONCAT SQUARE c.a c.t @p ( ) [ ] { } , . ? : ?? || + - * / % & | ^ ~ << >> >>> = != < >
'a' 'aaaa%a%b' 1 0 1e308 99999999999999999999 null true undefined
"""
_ITEM = {"a": 1 << 62, "t": "aaaaaaaaaaaaaaaa", "list": [1, "a"], "c": {"a": -1.5}}


@trying(EXAMPLES)
@given(words=st.lists(st.sampled_from(_QUERY.split()), max_size=12))
def test_queries(words: list[str]) -> None:
    tried["queries"] += 1
    with suppress(CosmosError):
        query = parse_query("SELECT VALUE " + " ".join(words) + " FROM c")
        for selected in query.selected:
            if not query.aggregates and not any(True for _ in query.joins):
                with suppress(KeyError):  # subqueries are worth something only where a query is carried out
                    compile_expression(selected.expression, {"@p": "a%a%b"})(Scope(_ITEM))


_RULE = """
SET REMOVE LIKE ESCAPE AND OR NOT IN IS NULL EXISTS ( ) , ; . sys user sys.Label a b t [a] "a" @p newid() p
+ - * / % = <> != < > <= >= 'a' 'a%a%b' 1 0 9223372036854775807 99999999999999999999 1.5 TRUE FALSE
"""


@trying(EXAMPLES)
@given(words=st.lists(st.sampled_from(_RULE.split()), max_size=14))
def test_rules(words: list[str]) -> None:
    tried["rules"] += 1
    text = " ".join(words)
    message = _message()
    with suppress(SqlError, EvaluationError):
        parse_filter(text, {"@p": "x"}).matches(message)
    with suppress(SqlError, EvaluationError):
        parse_action(f"SET a = {text}", {"@p": "x"}).apply(message)


def _message() -> Any:
    values = {"a": 1 << 62, "b": -1.5, "t": "a" * 40}
    body = b"".join(codec.encode_string(name) + codec.encode_value(each) for name, each in values.items())
    return parse(bytes((codec.DESCRIBED, 0x53, 0x74)) + codec.encode_map(len(values), body))


_ENTRY = """
<entry <content <QueueDescription </entry> </content> > /> < &a; x xmlns='http://www.w3.org/2005/Atom' \0 \ud800
"""
_PROLOGS = ["<!DOCTYPE a [<!ENTITY a 'aaaa'>]>", "<?xml version='1.0'?>"]
_ENTRIES = st.lists(st.sampled_from([*_ENTRY.split(), *_PROLOGS, " "]), max_size=14)


@trying(EXAMPLES)
@given(parts=_ENTRIES)
def test_entries_of_the_management_api(parts: list[str]) -> None:
    tried["Atom entries"] += 1
    with suppress(ApiError):
        atom.read_description("".join(parts).encode("utf-8", "surrogatepass"))
