"""The part of the AMQP 1.0 type system the broker reads and writes itself, on plain bytes.

Proton decodes whole messages into Python objects. A broker mostly needs to find where a section begins and ends,
and to read a few of its fields, so that what was sent can be delivered byte for byte. Encodings are those of the
OASIS AMQP 1.0 specification, part 1, section 1.6.
"""

from outbox_relay.emulators.servicebus.codec.decoding import DECODE_ERRORS, decode, items, skip
from outbox_relay.emulators.servicebus.codec.encoding import (
    encode_binary,
    encode_int,
    encode_list,
    encode_long,
    encode_map,
    encode_string,
    encode_symbol,
    encode_symbols,
    encode_timestamp,
    encode_ubyte,
    encode_uint,
    encode_value,
)
from outbox_relay.emulators.servicebus.codec.types import (
    DESCRIBED,
    NULL,
    TICKS_PER_MS,
    UNIX_EPOCH_TICKS,
    CodecError,
    Encoded,
    Moment,
    Symbol,
    TimeSpan,
    Timestamp,
    Value,
)

__all__ = [
    "DECODE_ERRORS",
    "DESCRIBED",
    "NULL",
    "TICKS_PER_MS",
    "UNIX_EPOCH_TICKS",
    "CodecError",
    "Encoded",
    "Moment",
    "Symbol",
    "TimeSpan",
    "Timestamp",
    "Value",
    "decode",
    "encode_binary",
    "encode_int",
    "encode_list",
    "encode_long",
    "encode_map",
    "encode_string",
    "encode_symbol",
    "encode_symbols",
    "encode_timestamp",
    "encode_ubyte",
    "encode_uint",
    "encode_value",
    "items",
    "skip",
]
