"""Attaching a link: its address decides what it is for."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import cast

from proton import Link, Message, Receiver, Sender, Terminus, symbol

from outbox_relay.emulators.servicebus.auth import Claim
from outbox_relay.emulators.servicebus.authorization import Right
from outbox_relay.emulators.servicebus.connection import AmqpConnection
from outbox_relay.emulators.servicebus.edges import Edge
from outbox_relay.emulators.servicebus.errors import (
    DecodeFailed,
    NotFound,
    NotImplementedHere,
    ServiceBusError,
    Unauthorized,
)
from outbox_relay.emulators.servicebus.fault_plans import FaultKind
from outbox_relay.emulators.servicebus.links import LinkEndpoint
from outbox_relay.emulators.servicebus.management.node import ManagementNode
from outbox_relay.emulators.servicebus.namespace import CBS, MANAGEMENT_SUFFIX, path_of
from outbox_relay.emulators.servicebus.publishing import PublishEndpoint
from outbox_relay.emulators.servicebus.requests import properties_of, request_endpoint, response
from outbox_relay.emulators.servicebus.session_consuming import consume_endpoint


def cbs_endpoint(connection: AmqpConnection, link: Link) -> LinkEndpoint:
    return request_endpoint(connection, link, CBS, _answer)


def _answer(connection: AmqpConnection, request: Message) -> Message:
    try:
        _put_token(connection, request)
    except ServiceBusError as error:
        return response("status-code", "status-description", error.status, error.description)
    return response("status-code", "status-description", 202, "Accepted")


def _put_token(connection: AmqpConnection, request: Message) -> None:
    properties = properties_of(request)
    if properties.get("operation") != "put-token":
        raise Unauthorized(f"The operation '{properties.get('operation')}' is not supported by this node.")
    # The token's type is ignored: azure-servicebus.aio calls signatures "jwt" too, as the service allows.
    audience = str(properties.get("name", ""))
    path = path_of(audience)
    if connection.broker.faults.apply(lambda plan: plan.matches(FaultKind.REFUSE_TOKEN, path)):
        raise Unauthorized("InvalidSignature: The token is refused for now.")
    claim = connection.broker.access.check(str(request.body), audience)
    _check_entity(connection, audience)
    connection.claims.put(path, claim)
    _check_later(connection, claim)


def _check_entity(connection: AmqpConnection, audience: str) -> None:
    """Raise NotFound for an entity that is not there.

    The service answers so here already, with this message (azure-service-bus issues 304 and 451), once the caller
    is authorized (azure-sdk-for-net issue 44734).
    """
    path = path_of(audience)
    entity = path[: -len(MANAGEMENT_SUFFIX)] if path.lower().endswith(MANAGEMENT_SUFFIX) else path
    if entity and not connection.broker.namespace.has(entity):
        connection.broker.edges.meet(Edge.ENTITY_NOT_FOUND_AT_TOKEN)
        raise NotFound.entity(audience)


def _check_later(connection: AmqpConnection, claim: Claim) -> None:
    """End the connection's links when the claim expires; this does not keep alive a connection that is gone."""
    reference = weakref.ref(connection)

    def check() -> None:
        alive = reference()
        if alive is not None:
            alive.links.check_claims(alive.claims)

    connection.broker.namespace.timers.call_at(claim.expires_s * 1000, check)


_TRANSFER_DESTINATION = symbol("com.microsoft:transfer-destination-address")
"""The property of a link that sends by way of its target, which is for transactions across entities."""


def _properties(link: Link) -> Mapping[object, object]:
    """Return the properties of a client's end of a link. Raises DecodeFailed."""
    try:
        found = link.remote_properties
    except RecursionError:
        raise DecodeFailed("The properties of the link are nested too deep.") from None
    if found is not None and not isinstance(found, Mapping):
        raise DecodeFailed("The properties of the link are no map.")
    return found or {}


def attach(connection: AmqpConnection, link: Link) -> LinkEndpoint:
    """Make the broker's end of a link. Raises the ServiceBusError that forbids it."""
    terminus = link.remote_target if link.is_receiver else link.remote_source
    if terminus.type == Terminus.COORDINATOR:
        raise NotImplementedHere("Transactions are not supported by the local Service Bus.")
    destination = _properties(link).get(_TRANSFER_DESTINATION)
    if destination is not None:
        raise NotImplementedHere(
            f"Sending to '{destination}' by way of another entity is not supported by the local Service Bus."
        )
    if not terminus.address:
        raise NotFound("The link names no address.")
    path = path_of(terminus.address)
    if path == CBS:
        return cbs_endpoint(connection, link)
    management = path.lower().endswith(MANAGEMENT_SUFFIX)
    connection.claims.check(path, Right.ANY if management else Right.SEND if link.is_receiver else Right.LISTEN)
    if connection.broker.faults.find(lambda plan: plan.matches(FaultKind.REFUSE_TOKEN, path)):
        raise Unauthorized(f"Unauthorized access. Links are refused for now. Resource: '{path}'.")
    namespace = connection.broker.namespace
    if management:
        if not namespace.has(path[: -len(MANAGEMENT_SUFFIX)]):
            raise namespace.missing(path)
        endpoint = request_endpoint(connection, link, path, ManagementNode(path).answer)
        endpoint.path = path
        return endpoint
    if link.is_receiver:
        return PublishEndpoint(connection, cast(Receiver, link), namespace.destination(path), path)
    return consume_endpoint(connection, cast(Sender, link), namespace.source(path))
