"""The amounts of each service that a load takes, and their costs a month.

Sources of the quantities: docs/capacity.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf

from bench.costs.prices import HOURS, SECONDS, Prices

SHARE = 0.7
"""Of each limit, to plan with."""
STANDARD_CREDITS = 1000
UNIT_BYTES = 4_000_000
"""A second and Premium messaging unit, in and out together."""
PROPERTIES_BYTES = 60
OPERATION_BYTES = 64 * 1024
WRITE_RU, READ_RU, PAGE_RU, POLL_RU = 4.95, 1.0, 11.0, 1.0
"""Of a document of up to 1 KB; of a page's checkpoint; of a poll that finds nothing."""
RENEW_S = 17
PARTITION_RU = {"serverless": 5_000, "autoscale": 10_000}
PARTITION_BYTES = 50e9
INSTANCE_RATE = 2400
"""Events a second of one host with 16 leases, each event with its own key."""
LEASE_CONTAINER_RU = 1000
MEMORY_GB = 2
SPANS, SPAN_BYTES, IDLE_BYTES = 5, 1100, 7.2e6
"""Spans a second at most, bytes of one; bytes of an idle instance a day."""
LOG_RULES, METRIC_RULES = 9, 6
PRIVATE_ENDPOINTS = 4
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Load:
    """The load that services write.

    Attributes:
        rate: Events a second.
        event_bytes: Size of an event document.
        documents: Documents that each event comes with, itself included.
        subscriptions: Number of subscriptions that get each event.
        ttl_days: Days until Cosmos DB deletes an event.
        streams: Number of destinations that get each event. Each has a stream, which reads the outbox by itself.
    """

    rate: float
    event_bytes: int = 500
    documents: int = 2
    subscriptions: int = 1
    ttl_days: float = 10.0
    streams: int = 1

    @property
    def message_bytes(self) -> int:
        """Size of a message with its properties."""
        return self.event_bytes + PROPERTIES_BYTES

    @property
    def sent_rate(self) -> float:
        """Messages a second, of all streams."""
        return self.rate * self.streams

    @property
    def written_ru(self) -> float:
        """Request units to write an event and its documents."""
        return self.documents * WRITE_RU

    @property
    def read_ru(self) -> float:
        """Request units to read them from the change feed, once for each stream."""
        return self.streams * self.documents * READ_RU

    @property
    def stored_bytes(self) -> float:
        """Bytes of events in the outbox at any time."""
        return self.rate * self.event_bytes * self.ttl_days * DAY_S


@dataclass(frozen=True, slots=True)
class Plan:
    """A deployment: `premium` or Standard, `autoscale` or serverless.

    Attributes:
        always_ready: Number of always-ready instances.
        poll_delay_s: RELAY_POLL_DELAY_MS.
        max_items: RELAY_MAX_ITEMS.
        private: Whether it has private endpoints.
        least_ru: Maximum throughput of the outbox container at least, with autoscale.
    """

    premium: bool
    autoscale: bool
    always_ready: int = 1
    poll_delay_s: float = 0.5
    max_items: int = 1000
    private: bool = False
    least_ru: int = 1000


def units(load: Load) -> int:
    """Return the messaging units of Premium, of which there are 1, 2, 4, 8 and 16."""
    needed = load.sent_rate * load.message_bytes * (1 + load.subscriptions) / UNIT_BYTES / SHARE
    return next((offered for offered in (1, 2, 4, 8, 16) if offered >= needed), ceil(needed))


def maximum_ru(load: Load, plan: Plan) -> float:
    """Request units a second that the outbox container may use."""
    if not plan.autoscale:
        return PARTITION_RU["serverless"] * partitions(load, plan)
    needed = load.rate * (load.written_ru + load.read_ru) / SHARE
    return max(plan.least_ru, ceil(needed / 1000) * 1000)


def partitions(load: Load, plan: Plan) -> int:
    """Return the physical partitions of the outbox container: by its throughput, and by its storage."""
    most = PARTITION_RU["autoscale" if plan.autoscale else "serverless"]
    by_ru = load.rate * (load.written_ru + load.read_ru) / SHARE / most
    return max(1, ceil(by_ru), ceil(load.stored_bytes / PARTITION_BYTES))


def instances(load: Load, plan: Plan) -> int:
    """Return the instances of the function app."""
    return max(plan.always_ready, ceil(load.sent_rate / (INSTANCE_RATE * SHARE)))


def pages(load: Load, plan: Plan) -> float:
    """Return the pages a second.

    It is one for each lease and pause between polls, unless events are fewer or pages full.
    """
    of_a_stream = max(load.rate / plan.max_items, min(load.rate, partitions(load, plan) / plan.poll_delay_s))
    return load.streams * of_a_stream


def leases(load: Load, plan: Plan) -> int:
    """Return the leases, each of which is polled and renewed: one for each stream and physical partition."""
    return load.streams * partitions(load, plan)


def lease_ru(load: Load, plan: Plan) -> float:
    """Request units a second of the lease container."""
    return pages(load, plan) * PAGE_RU + leases(load, plan) * PAGE_RU / RENEW_S


def enough_delay_ms(load: Load, plan: Plan) -> int:
    """Return the shortest RELAY_POLL_DELAY_MS with which the lease container suffices.

    It has steps of half a second.
    """
    while lease_ru(load, plan) > LEASE_CONTAINER_RU:
        plan = replace(plan, poll_delay_s=plan.poll_delay_s + 0.5)
    return round(plan.poll_delay_s * 1000)


def month(load: Load, plan: Plan, prices: Prices) -> Mapping[str, float]:
    """Return the dollars a month, by service."""
    costs = {
        "Service Bus": servicebus(load, plan, prices),
        "Cosmos DB": cosmos(load, plan, prices),
        "Functions": functions(load, plan, prices),
        "logs and alerts": watching(load, plan, prices),
    }
    return costs | ({"private endpoints": PRIVATE_ENDPOINTS * prices.private_endpoint} if plan.private else {})


def servicebus(load: Load, plan: Plan, prices: Prices) -> float:
    """Return the costs of the namespace.

    It counts its units, or its operations, one for each 64 KB that is sent or received.
    """
    if plan.premium:
        return units(load) * prices.premium_unit
    operations = (
        load.sent_rate * SECONDS * (1 + load.subscriptions) * ceil(load.message_bytes / OPERATION_BYTES) / 1e6
    )
    tiers = (
        (13, 0.0),
        (100, prices.standard_to_100),
        (2500, prices.standard_to_2500),
        (inf, prices.standard_beyond),
    )
    cost, start = prices.standard_base, 0.0
    for end, price in tiers:
        cost += max(0.0, min(operations, end) - start) * price
        start = end
    return cost


def cosmos(load: Load, plan: Plan, prices: Prices) -> float:
    """Request units of writers, feed, polls and leases, and what storing events costs."""
    polls = leases(load, plan) / plan.poll_delay_s * POLL_RU
    outbox, checkpoints = load.rate * (load.written_ru + load.read_ru) + polls, lease_ru(load, plan)
    storage = load.stored_bytes / 1e9 * prices.cosmos_gigabyte
    if not plan.autoscale:
        return (outbox + checkpoints) * SECONDS / 1e6 * prices.serverless_million + storage
    # Autoscale bills a tenth of the maximum at least. Each stream has a quarantine.
    small = LEASE_CONTAINER_RU / 10
    billed = max(outbox, maximum_ru(load, plan) / 10) + max(checkpoints, small) + load.streams * small
    return billed / 100 * prices.autoscale_100 * HOURS + storage


def functions(load: Load, plan: Plan, prices: Prices) -> float:
    """Return the costs of instances.

    Always ready ones count at any time, and all while they execute, as they do with a page a second.
    """
    running = instances(load, plan)
    busy = min(1.0, pages(load, plan) / running) * SECONDS * MEMORY_GB
    ready = plan.always_ready
    return (
        ready * SECONDS * MEMORY_GB * prices.ready_baseline
        + min(ready, running) * busy * prices.ready_execution
        + max(0, running - ready) * busy * prices.on_demand
        + pages(load, plan) * SECONDS / 1e6 * prices.executions
    )


def watching(load: Load, plan: Plan, prices: Prices) -> float:
    """Return the costs of the relay's telemetry, without the host's own spans, and of the alert rules."""
    daily = min(SPANS, pages(load, plan)) * SPAN_BYTES * DAY_S + instances(load, plan) * IDLE_BYTES
    logs = daily * HOURS / 24 / 1e9 * prices.log_gigabyte
    return logs + LOG_RULES * prices.log_rule + METRIC_RULES * prices.metric_rule


def limits(load: Load, plan: Plan) -> Mapping[str, float]:
    """Return the events a second at which each limit of this deployment is reached, if nothing is raised."""
    credits_an_event = load.streams * (1 + 2 * load.subscriptions)
    unit_rate = UNIT_BYTES / (load.streams * load.message_bytes * (1 + load.subscriptions))
    return {
        "messaging units" if plan.premium else "credits of Standard": units(load) * unit_rate
        if plan.premium
        else STANDARD_CREDITS / credits_an_event,
        "request units": maximum_ru(load, plan) / (load.written_ru + load.read_ru),
        "instances": instances(load, plan) * INSTANCE_RATE / load.streams,
    }


def drain_rate(load: Load, plan: Plan) -> float:
    """Return the events a second by which a backlog shrinks while services go on writing.

    Consumers have to keep up.
    """
    spare_ru = maximum_ru(load, plan) - load.rate * load.written_ru
    bounds = {**limits(load, plan), "request units": spare_ru / load.read_ru}
    return min(bounds.values()) - load.rate
