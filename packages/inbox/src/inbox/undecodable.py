"""Messages that the SDK cannot decode.

The decoder of azure-servicebus 7.15.0 lacks types of AMQP 1.0 (char, decimal32, decimal64), and rejects
values that are nested deeply or have a list as a name. It raises within the connection, which then ends: the
session would be accepted and lost again forever. So the link receives a replacement for such a message: its
beginning, up to the properties if they can be decoded. The broker identifies the message by its delivery, and
dead-letters it unchanged.
"""

from __future__ import annotations

import logging
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.amqp import AmqpMessageBodyType

_MARK = b"inbox:undecodable"
# A section `amqp-value` that holds a string.
_REPLACEMENT = b"\x00\x53\x77\xa1" + bytes((len(_MARK),)) + _MARK
# Positions in the list of a transfer frame.
_MORE, _PAYLOAD = 5, 11

# The sections of a message before its application properties, and the sizes of a section's length.
# http://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-messaging-v1.0-os.html, part 3.2
_HEAD = (0x70, 0x71, 0x72, 0x73)
_SIZES = {0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4}
_EMPTY_LIST = 0x45

_log = logging.getLogger(__name__)


def is_undecodable(received: ServiceBusReceivedMessage) -> bool:
    """Return True if this is the replacement for a message that could not be decoded."""
    return received.body_type is AmqpMessageBodyType.VALUE and received.body in (_MARK, _MARK.decode())


def head(encoded: bytes) -> bytes:
    """Return the header, annotations and properties of an encoded message, as far as the SDK can decode them."""
    kept, at = b"", 0
    while len(encoded) - at > 4 and encoded[at : at + 2] == b"\x00\x53" and encoded[at + 2] in _HEAD:
        size = _SIZES.get(encoded[at + 3])
        if size is None and encoded[at + 3] != _EMPTY_LIST:
            break
        end = at + 4
        if size is not None:
            end += size + int.from_bytes(encoded[end : end + size], "big")
        section, at = encoded[at:end], end
        try:
            decode_payload(memoryview(section))
        except Exception:  # noqa: BLE001 - the SDK passes on any error of its decoder
            continue
        kept += section
    return kept


def replace_undecodable(receiver: ServiceBusReceiver) -> None:
    """Make a receiver, which must not be open yet, replace messages that it cannot decode.

    The SDK has no hook for this, so private methods of this receiver are wrapped. If a version of the SDK moves
    them, a message that cannot be decoded ends its session again.
    """
    inner: Any = receiver
    create = inner._create_handler

    def create_handler(auth: Any) -> None:
        create(auth)
        client = inner._handler
        ready = client._client_ready_async

        async def client_ready() -> bool:
            # The first call creates the link and sends its attach; nothing is read before the second.
            is_ready: bool = await ready()
            if client._link is not None and not hasattr(client._link, "_decodes"):
                client._link._decodes = client._link._incoming_transfer
                client._link._incoming_transfer = _Transfers(client._link).take
            return is_ready

        client._client_ready_async = client_ready

    inner._create_handler = create_handler


class _Transfers:
    """The transfer frames of a link of the SDK."""

    def __init__(self, link: Any) -> None:
        self._link = link

    async def take(self, frame: list[Any]) -> None:
        link = self._link
        count, credit = link.delivery_count, link.current_link_credit
        try:
            await link._decodes(frame)
        except Exception as error:
            if frame[_MORE]:
                raise
            _log.info("A message could not be decoded: %s", type(error).__name__)
            link.delivery_count, link.current_link_credit = count, credit
            # Of several frames, the SDK has joined the payloads.
            encoded = bytes(link._received_payload or frame[_PAYLOAD])
            link._received_payload = bytearray()
            await link._decodes([*frame[:_PAYLOAD], memoryview(head(encoded) + _REPLACEMENT)])
