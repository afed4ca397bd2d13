"""Edge cases, which the platforms permit but seldom cause: how often a campaign met each, and what causes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from local.chaos.admin import AdminPorts
from local.stack.supervisor import Stack
from outbox_relay.emulators.cosmos.edges import Edge as CosmosEdge
from outbox_relay.emulators.functions.edges import Edge as FunctionsEdge
from outbox_relay.emulators.servicebus.edges import Edge as ServiceBusEdge

# Edge cases that are counted by how often a fault was applied: the fault's kind, as the parts report it.
_COUNTED_BY_FAULT = {
    "content-refused": "reject",
    "internal-error": "internal-error",
    "rejection-then-detach": "reject-then-detach",
    "acknowledgement-delayed-on-request": "delay-ack",
    "idle-link-detached-on-request": "detach-idle",
    "idle-connection-closed-on-request": "close-idle",
}
# The kind of fault that causes an edge case. Other faults can prevent it, for instance when no host is up.
BROKER_CAUSES = {
    ServiceBusEdge.PROPERTIES_TOO_LARGE: "oversized-properties",
    ServiceBusEdge.ENTITY_NOT_FOUND_AT_TOKEN: "unknown-entity",
    **_COUNTED_BY_FAULT,
}
COSMOS_CAUSES: dict[str, str] = {
    CosmosEdge.PARTITION_SPLIT: "split-partition",
    CosmosEdge.PARTITION_MERGED: "merge-partitions",
    CosmosEdge.SESSION_TOKEN_AHEAD: "read-ahead",
    FunctionsEdge.PAGE_WITHHELD: "withhold-page",
    FunctionsEdge.LEASE_GIVEN_UP: "feed-outage",
    FunctionsEdge.LEASE_LEFT_TO_EXPIRE: "outage",
    FunctionsEdge.TIMEOUT_KILLED_WORKER: "time-out-function",
    FunctionsEdge.WORKER_KILLED: "kill-worker",
    FunctionsEdge.HOST_KILLED: "kill-host",
    FunctionsEdge.WORKER_OUTLIVED_HOST: "orphan-worker",
}
KILLED_AFTER_BLOB = "killed-between-blob-and-message"
"""A process was killed that had written the content of a large event, and had not been answered."""

_COUNTED_BY_BLOB_FAULT = {
    "blob-refused": "refuse-blob",
    "blob-write-dropped": "drop-blob",
    "blob-answer-lost": "drop-after-blob",
    "blob-write-unanswered": "silent-blobs",
}
BLOB_CAUSES = {KILLED_AFTER_BLOB: "kill-after-blob", **_COUNTED_BY_BLOB_FAULT}
FROZEN = "owner-frozen"
DELIVERED_AGAIN = "delivered-again"
CONSUMER_SETTLED_LATE = "consumer-settled-late"
CONSUMER_SETTLED_REORDERED = "consumer-settled-reordered"

BROKER_KNOWN = frozenset(
    {
        *(str(edge) for edge in ServiceBusEdge),
        *(DELIVERED_AGAIN, CONSUMER_SETTLED_LATE, CONSUMER_SETTLED_REORDERED),
        *_COUNTED_BY_FAULT,
    }
    # Does not occur: the subscription has sessions, and keeps each one's order.
    - {str(ServiceBusEdge.PARTITIONS_INTERLEAVED)}
)
COSMOS_KNOWN = frozenset({*(str(edge) for kind in (CosmosEdge, FunctionsEdge) for edge in kind), FROZEN})


async def count_met(stack: Stack, admin: AdminPorts, applied: Mapping[str, int]) -> Counter[str]:
    """Return the number of times each edge case of the broker and of Blob Storage was met.

    Args:
        stack: A running stack.
        admin: Its admin ports.
        applied: Number of times faults were applied, by kind.
    """
    met = Counter[str]((await admin.get(stack.servicebus, "edges"))["edges"])
    counted = _COUNTED_BY_FAULT | _COUNTED_BY_BLOB_FAULT
    met.update({edge: applied.get(kind, 0) for edge, kind in counted.items()})
    return met
