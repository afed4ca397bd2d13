"""A small model of what limits the relay, beyond this machine: docs/capacity.md."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.capacity_flow import MESSAGE_OVERHEAD, Costs, Instance, Shape, latencies, throughput
from bench.capacity_rates import (
    AMQP_CONNECTIONS,
    BATCH_BYTES,
    MEASURED,
    MESSAGING_UNITS,
    PARTITION_BYTES,
    PARTITION_RU_PER_S,
    PREMIUM_BYTES_PER_S_AND_UNIT,
    STANDARD_CREDITS_PER_S,
    TOPIC_BYTES,
    Tier,
    read_ru,
    write_ru,
)

_DAY_S = 86_400
_LEASE_BYTES = 1024
_RENEW_S, _ACQUIRE_S = 17.0, 13.0
# A checkpoint is three requests: since its SDK 3.19 the .NET processor sends an old ETag, is refused (412),
# reads the lease and writes it again. What a refused write is charged is not documented: a whole one is assumed.
_CHECKPOINT_RU = 2 * write_ru(_LEASE_BYTES) + read_ru(_LEASE_BYTES)
# A renewal reads first. Looking for leases is a query, for which a read of each lease is assumed.
_RENEWAL_RU = read_ru(_LEASE_BYTES) + write_ru(_LEASE_BYTES)
_SEED = 1
_PAGES = 6
_LATENCY_EVENTS = 4000


@dataclass(frozen=True, slots=True)
class Demand:
    """What is to be relayed.

    Attributes:
        rate: Events a second.
        size: Bytes of an event's document.
        per_key: Events of one partition key that a page holds, on average; 1 where keys rarely repeat.
        others: Documents of other types written for each event, which the feed tells as well.
        subscriptions: Of the topic, each with one filter, each receiving every event.
        ttl_days: How long events are kept in the outbox.
    """

    rate: float
    size: int = 500
    per_key: int = 1
    others: float = 1.0
    subscriptions: int = 1
    ttl_days: float = 10.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """What it is relayed with.

    Attributes:
        partitions: Physical partitions of the container.
        instances: Of the function app; more than partitions have nothing to do.
        senders, max_items, poll_delay_ms: RELAY_SENDERS, RELAY_MAX_ITEMS, RELAY_POLL_DELAY_MS.
        round_trip_ms: From a send to its acknowledgement.
        page_ms: Reading a page of the change feed and writing the checkpoint.
        processor_share: The part of a core like the measured one that an instance's Python worker has: the
            Functions host, which reads the feed, runs on the same core.
        tier, units: Of the Service Bus namespace; units count on Premium.
    """

    partitions: int = 4
    instances: int = 1
    senders: int = 32
    max_items: int = 1000
    poll_delay_ms: float = 500.0
    round_trip_ms: float = 10.0
    page_ms: float = 20.0
    processor_share: float = 0.5
    tier: Tier = Tier.PREMIUM
    units: int = 1

    @property
    def leases(self) -> int:
        """Of the instance that has most."""
        return math.ceil(self.partitions / self.working)

    @property
    def working(self) -> int:
        """Instances that have a lease."""
        return min(self.instances, self.partitions)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A limit: no more events a second than this, whatever the others allow."""

    name: str
    rate: float
    remedy: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a demand takes on a deployment.

    Attributes:
        ceilings: Lowest first.
        p50_ms, p99_ms: From commit to acceptance at the demanded rate; None where it is above a ceiling.
        ru_written, ru_fed, ru_leases: Request units a second: of the service's writes (events and others), of
            reading the feed, and of the lease container.
        connections: Of all senders.
        topic_hours: Until the topic is full when nobody receives.
        stored_bytes: Events in the outbox, at the end of their time to live.
    """

    ceilings: tuple[Ceiling, ...]
    p50_ms: float | None
    p99_ms: float | None
    ru_written: float
    ru_fed: float
    ru_leases: float
    connections: int
    topic_hours: float
    stored_bytes: float

    @property
    def first(self) -> Ceiling:
        """The limit that comes first."""
        return self.ceilings[0]


def page_of(demand: Demand, deployment: Deployment) -> Shape:
    """A full page of the change feed."""
    events = max(1, round(deployment.max_items / (1 + demand.others)))
    keys = max(1, round(events / demand.per_key))
    return Shape(keys, demand.per_key, demand.size, others=demand.others, batch_bytes=BATCH_BYTES[deployment.tier])


def shared(costs: Costs, share: float) -> Costs:
    """The costs on a part of a core."""
    return replace(
        costs,
        send=costs.send / share,
        event=costs.event / share,
        byte=costs.byte / share,
        single=costs.single / share,
        wake=costs.wake / share,
        document=costs.document / share,
    )


@functools.cache
def ceilings(demand: Demand, deployment: Deployment, costs: Costs = MEASURED) -> tuple[Ceiling, ...]:
    """Every limit on the rate, lowest first."""
    found = [*_relay_ceilings(demand, deployment, costs), _service_bus_ceiling(demand, deployment)]
    per_event = ru_per_event(demand)
    found.append(
        Ceiling(
            "Cosmos DB request units",
            deployment.partitions * PARTITION_RU_PER_S / per_event,
            "physical partitions, by provisioning more RU/s",
        )
    )
    if deployment.instances * deployment.senders > AMQP_CONNECTIONS:
        found.append(Ceiling("connections of the namespace", 0.0, "fewer instances or senders"))
    return tuple(sorted(found, key=lambda ceiling: ceiling.rate))


def _relay_ceilings(demand: Demand, deployment: Deployment, costs: Costs) -> tuple[Ceiling, ...]:
    return (*_each_alone(demand, deployment, costs), _all_together(demand, deployment, costs))


def _each_alone(demand: Demand, deployment: Deployment, costs: Costs) -> tuple[Ceiling, ...]:
    costs = _with_pages(costs, deployment)
    shape, working = page_of(demand, deployment), deployment.working
    round_trip = deployment.round_trip_ms / 1000 + costs.wire
    alone = shape.per_key == 1
    turn = sum(round_trip + costs.sending(events, shape.size, alone=alone) for events in shape.sends())
    page_turns = math.ceil(shape.keys / deployment.senders)
    page_time = costs.page + page_turns * turn
    return (
        Ceiling("processor", working / shape.processor(costs), "instances, up to one a physical partition"),
        Ceiling("senders' round trips", working * deployment.senders * shape.per_key / turn, "RELAY_SENDERS"),
        Ceiling(
            "one page at a time for each physical partition",
            deployment.partitions * shape.events / page_time,
            "physical partitions, RELAY_MAX_ITEMS",
        ),
    )


@functools.cache
def _all_together(demand: Demand, deployment: Deployment, costs: Costs) -> Ceiling:
    """By simulation: seconds of work for an instance of many leases."""
    costs = _with_pages(costs, deployment)
    instance = Instance(deployment.leases, deployment.senders, deployment.round_trip_ms / 1000)
    rate = throughput(instance, page_of(demand, deployment), costs, pages=_PAGES) * deployment.working
    return Ceiling("instances, all of these together", rate, "whichever of the three is nearest")


def _with_pages(costs: Costs, deployment: Deployment) -> Costs:
    return replace(shared(costs, deployment.processor_share), page=deployment.page_ms / 1000)


def _service_bus_ceiling(demand: Demand, deployment: Deployment) -> Ceiling:
    if deployment.tier is Tier.STANDARD:
        # Sent, matched against each subscription's filter, received from each.
        credits = 1 + 2 * demand.subscriptions
        return Ceiling("Standard's 1 000 credits a second", STANDARD_CREDITS_PER_S / credits, "the tier")
    carried = (demand.size + MESSAGE_OVERHEAD) * (1 + demand.subscriptions)
    limit = deployment.units * PREMIUM_BYTES_PER_S_AND_UNIT / carried
    return Ceiling(f"{deployment.units} messaging unit(s)", limit, "messaging units")


def ru_per_event(demand: Demand) -> float:
    """Request units that an event causes in the outbox's container, the documents beside it included."""
    return (1 + demand.others) * (write_ru(demand.size) + read_ru(demand.size))


@functools.cache
def forecast(demand: Demand, deployment: Deployment, costs: Costs = MEASURED) -> Forecast:
    """What the demand takes on this deployment."""
    limits = ceilings(demand, deployment, costs)
    p50, p99 = _latency(demand, deployment, costs) if limits[0].rate > demand.rate else (None, None)
    documents = demand.rate * (1 + demand.others)
    page = page_of(demand, deployment)
    # A lease reads as soon as a page is done, and so seldom a full one: at most a page for each event.
    fullest = deployment.partitions * 1000 / (deployment.page_ms + deployment.round_trip_ms)
    pages = max(demand.rate / page.events, min(demand.rate, fullest))
    empty_polls = deployment.partitions * 1000 / deployment.poll_delay_ms
    renewals = deployment.partitions / _RENEW_S
    looks = deployment.working * deployment.partitions / _ACQUIRE_S
    return Forecast(
        ceilings=limits,
        p50_ms=p50,
        p99_ms=p99,
        ru_written=documents * write_ru(demand.size),
        ru_fed=documents * read_ru(demand.size) + pages + empty_polls,
        ru_leases=pages * _CHECKPOINT_RU + renewals * _RENEWAL_RU + looks * read_ru(_LEASE_BYTES),
        connections=deployment.working * deployment.senders,
        topic_hours=TOPIC_BYTES[deployment.tier]
        / (demand.rate * (demand.size + MESSAGE_OVERHEAD) * demand.subscriptions)
        / 3600,
        stored_bytes=demand.rate * demand.size * demand.ttl_days * _DAY_S,
    )


def _latency(demand: Demand, deployment: Deployment, costs: Costs) -> tuple[float, float]:
    costs = _with_pages(costs, deployment)
    instance = Instance(
        deployment.leases,
        deployment.senders,
        deployment.round_trip_ms / 1000,
        poll_delay=deployment.poll_delay_ms / 1000,
    )
    rate = demand.rate / deployment.working
    seconds = max(_LATENCY_EVENTS / rate, 4 * instance.poll_delay)
    found = latencies(instance, rate, costs, size=demand.size, others=demand.others, seconds=seconds, seed=_SEED)
    return found[len(found) // 2] * 1000, found[int(len(found) * 0.99)] * 1000


def plan(demand: Demand, start: Deployment, costs: Costs = MEASURED, *, headroom: float = 0.7) -> Deployment:
    """The smallest deployment, in the given one's terms, that needs at most `headroom` of each limit.

    Physical partitions follow from request units and from what the outbox stores; instances and messaging units
    grow until their limits are far enough; the tier is Standard only as long as its credits suffice.

    Raises:
        ValueError: Even one instance a physical partition, or sixteen messaging units, are too few.
    """
    wanted = demand.rate / headroom
    stored = forecast_storage(demand)
    partitions = max(
        start.partitions,
        math.ceil(wanted * ru_per_event(demand) / PARTITION_RU_PER_S),
        math.ceil(stored / PARTITION_BYTES),
    )
    tier = start.tier
    if tier is Tier.STANDARD and _service_bus_ceiling(demand, start).rate < wanted:
        tier = Tier.PREMIUM
    chosen = replace(start, partitions=partitions, tier=tier)
    return _with_instances(_with_units(chosen, demand, wanted), demand, wanted, costs)


def forecast_storage(demand: Demand) -> float:
    """Bytes of events in the outbox, at the end of their time to live."""
    return demand.rate * demand.size * demand.ttl_days * _DAY_S


def _with_units(deployment: Deployment, demand: Demand, wanted: float) -> Deployment:
    if deployment.tier is Tier.STANDARD:
        return deployment
    for units in MESSAGING_UNITS:
        chosen = replace(deployment, units=units)
        if _service_bus_ceiling(demand, chosen).rate >= wanted:
            return chosen
    raise ValueError(f"{MESSAGING_UNITS[-1]} messaging units are too few for {demand.rate:.0f} events/s")


def _with_instances(deployment: Deployment, demand: Demand, wanted: float, costs: Costs) -> Deployment:
    enough, too_few = deployment.partitions, 0
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if _suffice(replace(deployment, instances=middle), demand, wanted, costs):
            enough = middle
        else:
            too_few = middle
    chosen = replace(deployment, instances=enough)
    if not _suffice(chosen, demand, wanted, costs):
        raise ValueError(f"one instance a physical partition is too few for {demand.rate:.0f} events/s")
    return chosen


def _suffice(deployment: Deployment, demand: Demand, wanted: float, costs: Costs) -> bool:
    if any(ceiling.rate < wanted for ceiling in _each_alone(demand, deployment, costs)):
        return False
    return _all_together(demand, deployment, costs).rate >= wanted


def names(limits: Sequence[Ceiling]) -> list[str]:
    """Of the limits, in their order."""
    return [limit.name for limit in limits]
