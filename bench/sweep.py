"""How RELAY_SENDERS and RELAY_MAX_ITEMS change what an invocation takes: what the defaults are chosen by."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.benchmark import Figure, Findings, Live, Plan, Table
from bench.broker import Broker
from bench.documents import Source, Workload
from bench.memory import footprint
from bench.rivals.relay import TheRelay
from bench.turns import Duration, Samples, middle, take_turns
from outbox_emulators.functions.documents import from_text

SENDERS = (1, 4, 8, 16, 32, 48, 64, 100)
MAX_ITEMS = (25, 100, 250, 500, 1000, 2500, 5000, 10_000)
_DELAYS = (0, 10, 30)
_KEYS = 100


@dataclass(frozen=True, slots=True)
class _Pool:
    """A relay with so many senders, and how long it took to open them all, in seconds."""

    senders: int
    relay: TheRelay
    opened_s: float


class _Named:
    """The relay under a name of its own, so that several can take turns."""

    def __init__(self, pool: _Pool) -> None:
        self.name = str(pool.senders)
        self.open = pool.relay.open
        self.prepare = pool.relay.prepare
        self.run = pool.relay.run
        self.close = pool.relay.close


class Sweep:
    """Full runs only: a quick one has nothing to choose."""

    name = "sweep"
    about = "RELAY_SENDERS and RELAY_MAX_ITEMS, from few to many"

    async def run(self, plan: Plan, live: Live) -> Findings:
        findings = Findings()
        if plan.full:
            for delay in _DELAYS:
                await _senders(delay, plan, live, findings)
            await _max_items(plan, live, findings)
        return findings


async def _senders(delay: int, plan: Plan, live: Live, findings: Findings) -> None:
    workload = Workload(keys=_KEYS, per_key=1)
    async with Broker(plan.scratch, ack_delay_ms=delay) as broker:
        source = Source(plan.seed)
        pools: list[_Pool] = []
        try:
            for senders in SENDERS:
                live.step(f"{delay} ms: opening {senders} senders")
                relay = TheRelay(broker.settings(RELAY_SENDERS=str(senders)), source)
                started = time.perf_counter()
                await relay.open()
                pools.append(_Pool(senders, relay, time.perf_counter() - started))
                live.rate(pools[-1].opened_s, "s to open")
            named = [_Named(pool) for pool in pools]
            samples = await take_turns(
                named, workload, broker, source, repeats=5, duration=Duration(0.3), live=live
            )
        finally:
            for pool in pools:
                await pool.relay.close()
    rows = []
    for pool in pools:
        found = samples[str(pool.senders)]
        name = f"sweep/{delay} ms, {pool.senders} senders"
        findings.figures += [
            Figure(name, "sends/s", tuple(found.rates)),
            Figure(f"{name}, opening", "s", (pool.opened_s,)),
        ]
        rows.append(_senders_row(pool, found))
    columns = ("RELAY_SENDERS", "sends/s", "own core", "broker's core", "µs/send", "first invocation, s")
    prose = (
        f"{_KEYS} keys with one event each; *first invocation* opens all senders and sends one event over each."
    )
    findings.tables.append(Table(f"RELAY_SENDERS, acknowledgement after {delay} ms", columns, tuple(rows), prose))


def _senders_row(pool: _Pool, found: Samples) -> tuple[str, ...]:
    rate, processor = middle(found.rates), middle(found.processor_us)
    return (
        str(pool.senders),
        f"{rate:,.0f}",
        f"{rate * processor / 1e4:.0f} %",
        f"{100 * middle(found.broker_share):.0f} %",
        f"{processor:.0f}",
        f"{pool.opened_s:.2f}",
    )


async def _max_items(plan: Plan, live: Live, findings: Findings) -> None:
    """A backlog read in pages of so many documents, decoding included, at 10 ms."""
    rows = []
    async with Broker(plan.scratch, ack_delay_ms=10) as broker:
        source = Source(plan.seed)
        relay = TheRelay(broker.settings(), source)
        try:
            await relay.open()
            for items in MAX_ITEMS:
                rates, longest = await _pages(relay, source, items, live)
                live.step(f"{items} items: memory")
                workload = _page(items)
                memory = await footprint(broker, source, workload, plan.scratch)
                name = f"sweep/max items {items}"
                findings.figures += [
                    Figure(name, "events/s", rates, "10 ms, trigger decoding included"),
                    Figure(f"{name}, memory", "MB", (memory["whole"] / 1e6,)),
                ]
                rows.append(
                    (
                        f"{items:,}",
                        f"{middle(rates):,.0f}",
                        f"{longest * 1000:,.0f}",
                        f"{memory['whole'] / 1e6:,.1f}",
                        f"{items:,}",
                    )
                )
        finally:
            await relay.close()
    columns = (
        "RELAY_MAX_ITEMS",
        "events/s",
        "longest invocation, ms",
        "memory, MB",
        "documents a retry decodes again",
    )
    prose = (
        "A backlog over 100 keys of skewed popularity, acknowledged after 10 ms, in pages of so many documents "
        "of 300 bytes; decoding by azure.functions is in it. In the same process a retry decodes the whole page "
        "again and sends only what was not accepted; in a new process it sends the whole page, and duplicate "
        "detection drops what had gone."
    )
    findings.tables.append(Table("RELAY_MAX_ITEMS", columns, tuple(rows), prose))


def _page(items: int) -> Workload:
    return Workload(keys=min(items, _KEYS), per_key=max(1, items // _KEYS), zipf=True)


async def _pages(relay: TheRelay, source: Source, items: int, live: Live) -> tuple[tuple[float, ...], float]:
    workload, rates, longest = _page(items), [], 0.0
    pages = max(1, 3000 // items)
    for repeat in range(3):
        live.step(f"{items} items, {repeat + 1} of 3")
        texts = [next(source.texts(workload)) for _ in range(pages)]
        started = time.perf_counter()
        for text in texts:
            began = time.perf_counter()
            await relay.handle(from_text(text))
            longest = max(longest, time.perf_counter() - began)
        rates.append(pages * workload.events / (time.perf_counter() - started))
        live.rate(rates[-1], "events/s")
    return tuple(rates), longest
