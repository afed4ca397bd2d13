"""Peeks where messages are, without decoding all of them: one that the SDK cannot decode fails its whole page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from azure.servicebus._common import mgmt_handlers
from azure.servicebus._common.constants import (
    MGMT_REQUEST_FROM_SEQUENCE_NUMBER,
    MGMT_REQUEST_MAX_MESSAGE_COUNT,
    REQUEST_RESPONSE_PEEK_OPERATION,
)
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus.aio import ServiceBusReceiver

from inbox.undecodable import head

_PAGE = 100
_SEQUENCE_NUMBER = b"x-opt-sequence-number"


class Place(NamedTuple):
    """A message in a queue: its number there, and its key."""

    sequence_number: int
    key: str


async def places(receiver: ServiceBusReceiver) -> AsyncIterator[Place]:
    """Yield the messages of a receiver's queue, including those that are locked.

    May raise any error of the SDK.
    """
    number = 1
    while page := await _page(receiver, number):
        for each in page:
            number = max(number, each.sequence_number + 1)
            yield each


async def _page(receiver: ServiceBusReceiver, number: int) -> list[Place]:
    # The public method decodes the messages.
    inner: Any = receiver
    request = {
        MGMT_REQUEST_FROM_SEQUENCE_NUMBER: inner._amqp_transport.AMQP_LONG_VALUE(number),
        MGMT_REQUEST_MAX_MESSAGE_COUNT: _PAGE,
    }
    check: Any = mgmt_handlers.default

    def read(status_code: int, message: Any, description: Any, amqp_transport: Any) -> list[Place]:
        if status_code in (202, 204):  # none left
            return []
        value = check(status_code, message, description, amqp_transport)
        found = [_place(bytes(each[b"message"])) for each in value[b"messages"]]
        return [place for place in found if place is not None]

    page: list[Place] = await inner._mgmt_request_response_with_retry(
        REQUEST_RESPONSE_PEEK_OPERATION, request, read
    )
    return page


def _place(encoded: bytes) -> Place | None:
    """Return the place of an encoded message, or None if not even its annotations can be decoded."""
    message = decode_payload(memoryview(head(encoded)))
    number = (message.message_annotations or {}).get(_SEQUENCE_NUMBER)
    group = message.properties.group_id if message.properties is not None else None
    key = group.decode(errors="replace") if isinstance(group, bytes) else str(group or "")
    return Place(number, key) if isinstance(number, int) else None
