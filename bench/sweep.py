"""How RELAY_SENDERS and RELAY_MAX_ITEMS change an invocation: the basis of the defaults."""

from __future__ import annotations

import time

from bench.baselines.relay import TheRelay
from bench.benchmark import Findings, Live, Plan, Table, median, percent
from bench.broker import Broker
from bench.documents import Source, Workload
from bench.memory import footprint
from bench.turns import Duration, Samples, take_turns
from outbox_emulators.functions.documents import from_text

_SENDERS = (1, 4, 8, 16, 32, 48, 64, 100)
_MAX_ITEMS = (25, 100, 250, 500, 1000, 2500, 5000, 10_000)
_DELAYS = (0, 10, 30)
_KEYS = 100


class _Sized:
    """The relay with a number of senders, named after that number, so that several can take turns.

    Attributes:
        opened_s: How long it took to open them all, in seconds.
    """

    def __init__(self, senders: int, broker: Broker, source: Source) -> None:
        self.name = str(senders)
        self.opened_s = 0.0
        self._relay = TheRelay(broker.settings(RELAY_SENDERS=self.name), source)
        self.prepare = self._relay.prepare
        self.run = self._relay.run
        self.close = self._relay.close

    async def open(self) -> None:
        started = time.perf_counter()
        await self._relay.open()
        self.opened_s = time.perf_counter() - started


class Sweep:
    """Full runs only: a quick one has no target here."""

    name = "sweep"
    about = "RELAY_SENDERS and RELAY_MAX_ITEMS, from few to many (full runs only)"

    async def run(self, plan: Plan, live: Live) -> Findings:
        if not plan.full:
            return Findings()
        senders = [await _senders(delay, plan, live) for delay in _DELAYS]
        return Findings(tables=[*senders, await _max_items(plan, live)])


async def _senders(delay: int, plan: Plan, live: Live) -> Table:
    workload = Workload(keys=_KEYS, per_key=1)
    async with Broker(plan.scratch, ack_delay_ms=delay) as broker:
        source = Source(plan.seed)
        relays: list[_Sized] = []
        try:
            for senders in _SENDERS:
                live.step(f"{delay} ms: opening {senders} senders")
                relays.append(_Sized(senders, broker, source))
                await relays[-1].open()
                live.rate(relays[-1].opened_s, "s to open")
            samples = await take_turns(
                relays, workload, broker, source, repeats=5, duration=Duration(0.3), live=live
            )
        finally:
            for relay in relays:
                await relay.close()
    return Table(
        f"RELAY_SENDERS, acknowledgement after {delay} ms",
        ("RELAY_SENDERS", "sends/s", "own core", "broker's core", "µs/send", "first invocation, s"),
        tuple(_senders_row(relay, samples[relay.name]) for relay in relays),
        f"{_KEYS} keys with one event each; *first invocation* opens all senders and sends one event on each.",
    )


def _senders_row(relay: _Sized, found: Samples) -> tuple[str, ...]:
    rate, processor = median(found.rates), median(found.processor_us)
    return (
        relay.name,
        f"{rate:,.0f}",
        percent(rate * processor / 1e6),
        percent(median(found.broker_share)),
        f"{processor:.0f}",
        f"{relay.opened_s:.2f}",
    )


async def _max_items(plan: Plan, live: Live) -> Table:
    """A backlog read in pages of each size, including decoding, at 10 ms."""
    rows = []
    async with Broker(plan.scratch, ack_delay_ms=10) as broker:
        source = Source(plan.seed)
        relay = TheRelay(broker.settings(), source)
        try:
            await relay.open()
            for items in _MAX_ITEMS:
                rates, longest = await _pages(relay, source, items, live)
                live.step(f"{items} items: memory")
                memory = await footprint(broker, source, _page(items), plan.scratch)
                rows.append(
                    (
                        f"{items:,}",
                        f"{median(rates):,.0f}",
                        f"{longest * 1000:,.0f}",
                        f"{memory['whole'] / 1e6:,.1f}",
                    )
                )
        finally:
            await relay.close()
    return Table(
        "RELAY_MAX_ITEMS",
        ("RELAY_MAX_ITEMS", "events/s", "longest invocation, ms", "memory, MB"),
        tuple(rows),
        "A backlog over 100 keys of skewed popularity, acknowledged after 10 ms, in pages of that many "
        "documents of 300 bytes, including decoding by azure.functions. A retry decodes its whole page again. "
        "In the same process it sends only what was not accepted; in a new process it sends the whole page, and "
        "duplicate detection drops the copies.",
    )


def _page(items: int) -> Workload:
    return Workload(keys=min(items, _KEYS), per_key=max(1, items // _KEYS), zipf=True)


async def _pages(relay: TheRelay, source: Source, items: int, live: Live) -> tuple[list[float], float]:
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
    return rates, longest
