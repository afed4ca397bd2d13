"""AMQP types of values on their way through the broker: settling, rules and management keep each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, cast
from uuid import UUID

import pytest
from azure.servicebus.aio import ServiceBusClient
from hypothesis import given
from hypothesis import strategies as st
from proton import (
    UNDESCRIBED,
    Array,
    Condition,
    Data,
    Delivery,
    Described,
    Message,
    byte,
    char,
    decimal32,
    decimal64,
    decimal128,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)
from proton.utils import BlockingConnection, BlockingReceiver

from outbox_relay.emulators.servicebus.codec import decode, encode_value
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from outbox_relay.emulators.servicebus.sql import parse_action
from packages.emulators.tests.servicebus.fakes import a_message, decoded
from packages.emulators.tests.servicebus.raw_amqp import Management, connected, management_nodes
from packages.emulators.tests.servicebus.support import send
from tests.support.watchdog import WATCHDOG_S

DECIMAL = decimal128(encode_value(Decimal("19.99"))[1:])
SPAN = Described(symbol("com.microsoft:timespan"), 900_000_000)
EVERY_TYPE: dict[str, Any] = {
    "boolean": True,
    "ubyte": ubyte(1),
    "ushort": ushort(1),
    "uint": uint(1),
    "ulong": ulong(1),
    "byte": byte(-1),
    "short": short(-1),
    "int": int32(-1),
    "long": -1,
    "float": float32(0.5),
    "double": 0.5,
    "decimal32": decimal32(0x32800001),
    "decimal64": decimal64(0x31C0000000000001),
    "decimal128": DECIMAL,
    "char": char("ü"),
    "timestamp": timestamp(1_700_000_000_000),
    "uuid": UUID(int=7),
    "binary": b"\x00\xff",
    "string": "text",
    "symbol": symbol("text"),
    "DateTimeOffset": Described(symbol("com.microsoft:datetime-offset"), 638_000_000_000_000_000),
    "TimeSpan": SPAN,
    "Uri": Described(symbol("com.microsoft:uri"), "http://example.org/"),
}


def typed(properties: Any) -> dict[str, tuple[type, Any]]:
    """The properties with their types; two Described are the same if their parts are."""
    plain = {name: bytes(each) if isinstance(each, memoryview) else each for name, each in properties.items()}
    return {
        name: (type(value), (value.descriptor, value.value) if isinstance(value, Described) else value)
        for name, value in plain.items()
    }


def abandon(receiver: BlockingReceiver) -> None:
    [delivery] = cast(Any, receiver.fetcher).unsettled
    delivery.local.failed = True
    delivery.local.annotations = {symbol(name): value for name, value in EVERY_TYPE.items()}
    receiver.settle(Delivery.MODIFIED)


def defer(receiver: BlockingReceiver) -> None:
    [delivery] = cast(Any, receiver.fetcher).unsettled
    delivery.local.undeliverable = True
    delivery.local.annotations = {symbol(name): value for name, value in EVERY_TYPE.items()}
    receiver.settle(Delivery.MODIFIED)


def dead_letter(receiver: BlockingReceiver) -> None:
    [delivery] = cast(Any, receiver.fetcher).unsettled
    info: Any = {symbol("DeadLetterReason"): "why", **{symbol(name): value for name, value in EVERY_TYPE.items()}}
    delivery.local.condition = Condition("com.microsoft:dead-letter", None, info)
    receiver.settle(Delivery.REJECTED)


Receive = Callable[[BlockingConnection, Management], Message]


def from_path(path: str, connection: BlockingConnection, _: Management) -> Message:
    return connection.create_receiver(path, credit=1, name="again").receive(WATCHDOG_S)


def by_number(_: BlockingConnection, node: Management) -> Message:
    """Receive the deferred message of the queue, the first one that it got."""
    answer = node.ask(
        "receive-by-sequence-number",
        sequence_numbers=Array(cast(Any, UNDESCRIBED), Data.LONG, 1),
        receiver_settle_mode=uint(1),
    )
    [taken] = answer.body["messages"]
    message = Message()
    message.decode(bytes(taken["message"]))
    return message


def after_outcome(
    settle: Callable[[BlockingReceiver], None], receive: Receive, connection: BlockingConnection
) -> Message:
    """Settle the message of the queue, and receive it again."""
    receiver = connection.create_receiver("orders", credit=0)
    receiver.receive(WATCHDOG_S)
    settle(receiver)
    return receive(connection, Management(connection, "orders"))


def after_request(status: str, receive: Receive, connection: BlockingConnection) -> Message:
    """Settle the message of the queue by a request, and receive it again."""
    held = connection.create_receiver("orders", credit=0).receive(WATCHDOG_S)
    node = Management(connection, "orders")
    answer = node.ask(
        "update-disposition",
        disposition_status=status,
        lock_tokens=[cast("dict[symbol, UUID]", held.instructions)[symbol("x-opt-lock-token")]],
        properties_to_modify=EVERY_TYPE,
    )
    assert answer.status == 200
    return receive(connection, node)


QUEUE = partial(from_path, "orders")
DEAD = partial(from_path, "orders/$DeadLetterQueue")


@pytest.mark.parametrize(
    "settled",
    [
        pytest.param(partial(after_outcome, abandon, QUEUE), id="abandoned"),
        pytest.param(partial(after_outcome, defer, by_number), id="deferred"),
        pytest.param(partial(after_outcome, dead_letter, DEAD), id="dead-lettered"),
        pytest.param(partial(after_request, "abandoned", QUEUE), id="abandoned by a request"),
        pytest.param(partial(after_request, "defered", by_number), id="deferred by a request"),
        pytest.param(partial(after_request, "suspended", DEAD), id="dead-lettered by a request"),
    ],
)
async def test_properties_given_on_settling_keep_their_types(
    server: ServiceBusServer, client: ServiceBusClient, settled: Callable[[BlockingConnection], Message]
) -> None:
    await send(client, "orders", "1")

    def exchange() -> Message:
        with connected(server) as connection:
            return settled(connection)

    message = await asyncio.to_thread(exchange)

    found = dict(cast("dict[str, Any]", message.properties))
    found.pop("DeadLetterReason", None)
    assert typed(found) == typed(EVERY_TYPE)


def test_a_property_that_an_action_copies_keeps_its_type() -> None:
    message = a_message(properties={**EVERY_TYPE, "id": "before"})
    copied = decoded(
        parse_action(", ".join(f"SET copy_{name} = {name}" for name in EVERY_TYPE))
        .apply(message)
        .encode(0, None, ())
    ).properties

    assert typed({name: copied[f"copy_{name}"] for name in EVERY_TYPE}) == typed(EVERY_TYPE)


def test_values_that_an_action_sets_have_the_types_of_their_fields() -> None:
    action = parse_action(
        "SET sys.ContentType = 'text/ü'; SET sys.Label = 5; SET sys.To = newid(); SET a = newid()"
    )

    encoded = action.apply(a_message(content_type="before")).encode(0, None, ())

    assert b"\xa3\x06text/?" in encoded
    assert decoded(encoded).subject == "5"
    assert UUID(decoded(encoded).address)
    assert type(decoded(encoded).properties["a"]) is UUID


_DECIMALS = st.decimals(allow_nan=False).filter(lambda number: abs(number.adjusted()) < 6_000) | st.decimals(
    min_value=-(2**96) + 1, max_value=2**96 - 1, places=10
)


@given(_DECIMALS)
def test_a_decimal_comes_back_as_it_was_encoded(number: Decimal) -> None:
    if len(number.as_tuple().digits) <= 34:
        assert decode(encode_value(number))[0].as_tuple() == number.as_tuple()


@pytest.mark.parametrize(
    ("encoded", "number"),
    [
        ("94 3040 000000000000 0000000000000001", "1"),
        ("94 b03c 000000000000 00000000000007cf", "-19.99"),
        ("94 7800 000000000000 0000000000000000", "Infinity"),
        ("94 7c00 000000000000 0000000000000000", "NaN"),
        ("94 6c10 000000000000 0000000000000000", "0"),
        ("84 31c0000000000001", "1"),
        ("84 6c7386f26fc0ffff", "9999999999999999"),
        ("74 32800001", "1"),
        ("74 6cb8967f", "9999999"),
    ],
)
def test_decimals_are_decoded_from_every_width(encoded: str, number: str) -> None:
    assert str(decode(bytes.fromhex(encoded))[0].normalize()) == number


async def test_sessions_are_listed_as_an_array_of_strings(
    server: ServiceBusServer, client: ServiceBusClient
) -> None:
    """Azure.Messaging.ServiceBus 7.21 takes nothing else."""
    await send(client, "chats", "1", session_id="a")
    async with management_nodes(server) as nodes:
        answer = await nodes.ask(
            "chats", "get-message-sessions", last_updated_time=timestamp(2**53), skip=0, top=5
        )

    found = answer.body["sessions-ids"]
    assert (type(found), found.type, found.elements) == (Array, Data.STRING, ("a",))
