"""Requests and responses over a pair of links, as used for `$cbs` and `$management`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast
from uuid import uuid4

from proton import Delivery, Link, Message, ProtonException, Receiver, Sender, int32, symbol

from outbox_relay.emulators.servicebus import settlement
from outbox_relay.emulators.servicebus.connection import AmqpConnection
from outbox_relay.emulators.servicebus.errors import DecodeFailed, MessageTooLarge, ServiceBusError
from outbox_relay.emulators.servicebus.links import LinkEndpoint
from outbox_relay.emulators.servicebus.namespace import MANAGEMENT_SUFFIX

REQUEST_CREDIT = 100
MAX_REQUEST_BYTES = 2 * 1024**2
"""Maximum size of a request: a message to be scheduled is in one, and a token."""

EMPTY: Mapping[str, object] = MappingProxyType({})

Answer = Callable[[AmqpConnection, Message], Message]


class NodeEndpoint(LinkEndpoint):
    """One of the two links to a node; that of an entity has the entity's path."""

    node: str

    def __init__(self, connection: AmqpConnection, link: Link, node: str) -> None:
        super().__init__(link)
        self.connection = connection
        self.node = node

    def check(self) -> None:
        if self.path is not None:
            entity = self.path[: -len(MANAGEMENT_SUFFIX)]
            if not self.connection.broker.namespace.has(entity):
                raise self.connection.broker.namespace.missing(self.path)


class RequestEndpoint(NodeEndpoint):
    """Takes requests for one node and answers them over the link that the same session has opened for answers."""

    def __init__(self, connection: AmqpConnection, link: Receiver, node: str, answer: Answer) -> None:
        super().__init__(connection, link, node)
        self._receiver = link
        self._answer = answer

    def open(self) -> None:
        self.link.max_message_size = MAX_REQUEST_BYTES
        super().open()
        self._receiver.flow(REQUEST_CREDIT)

    def on_delivery(self, delivery: Delivery, message_format: int | None) -> None:
        if delivery.pending > MAX_REQUEST_BYTES:
            error = MessageTooLarge(f"The request exceeds the limit of {MAX_REQUEST_BYTES} bytes of the link.")
            self.connection.links.detach(self.link, error)
            return
        if delivery.partial or not delivery.readable:
            return
        request = Message()
        data = self._receiver.recv(delivery.pending) or b""
        self._receiver.advance()
        self._receiver.flow(1)
        try:
            request.decode(bytes(data))
        except ProtonException as error:
            settlement.answer(delivery, DecodeFailed(f"The request could not be decoded: {error}"))
            return
        settlement.answer(delivery, None)
        response = self._answer(self.connection, request)
        response.correlation_id = request.id
        for link, endpoint in self.connection.links.items():
            if isinstance(endpoint, ResponseEndpoint) and endpoint.answers(self, request.reply_to, link):
                endpoint.send(response)
                return


class ResponseEndpoint(NodeEndpoint):
    """Carries answers back to the client."""

    def __init__(self, connection: AmqpConnection, link: Sender, node: str) -> None:
        super().__init__(connection, link, node)
        self._sender = link
        self._pending: list[Message] = []

    def answers(self, request: RequestEndpoint, reply_to: str | None, link: Link) -> bool:
        """Return whether this is the link for a request's answer: that of its session, node and reply address."""
        if link.session != request.link.session or self.node != request.node:
            return False
        return reply_to is None or link.remote_target.address in (reply_to, None) or not link.remote_target.address

    def send(self, response: Message) -> None:
        self._pending.append(response)
        self.pump()

    def pump(self) -> None:
        while self._pending and self._sender.credit > 0:
            response = self._pending.pop(0)
            delivery = self._sender.delivery(str(uuid4()))
            self._sender.send(response.encode())
            self._sender.advance()
            delivery.settle()


def request_endpoint(connection: AmqpConnection, link: Link, node: str, answer: Answer) -> LinkEndpoint:
    """Make one end of a pair: the one for requests, or the one for answers."""
    if link.is_receiver:
        return RequestEndpoint(connection, cast(Receiver, link), node, answer)
    return ResponseEndpoint(connection, cast(Sender, link), node)


def response(
    status_field: str, description_field: str, status: int, description: str, more: Mapping[str, object] = EMPTY
) -> Message:
    """Return an answer with its status and, where given, more application properties."""
    message = Message()
    properties = {status_field: int32(status), description_field: description, **more}
    message.properties = properties  # type: ignore[assignment]
    return message


def properties_of(request: Message) -> Mapping[str, Any]:
    """Return the application properties of a request."""
    return request.properties or {}


def failure(error: ServiceBusError) -> Message:
    """Return the answer to a management request that was refused."""
    return management_response(error.status, error.description, error.condition)


def management_response(status: int, description: str, condition: str | None = None) -> Message:
    """Return the answer of a management node."""
    more = EMPTY if condition is None else {"errorCondition": symbol(condition)}
    return response("statusCode", "statusDescription", status, description, more)
