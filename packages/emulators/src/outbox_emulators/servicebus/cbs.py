"""Claims-based security: the node `$cbs`, where clients put their tokens (AMQP CBS 1.0, working draft 05)."""

from __future__ import annotations

import weakref

from proton import Link, Message

from outbox_emulators.servicebus.auth import Claim
from outbox_emulators.servicebus.connection import AmqpConnection
from outbox_emulators.servicebus.edges import Edge
from outbox_emulators.servicebus.errors import NotFound, ServiceBusError, Unauthorized
from outbox_emulators.servicebus.fault_plans import FaultKind
from outbox_emulators.servicebus.links import LinkEndpoint
from outbox_emulators.servicebus.namespace import CBS, MANAGEMENT_SUFFIX, path_of
from outbox_emulators.servicebus.requests import properties_of, request_endpoint, response


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
