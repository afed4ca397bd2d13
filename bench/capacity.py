"""What limits throughput: upper bounds from documented quotas and measured costs, for docs/capacity.md."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

from bench.report import Report

HEADROOM = 0.7
"""A plan uses at most this part of each limit."""

# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-throttling
_STANDARD_CREDITS_PER_S = 1000
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-performance-improvements#benchmarks
# In Microsoft's tests, without sessions and duplicate detection. Taken here as both directions together.
_BYTES_PER_S_AND_UNIT = 4_000_000
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-premium-messaging
MESSAGING_UNITS = (1, 2, 4, 8, 16)
# https://learn.microsoft.com/azure/cosmos-db/concepts-limits
_RU_PER_S_AND_PARTITION = 10_000
# https://learn.microsoft.com/azure/cosmos-db/partitioning-overview#physical-partitions
_BYTES_PER_PARTITION = 50 * 10**9
# https://learn.microsoft.com/azure/cosmos-db/understand-request-unit-consumption: by size in KB
_WRITE_RU = ((1, 4.95), (2, 6.29), (4, 6.67), (8, 7.04), (16, 9.52), (32, 11.23), (64, 22.67), (128, 48.19))
_READ_RU = ((1, 1.0), (2, 1.04), (4, 1.14), (8, 1.33), (16, 1.67), (32, 2.19), (64, 4.76), (128, 9.95))
# A message is larger than its document by about this much: properties are added, `ttl` and names left out.
_MESSAGE_OVERHEAD = 60
STORED_S = 10 * 86_400


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor time on the machine of the published benchmarks, in seconds.

    Attributes:
        single: An event that is its key's only one in a page, sent as one message.
        send, event: A batch, and each event in it.
        document: Decoding a document of any type.
    """

    single: float
    send: float
    event: float
    document: float

    @classmethod
    def of(cls, report: Report) -> Costs:
        """The costs that explain what batches of 1, 10 and 100 events used in a report."""
        tables = {table.title: table for table in report.tables}
        throughput = tables["Throughput, acknowledgement after 0 ms"]
        column = throughput.columns.index("relay µs/event")
        single, ten, hundred = (
            float(next(row[column] for row in throughput.rows if row[0] == shape)) * 1e-6
            for shape in ("100x1", "10x10", "1x100")
        )
        send = (ten - hundred) / (1 / 10 - 1 / 100)
        document = float(tables["Decoding a document of 300 bytes"].rows[0][1]) * 1e-6
        return cls(single, send, hundred - send / 100, document)


@dataclass(frozen=True, slots=True)
class Case:
    """A workload, and the deployment that relays it.

    Attributes:
        size: Bytes of an event's document.
        per_key: Events of one partition key in a page.
        others: Documents of other types per event.
        subscriptions: Of the topic, each with one filter and receiving every event.
        partitions: Physical partitions of the container, hence leases.
        instances: Of the function app.
        senders, max_items: RELAY_SENDERS, RELAY_MAX_ITEMS.
        round_trip_s: From a send to its acknowledgement.
        page_s: Reading a page of the change feed and writing its checkpoint.
        core: The part of a core that an instance's Python worker has; the Functions host uses the rest.
        units: Messaging units of a Premium namespace; 0 for Standard.
    """

    size: int = 500
    per_key: int = 1
    others: float = 1.0
    subscriptions: int = 1
    partitions: int = 4
    instances: int = 1
    senders: int = 32
    max_items: int = 1000
    round_trip_s: float = 0.010
    page_s: float = 0.020
    core: float = 0.5
    units: int = 0


@dataclass(frozen=True, slots=True)
class Limit:
    """An upper bound in events a second, and what raises it."""

    name: str
    rate: float
    remedy: str


def limits(case: Case, costs: Costs) -> list[Limit]:
    """Every limit on the rate, lowest first."""
    return sorted(
        [*relay_limits(case, costs), service_bus_limit(case), request_units_limit(case)],
        key=lambda limit: limit.rate,
    )


def relay_limits(case: Case, costs: Costs) -> list[Limit]:
    """The relay's own limits. More instances than physical partitions add nothing."""
    batch_bytes = (1024 if case.units else 256) * 1024
    sends = math.ceil(case.per_key * (case.size + _MESSAGE_OVERHEAD) / batch_bytes)
    publishing = costs.single if case.per_key == 1 else sends * costs.send + case.per_key * costs.event
    # Seconds for all events of a key in a page: of the processor, and until the last one is accepted.
    processor = (publishing + case.per_key * (1 + case.others) * costs.document) / case.core
    elapsed = sends * case.round_trip_s + publishing / case.core
    working = min(case.instances, case.partitions)
    keys = max(1, round(case.max_items / (1 + case.others) / case.per_key))
    page = case.page_s + math.ceil(keys / case.senders) * elapsed
    return [
        Limit("processor", working * case.per_key / processor, "instances, up to one per physical partition"),
        Limit("senders' round trips", working * case.senders * case.per_key / elapsed, "`RELAY_SENDERS`"),
        Limit(
            "one page at a time per physical partition",
            case.partitions * keys * case.per_key / page,
            "physical partitions, `RELAY_MAX_ITEMS`",
        ),
    ]


def service_bus_limit(case: Case) -> Limit:
    """A credit to send, and two for each subscription's filter and receipt; or the bytes of messaging units."""
    if not case.units:
        rate = _STANDARD_CREDITS_PER_S / (1 + 2 * case.subscriptions)
        return Limit("Standard's 1 000 credits a second", rate, "the tier")
    carried = (case.size + _MESSAGE_OVERHEAD) * (1 + case.subscriptions)
    return Limit(
        f"{case.units} messaging unit(s)", case.units * _BYTES_PER_S_AND_UNIT / carried, "messaging units"
    )


def request_units_limit(case: Case) -> Limit:
    """What the physical partitions can write and read."""
    rate = case.partitions * _RU_PER_S_AND_PARTITION / request_units(case)
    return Limit("Cosmos DB request units", rate, "physical partitions, by provisioning more RU/s")


def request_units(case: Case) -> float:
    """Request units per event: every document is written once and read once by the change feed.

    What a change feed read costs is not documented; a point read's is assumed.
    """
    return (1 + case.others) * (_by_size(_WRITE_RU, case.size) + _by_size(_READ_RU, case.size))


def _by_size(table: tuple[tuple[int, float], ...], size: int) -> float:
    return table[bisect_left(table, size / 1024, key=lambda row: row[0])][1]


def plan(rate: float, costs: Costs) -> Case:
    """The smallest deployment for this rate that keeps the headroom of every limit.

    Raises:
        ValueError: No deployment suffices.
    """
    wanted, case = rate / HEADROOM, Case()
    stored = rate * case.size * STORED_S / _BYTES_PER_PARTITION
    per_partition = _RU_PER_S_AND_PARTITION / request_units(case)
    case = replace(case, partitions=max(case.partitions, math.ceil(wanted / per_partition), math.ceil(stored)))
    for units in (0, *MESSAGING_UNITS):
        case = replace(case, units=units)
        if service_bus_limit(case).rate >= wanted:
            break
    for instances in range(1, case.partitions + 1):
        case = replace(case, instances=instances)
        if limits(case, costs)[0].rate >= wanted:
            return case
    raise ValueError(f"no deployment relays {rate:.0f} events/s: {limits(case, costs)[0].name}")
