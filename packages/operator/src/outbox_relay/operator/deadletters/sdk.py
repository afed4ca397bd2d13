"""Use of azure-servicebus (7.15.0) beyond its public API: peeking and receiving messages undecoded.

Its decoder lacks types of AMQP 1.0 (char, decimal32, decimal64), and one such message ends the connection, or
fails the whole page that is peeked. It does not tell text from binary data, so a message that it has decoded
cannot be sent again as it was. And its public methods renew and settle one lock with a request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus._common import mgmt_handlers
from azure.servicebus._common.constants import (
    MGMT_REQUEST_FROM_SEQUENCE_NUMBER,
    MGMT_REQUEST_MAX_MESSAGE_COUNT,
    MGMT_RESPONSE_MESSAGE_EXPIRATION,
    REQUEST_RESPONSE_PEEK_OPERATION,
    SETTLEMENT_ABANDON,
)
from azure.servicebus.aio import ServiceBusReceiver

# Status codes of a page without messages.
_EMPTY = (202, 204)
# Positions in the fields of a transfer frame.
_MORE, _PAYLOAD = 5, 11


async def peek(receiver: ServiceBusReceiver, number: int, count: int) -> list[bytes]:
    """Peek messages from a sequence number on, encoded; at most `count`, perhaps fewer. None is the end.

    It neither locks nor removes any. Of a receiver of a session, those of the session.
    """
    inner: Any = receiver
    request = {
        MGMT_REQUEST_FROM_SEQUENCE_NUMBER: inner._amqp_transport.AMQP_LONG_VALUE(number),
        MGMT_REQUEST_MAX_MESSAGE_COUNT: count,
    }
    inner._populate_message_properties(request)

    check: Any = mgmt_handlers.default

    def read(status_code: int, message: Any, description: Any, amqp_transport: Any) -> list[bytes]:
        if status_code in _EMPTY:
            return []
        value = check(status_code, message, description, amqp_transport)
        return [bytes(each[b"message"]) for each in value[b"messages"]]

    found: list[bytes] = await inner._mgmt_request_response_with_retry(
        REQUEST_RESPONSE_PEEK_OPERATION, request, read
    )
    return found


async def renew(receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage]) -> None:
    """Renew the locks of messages with one request. Raises MessageLockLostError if one of them is over."""
    inner: Any = receiver
    answer = await inner._renew_locks(*(message.lock_token for message in messages))
    for message, until_ms in zip(messages, answer[MGMT_RESPONSE_MESSAGE_EXPIRATION], strict=True):
        message._expiry = datetime.fromtimestamp(until_ms / 1000, UTC)


async def release(receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage]) -> None:
    """Abandon messages with one request; in a dead-letter queue, this counts as no delivery."""
    inner: Any = receiver
    await inner._settle_message_via_mgmt_link(
        SETTLEMENT_ABANDON, [message.lock_token for message in messages if message.lock_token is not None]
    )


def keep_encoded(receiver: ServiceBusReceiver, take: Callable[[bytes], bytes]) -> None:
    """Let a receiver, which must not be open yet, hand over each message as it was transferred.

    Args:
        take: Called with an encoded message; the SDK decodes what it returns in its place.
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
                client._link._incoming_transfer = _Transfers(client._link._decodes, take).pass_on
            return is_ready

        client._client_ready_async = client_ready

    inner._create_handler = create_handler


class _Transfers:
    """The transfer frames of a link, whose payloads are joined and replaced."""

    def __init__(self, decodes: Callable[[list[Any]], Any], take: Callable[[bytes], bytes]) -> None:
        self._decodes = decodes
        self._take = take
        self._payload = bytearray()

    async def pass_on(self, frame: list[Any]) -> None:
        self._payload += frame[_PAYLOAD]
        replacement = b""
        if not frame[_MORE]:
            replacement, self._payload = self._take(bytes(self._payload)), bytearray()
        await self._decodes([*frame[:_PAYLOAD], memoryview(replacement)])
