"""Emulators for tests: the parts of the pytest plugin's fixtures, for use without them.

- `cosmos_account`: a Cosmos DB account for the length of a `with` block, on a thread of this process
- `servicebus_namespace`: a Service Bus namespace, in the same way (`outbox-relay-emulators[servicebus]`)
- `Tls`: TLS for a namespace: `servicebus_namespace(tls=Tls())` (`outbox-relay-emulators[tls]`)
- `entities_of`: the entities of a namespace, written in a line each; `Entities.from_file` reads a file
- `ManualClock`: time that a test controls
- `FaultClient`: faults, from asynchronous code, of an emulator anywhere
- `RawClient`: requests to Cosmos DB that the SDK would never send
- `keep_alive`: the turn of an idle sender's keep-alive, without waiting 30 s for it
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

from outbox_relay.emulators.faults import InvalidFault
from outbox_relay.emulators.servicebus.entities import Entities, EntitiesError
from outbox_relay.emulators.servicebus.listeners import Secured, Tls
from outbox_relay.emulators.servicebus.shorthand import entities_of
from outbox_relay.emulators.testing.background import BackgroundLoop, background_loop
from outbox_relay.emulators.testing.clock import ManualClock, keep_alive
from outbox_relay.emulators.testing.cosmos import CosmosAccount, CosmosDatabase, cosmos_account
from outbox_relay.emulators.testing.faults import Fault, FaultClient
from outbox_relay.emulators.testing.signed_requests import Answer, RawClient

if TYPE_CHECKING:
    from outbox_relay.emulators.testing.servicebus import ServiceBusNamespace, servicebus_namespace

__all__ = [
    "Answer",
    "BackgroundLoop",
    "CosmosAccount",
    "CosmosDatabase",
    "Entities",
    "EntitiesError",
    "Fault",
    "FaultClient",
    "InvalidFault",
    "ManualClock",
    "RawClient",
    "Secured",
    "ServiceBusNamespace",
    "Tls",
    "background_loop",
    "cosmos_account",
    "entities_of",
    "keep_alive",
    "servicebus_namespace",
]


def __getattr__(name: str) -> Any:
    """Import the broker when it is first used: python-qpid-proton may not be installed."""
    if name not in ("ServiceBusNamespace", "servicebus_namespace"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from outbox_relay.emulators.testing import servicebus
    except ModuleNotFoundError as error:
        remedy = f"Run {shlex.quote(sys.executable)} -m pip install 'outbox-relay-emulators[servicebus]'"
        raise ImportError(f"{error}. {remedy}") from error
    return getattr(servicebus, name)
