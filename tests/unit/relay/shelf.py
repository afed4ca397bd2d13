"""The quarantine in the tests of its commands: events, orders, and records on the shelf of a deployment."""

from __future__ import annotations

from typing import Any

from relay.core import holds
from relay.quarantine.items import Item
from tests.unit.relay.commands import Deployment

REFUSED = "com.microsoft:argument-error"
BUSY = "com.microsoft:server-busy"
RELEASE_ALL = ("quarantine", "release", "--all")


def event(identifier: str, key: str = "k", **changes: Any) -> dict[str, Any]:
    document = {"id": identifier, "partitionKey": key, "type": "domainEvent", "data": {"action": "Named"}}
    return document | changes


def order(identifier: str, event_id: str) -> Item:
    """A pending order of the key a, whose id ends so."""
    made = holds.order_item("a", event_id)
    return {**made, "id": f"set-aside:{identifier}", "orderedAt": "2026-02-09T11:00:00Z"}


def put(deployment: Deployment, *identifiers: str, parked: bool = False) -> list[str]:
    """Records of events whose key is the letter before the dash; returns the records' ids."""
    keys = [identifier.partition("-")[0] for identifier in identifiers]
    if parked:
        deployment.records.parked_keys += dict.fromkeys(keys)
    return [
        deployment.records.put(event(identifier, key)) for identifier, key in zip(identifiers, keys, strict=True)
    ]
