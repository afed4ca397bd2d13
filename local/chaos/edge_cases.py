"""Edge cases, which the platforms permit but seldom cause: how often a campaign met each, and what causes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from local.chaos.admin import AdminPorts
from local.stack.supervisor import Stack
from outbox_emulators.cosmos.edges import Edge as CosmosEdge
from outbox_emulators.functions.edges import Edge as FunctionsEdge
from outbox_emulators.functions.edges import read_journal
from outbox_emulators.servicebus.edges import Edge as ServiceBusEdge

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
CAUSES = {
    CosmosEdge.PARTITION_SPLIT: "split-partition",
    CosmosEdge.SESSION_TOKEN_AHEAD: "read-ahead",
    ServiceBusEdge.PROPERTIES_TOO_LARGE: "oversized-properties",
    ServiceBusEdge.ENTITY_NOT_FOUND_AT_TOKEN: "unknown-entity",
    FunctionsEdge.PAGE_WITHHELD: "withhold-page",
    FunctionsEdge.LEASE_GIVEN_UP: "feed-outage",
    FunctionsEdge.LEASE_LEFT_TO_EXPIRE: "outage",
    FunctionsEdge.TIMEOUT_KILLED_WORKER: "time-out-function",
    FunctionsEdge.WORKER_KILLED: "kill-worker",
    FunctionsEdge.HOST_KILLED: "kill-host",
    FunctionsEdge.WORKER_OUTLIVED_HOST: "orphan-worker",
    **_COUNTED_BY_FAULT,
}
FROZEN = "owner-frozen"
DELIVERED_AGAIN = "delivered-again"
CONSUMER_SETTLED_LATE = "consumer-settled-late"
CONSUMER_SETTLED_REORDERED = "consumer-settled-reordered"

KNOWN = frozenset(
    {
        *(str(edge) for kind in (CosmosEdge, FunctionsEdge, ServiceBusEdge) for edge in kind),
        *(FROZEN, DELIVERED_AGAIN, CONSUMER_SETTLED_LATE, CONSUMER_SETTLED_REORDERED),
        *_COUNTED_BY_FAULT,
    }
    # Does not occur: the subscription has sessions, and keeps each one's order.
    - {str(ServiceBusEdge.PARTITIONS_INTERLEAVED)}
)


async def count_met(stack: Stack, admin: AdminPorts, applied: Mapping[str, int]) -> Counter[str]:
    """How often each edge case was met.

    Hosts and workers write theirs into a journal, which includes those that were killed.

    Args:
        stack: A running stack.
        admin: Its admin ports.
        applied: How often faults were applied, by kind.
    """
    met = read_journal(stack.edge_journal)
    for part in (stack.outbox, stack.servicebus):
        met.update((await admin.get(part, "edges"))["edges"])
    met.update({edge: applied.get(kind, 0) for edge, kind in _COUNTED_BY_FAULT.items()})
    return met
