"""Counted work: what a thousand events take on the network. These numbers are the same on every machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from azure.functions import DocumentList

from relay.backends.cosmos.backend import CosmosBackend, CosmosRelay
from relay.config.settings import Settings
from verification.bench.benchmark import Bound, Findings, Live, Plan, Table, Target
from verification.bench.broker import Broker
from verification.bench.documents import ARTICLE, TWENTY_KB, TWO_KB, Source, Workload
from verification.bench.wiretap import Wiretap, Work

SHAPES = (
    Workload(keys=100, per_key=1),
    Workload(keys=10, per_key=10),
    Workload(keys=1, per_key=100),
    Workload(keys=1, per_key=100, size=TWO_KB),
    Workload(keys=1, per_key=100, size=TWENTY_KB),
    Workload(keys=10, per_key=10, size=ARTICLE, others=0.95),
)
_EVENTS = 1000
_MOST_CONNECTIONS = 2


@dataclass(frozen=True, slots=True)
class Counted:
    """A new relay's first thousand events of one shape, and its second thousand."""

    first: Work
    second: Work


class CountedWork:
    """Sends, batches, connections, links and bytes for a thousand events of each shape."""

    name = "counted"
    about = "sends, batches, connections, links and bytes for a thousand events"

    async def run(self, plan: Plan, live: Live) -> Findings:
        rows: list[tuple[str, ...]] = []
        connections: list[float] = []
        async with Broker(plan.scratch) as broker, Wiretap(broker.port) as tap:
            for shape in SHAPES:
                live.step(f"counting the work of {shape.name}")
                counted = await count(tap, broker.settings(), shape, Source(plan.seed + len(rows)))
                rows.append(_row(shape, counted))
                connections.append(counted.first.connections)
                live.rate(counted.first.sends, "sends/1,000 events")
        columns = ("shape", "sends", "batches", "connections", "links", "KB sent", "bytes/event", "opened again")
        prose = (
            "Of a thousand events, published by a new relay with its default settings. *Opened again* is what a "
            "second thousand opens."
        )
        name = "connections for 100 keys with an event each"
        target = Target(name, tuple(connections[:1]), "", Bound.AT_MOST, _MOST_CONNECTIONS, headline=True)
        return Findings([target], [Table("Counted work", columns, tuple(rows), prose)])


async def count(tap: Wiretap, environment: Mapping[str, str], shape: Workload, source: Source) -> Counted:
    """Relay a thousand events of a shape, twice, with these settings; count what passes the tap."""
    settings = {**environment, "SERVICEBUS": tap.through(environment["SERVICEBUS"])}
    relay = CosmosBackend(Settings.from_environment(settings)).relay
    invocations = math.ceil(_EVENTS / shape.events)
    try:
        return Counted(
            await _work(tap, relay, source.invocations(shape, invocations)),
            await _work(tap, relay, source.invocations(shape, invocations)),
        )
    finally:
        await relay.close()


async def _work(tap: Wiretap, relay: CosmosRelay, invocations: Sequence[DocumentList]) -> Work:
    before = tap.work.copy()
    for documents in invocations:
        await relay.handle(documents, "counted")
    return tap.work - before


def _row(shape: Workload, counted: Counted) -> tuple[str, ...]:
    work = counted.first
    numbers = (work.sends, work.batches, work.connections, work.links, round(work.bytes / 1000))
    each = counted.second.payload_bytes / _EVENTS
    return (shape.name, *(f"{number:,}" for number in numbers), f"{each:,.0f}", str(counted.second.connections))
