"""Attaching a link: its address decides what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from proton import Link, Receiver, Sender, Terminus, symbol

from outbox_emulators.servicebus.authorization import Right
from outbox_emulators.servicebus.cbs import cbs_endpoint
from outbox_emulators.servicebus.connection import AmqpConnection
from outbox_emulators.servicebus.errors import DecodeFailed, NotFound, NotImplementedHere, Unauthorized
from outbox_emulators.servicebus.fault_plans import FaultKind
from outbox_emulators.servicebus.links import LinkEndpoint
from outbox_emulators.servicebus.management.node import ManagementNode
from outbox_emulators.servicebus.namespace import CBS, MANAGEMENT_SUFFIX, path_of
from outbox_emulators.servicebus.publishing import PublishEndpoint
from outbox_emulators.servicebus.requests import request_endpoint
from outbox_emulators.servicebus.session_consuming import consume_endpoint

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
