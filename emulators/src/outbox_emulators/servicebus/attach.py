"""What a link is for, by the address it names."""

from __future__ import annotations

from typing import cast

from proton import Link, Receiver, Sender, Terminus

from .cbs import cbs_endpoint
from .connection import AmqpConnection
from .consuming import consume_endpoint
from .errors import NotFound, NotImplementedHere, Unauthorized
from .fault_plans import FaultKind
from .links import LinkEndpoint
from .management import ManagementNode
from .namespace import CBS, MANAGEMENT_SUFFIX, path_of
from .publishing import PublishEndpoint
from .requests import request_endpoint


def attach(connection: AmqpConnection, link: Link) -> LinkEndpoint:
    """Make the broker's end of a link. Raises the ServiceBusError that forbids it."""
    terminus = link.remote_target if link.is_receiver else link.remote_source
    if terminus.type == Terminus.COORDINATOR:
        raise NotImplementedHere("Transactions are not supported by the local Service Bus.")
    if not terminus.address:
        raise NotFound("The link names no address.")
    path = path_of(terminus.address)
    if path == CBS:
        return cbs_endpoint(connection, link)
    connection.authorize(path)
    if connection.broker.faults.find(FaultKind.REFUSE_TOKEN, path):
        raise Unauthorized(f"Unauthorized access. No links are let in for now. Resource: '{path}'.")
    namespace = connection.broker.namespace
    if path.lower().endswith(MANAGEMENT_SUFFIX):
        if not namespace.knows(path[: -len(MANAGEMENT_SUFFIX)]):
            raise NotFound(f"The messaging entity '{path}' could not be found.")
        endpoint = request_endpoint(connection, link, path, ManagementNode(path).answer)
        endpoint.path = path
        return endpoint
    if link.is_receiver:
        return PublishEndpoint(connection, cast(Receiver, link), namespace.destination(path), path)
    return consume_endpoint(connection, cast(Sender, link), namespace.source(path))
