"""What the parts did where their platforms leave room, added up, and which of it a campaign never met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from local.chaos.admin import AdminPorts
from local.stack.supervisor import Stack
from outbox_emulators.cosmos.edges import Edge as CosmosEdge
from outbox_emulators.functions.edges import Edge as FunctionsEdge
from outbox_emulators.functions.edges import read_journal
from outbox_emulators.servicebus.edges import Edge as ServiceBusEdge

# What the campaign itself has done or seen, beside what the parts count, and the faults that count as it.
_OF_FAULTS = {
    "content-refused": "reject",
    "internal-error": "internal-error",
    "rejection-then-detach": "reject-then-detach",
    "acknowledgement-delayed-on-request": "delay-ack",
    "idle-link-detached-on-request": "detach-idle",
    "idle-connection-closed-on-request": "close-idle",
}
# What a fault brings about. Among many faults it may come to nothing: no host is up, or another one strikes first.
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
    **_OF_FAULTS,
}
FROZEN = "owner-frozen"
DELIVERED_AGAIN = "delivered-again"
CONSUMER_SETTLED_LATE = "consumer-settled-late"
CONSUMER_SETTLED_REORDERED = "consumer-settled-reordered"

KNOWN = frozenset(
    {
        *(str(edge) for kind in (CosmosEdge, FunctionsEdge, ServiceBusEdge) for edge in kind),
        *(FROZEN, DELIVERED_AGAIN, CONSUMER_SETTLED_LATE, CONSUMER_SETTLED_REORDERED),
        *_OF_FAULTS,
    }
    # The topic's subscription has sessions, whose order a partitioned one keeps.
    - {str(ServiceBusEdge.PARTITIONS_INTERLEAVED)}
)


async def gather(stack: Stack, admin: AdminPorts, struck: Mapping[str, int]) -> Counter[str]:
    """How often each was met.

    Hosts and workers write theirs into a journal, which outlives those that are killed.

    Args:
        stack: The parts, which still run.
        admin: Their admin ports.
        struck: How often faults have struck, by kind.
    """
    edges = read_journal(stack.edge_journal)
    for part in (stack.cosmos, stack.servicebus):
        edges.update((await admin.get(part, "edges"))["edges"])
    edges.update({edge: struck.get(kind, 0) for edge, kind in _OF_FAULTS.items()})
    return edges
