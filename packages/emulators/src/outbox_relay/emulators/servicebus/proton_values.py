"""Values between Proton, which decodes requests and outcomes, and the codec, which keeps messages as bytes."""

from __future__ import annotations

from typing import Any

from proton import Array, Data

from outbox_relay.emulators.servicebus import codec


def to_codec(value: Any) -> codec.Value:
    """Return a simple value in its encoding, so that it keeps the type that the client gave it.

    None and compound values, which no property of a message can have, are returned as they are.
    """
    if value is None or isinstance(value, list | dict | Array):
        return value
    data = Data()
    data.put_object(value)
    return codec.Encoded(data.encode())


def from_codec(value: codec.Value) -> Any:
    """Return the value as Proton has it, to be encoded with the type that `codec.encode_value` gives it."""
    data = Data()
    data.decode(codec.encode_value(value))
    data.rewind()
    data.next()
    return data.get_object()
