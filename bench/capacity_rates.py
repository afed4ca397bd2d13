"""What Microsoft documents of the services, and what was measured here: what the capacity model starts from."""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum

from bench.capacity_flow import Costs


class Tier(StrEnum):
    """Of the Service Bus namespace."""

    STANDARD = "Standard"
    PREMIUM = "Premium"


# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-throttling
STANDARD_CREDITS_PER_S = 1000
"""A credit for each message sent or received, and one for each filter evaluated."""

# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-performance-improvements#benchmarks
PREMIUM_BYTES_PER_S_AND_UNIT = 4_000_000
"""Ingress and egress of a messaging unit in Microsoft's own tests, without sessions and duplicate detection.
Read here as both directions together, the more cautious way."""

# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-premium-messaging
MESSAGING_UNITS = (1, 2, 4, 8, 16)

# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
AMQP_CONNECTIONS = 5000
BATCH_BYTES = {Tier.STANDARD: 256 * 1024, Tier.PREMIUM: 1024 * 1024}
TOPIC_BYTES = {Tier.STANDARD: 5 * 2**30, Tier.PREMIUM: 80 * 2**30}

# https://azure.microsoft.com/pricing/details/service-bus/
OPERATION_BYTES = 64 * 1024
CONNECTIONS_INCLUDED = 1000

# https://learn.microsoft.com/azure/cosmos-db/concepts-limits
PARTITION_RU_PER_S = 10_000
# https://learn.microsoft.com/azure/cosmos-db/partitioning-overview#physical-partitions
PARTITION_BYTES = 50 * 10**9

# https://learn.microsoft.com/azure/cosmos-db/understand-request-unit-consumption
_WRITE_RU = ((1, 4.95), (2, 6.29), (4, 6.67), (8, 7.04), (16, 9.52), (32, 11.23), (64, 22.67), (128, 48.19))
_READ_RU = ((1, 1.0), (2, 1.04), (4, 1.14), (8, 1.33), (16, 1.67), (32, 2.19), (64, 4.76), (128, 9.95))

# https://learn.microsoft.com/azure/azure-functions/flex-consumption-plan#instance-sizes
INSTANCE_MEMORY_GB = 2.0
"""The default instance of Flex Consumption, which has about one core."""


def write_ru(size: int) -> float:
    """Request units of writing a document of so many bytes."""
    return _at_least(_WRITE_RU, size)


def read_ru(size: int) -> float:
    """Request units of reading one. What a change feed read costs is not documented: a point read's is assumed."""
    return _at_least(_READ_RU, size)


def _at_least(table: tuple[tuple[int, float], ...], size: int) -> float:
    kilobytes = size / 1024
    place = bisect_left(table, kilobytes, key=lambda row: row[0])
    if place == len(table):
        largest, units = table[-1]
        return units * kilobytes / largest
    return table[place][1]


# Taken by `make bench FULL=1` on two quiet cores, Python 3.11, on 20 November 2026; `wire` was too
# small to be told from noise. The local broker's share is left out: on Azure it is somebody else's processor, and
# in the round trip.
MEASURED = Costs(send=278e-6, event=92e-6, byte=2e-9, single=282e-6, wire=0.0, wake=353e-6, document=3.7e-6)
