"""`python -m tests.telemetry.cost`: what telemetry costs, by the real exporter, as docs/telemetry.md has it.

A worker with the exporter and one without it relay the same events on a local stack. Rows and bytes are those of
all spans, as where attempts come more slowly than the sampler's five a second.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from local.stack.environment import CONTAINERS, container_argument
from outbox_relay.emulators.cosmos.provisioning import ContainerSpec, provision
from outbox_relay.emulators.cosmos.server import CosmosServer
from outbox_relay.emulators.servicebus.entities import Entities
from outbox_relay.emulators.servicebus.server import ServiceBusServer
from tests.telemetry.ingestion import Ingestion
from tests.telemetry.nursery import ROOT, Nursery
from tests.telemetry.process import running_worker
from tests.telemetry.tables import rows_of

EVENTS = 1000
WARM_UP = 20


async def measure(nursery: Nursery, connections: Mapping[str, str], events_each: int) -> None:
    """Print what 1 000 events cost in attempts of `events_each`."""
    attempts = EVENTS // events_each
    with tempfile.TemporaryDirectory() as folder:
        async with running_worker(nursery, Path(folder), dict(connections), None) as process:
            await process.ask(attempts=WARM_UP, events=events_each)
            without = await process.ask(attempts=attempts, events=events_each)
        async with (
            Ingestion() as ingestion,
            running_worker(
                nursery,
                Path(folder),
                dict(connections),
                ingestion.connection_string,
                OTEL_TRACES_SAMPLER="always_on",
            ) as process,
        ):
            await process.ask(attempts=WARM_UP, events=events_each)
            await process.ask(flush=True)
            ingestion.forget()
            with_it = await process.ask(attempts=attempts, events=events_each)
            await process.ask(flush=True)
            report(events_each, process.greeting, without, with_it, ingestion)


def report(
    events_each: int,
    greeting: Mapping[str, Any],
    without: Mapping[str, Any],
    with_it: Mapping[str, Any],
    sent: Ingestion,
) -> None:
    """Print one measurement."""
    attempts = EVENTS // events_each
    rows: Counter[str] = Counter({table: len(found) for table, found in rows_of(sent.envelopes).items()})
    added_ms = (with_it["cpu_s"] - without["cpu_s"]) / attempts * 1000
    print(f"{events_each} event(s) an attempt, {attempts} attempts:")
    print(f"  rows per 1000 events    {rows.total()}: {dict(rows)}")
    print(f"  KB per 1000 events      {sent.json_bytes / 1000:.0f}")
    print(f"  processor time          {added_ms:.2f} ms an attempt more")
    print(f"  start                   {greeting['configured_s']:.1f} s of processor time more")
    print(f"  memory                  {with_it['mb'] - without['mb']:.0f} MB more, {with_it['mb']:.0f} in all")


async def main() -> None:
    """Measure both."""
    entities = Entities.from_file(ROOT / "infra" / "emulators" / "Config.json")
    async with ServiceBusServer(entities) as servicebus, CosmosServer() as cosmos:
        provision(cosmos.account, [ContainerSpec.parse(container_argument(*spec)) for spec in CONTAINERS])
        connections = {"COSMOS": cosmos.connection_string, "SERVICEBUS": servicebus.connection_string}
        with closing(Nursery(libraries=False)) as nursery:
            for events_each in (25, 1):
                await measure(nursery, connections, events_each)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
