"""Measured points: the costs that the capacity model is built on, and what its predictions are held against."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

import orjson

from bench.benchmark import Live, Plan
from bench.broker import Broker
from bench.capacity_flow import Costs, Instance, Shape, throughput
from bench.documents import ARTICLE, TWENTY_KB, TWO_KB, Source, Workload
from bench.rivals.relay import TheRelay
from bench.turns import Duration, Samples, middle, take_turns
from outbox_emulators.functions.documents import from_text, to_text

_SINGLE = Workload(keys=100, per_key=1)
_PAIRS = Workload(keys=50, per_key=2)
_FULL_BATCHES = Workload(keys=1, per_key=100)
_LARGE = Workload(keys=1, per_key=100, size=TWENTY_KB)

# With several senders a wake-up of the event loop serves more than one of them, as it does under load.
_LOADED_SENDERS = 8
_ALONE_MS = 10
_ALONE = Workload(keys=20, per_key=1)
_CALIBRATED_ON = ((0, _LOADED_SENDERS), (0, 1), (_ALONE_MS, 1))
_DECODED = 2000


@dataclass(frozen=True, slots=True)
class Point:
    """A workload, a broker's delay and a number of senders."""

    workload: Workload
    ack_delay_ms: int
    senders: int

    @property
    def name(self) -> str:
        return f"{self.ack_delay_ms} ms {self.workload.name}, {self.senders} sender(s)"

    def predicted(self, costs: Costs, size: int) -> float:
        """Events a second by the model; `size` of a document in bytes."""
        shape = Shape(self.workload.keys, self.workload.per_key, size)
        return throughput(Instance(1, self.senders, self.ack_delay_ms / 1000), shape, costs)


@dataclass(frozen=True, slots=True)
class Compared:
    """Predictions beside what was measured at the same time, every repeat; in `unit`."""

    name: str
    predicted: tuple[float, ...]
    measured: tuple[float, ...]
    unit: str = "events/s"

    @property
    def error(self) -> float:
        """How far predictions are from what was measured, as a part of it: the median of the repeats' ratios."""
        ratios = [ours / theirs for ours, theirs in zip(self.predicted, self.measured, strict=True)]
        return abs(statistics.median(ratios) - 1)


# Each differs from what the costs are taken from (100 x 1, 50 x 2 and 1 x 100) in delay, shape, senders or size.
QUICK_POINTS = (
    Point(Workload(100, 1), 10, 8),
    Point(Workload(10, 10), 10, 32),
    Point(Workload(10, 10), 0, 16),
    Point(Workload(10, 10, size=TWO_KB), 10, 4),
)
FULL_POINTS = (
    *QUICK_POINTS,
    Point(Workload(100, 1), 30, 32),
    Point(Workload(100, 1), 10, 32),
    Point(Workload(1, 100, size=TWENTY_KB), 10, 1),
    Point(Workload(25, 4, others=0.5), 10, 8),
)


class Bench:
    """Brokers, one for each delay, and relays, one for each number of senders on them; all open all the time.

    In every repeat the costs are taken and then every point is measured, so that whatever slows this machine for a
    while slows both.
    """

    def __init__(self, points: Sequence[Point], plan: Plan, live: Live) -> None:
        self._points = points
        self._plan = plan
        self._live = live
        self._source = Source(plan.seed)
        self._brokers: dict[int, Broker] = {}
        self._relays: dict[tuple[int, int], TheRelay] = {}
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            for delay, senders in dict.fromkeys(
                (*_CALIBRATED_ON, *((p.ack_delay_ms, p.senders) for p in self._points))
            ):
                await self._open(delay, senders)
        except BaseException:
            await self._opened.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.aclose()

    async def _open(self, delay: int, senders: int) -> None:
        if delay not in self._brokers:
            broker = Broker(self._plan.scratch, ack_delay_ms=delay)
            self._brokers[delay] = await self._opened.enter_async_context(broker)
        relay = TheRelay(self._brokers[delay].settings(RELAY_SENDERS=str(senders)), self._source)
        self._opened.push_async_callback(relay.close)
        await relay.open()
        self._relays[delay, senders] = relay

    async def compare(self, repeats: int) -> tuple[Costs, list[Compared]]:
        """The costs (of each step, the median of the repeats), and every point."""
        taken: list[Costs] = []
        measured: dict[Point, list[float]] = {point: [] for point in self._points}
        for repeat in range(repeats):
            self._live.step(f"capacity: costs and {len(self._points)} points, {repeat + 1} of {repeats}")
            taken.append(await self._costs())
            for point in self._points:
                samples = await self._sample(point.ack_delay_ms, point.senders, point.workload)
                measured[point] += samples.rates
        return _middle(taken), [self._compared(point, taken, rates) for point, rates in measured.items()]

    def _compared(self, point: Point, taken: Sequence[Costs], rates: Sequence[float]) -> Compared:
        size = self._size(point.workload)
        return Compared(point.name, tuple(point.predicted(costs, size) for costs in taken), tuple(rates))

    async def _costs(self) -> Costs:
        single = await self._sample(0, _LOADED_SENDERS, _SINGLE)
        pairs = await self._sample(0, _LOADED_SENDERS, _PAIRS)
        full = await self._sample(0, 1, _FULL_BATCHES)
        large = await self._sample(0, 1, _LARGE)
        alone = await self._sample(_ALONE_MS, 1, _ALONE)
        sizes = self._size(_SINGLE), self._size(_LARGE)
        return costs_of(single, pairs, full, large, alone, sizes=sizes, document=self._decoding())

    async def _sample(self, delay: int, senders: int, workload: Workload) -> Samples:
        relay = self._relays[delay, senders]
        found = await take_turns(
            [relay],
            workload,
            self._brokers[delay],
            self._source,
            repeats=1,
            duration=Duration(self._plan.pick(quick=0.3, full=0.5)),
            live=self._live,
        )
        return found[relay.name]

    def _size(self, workload: Workload) -> int:
        """Bytes of a document's JSON text, on average."""
        batch = self._source.batch(workload)
        return round(statistics.mean(len(orjson.dumps(document)) for document in batch))

    def _decoding(self) -> float:
        """Seconds of processor that the worker's own converter takes for a document of the article's size."""
        text = to_text(self._source.batch(Workload(_DECODED, 1, size=ARTICLE)), rewrite_dates=False)
        began = time.process_time()
        from_text(text)
        return (time.process_time() - began) / _DECODED


def _middle(taken: Sequence[Costs]) -> Costs:
    steps = [asdict(costs) for costs in taken]
    return Costs(**{name: statistics.median(each[name] for each in steps) for name in steps[0]})


def costs_of(
    single: Samples,
    pairs: Samples,
    full: Samples,
    large: Samples,
    alone: Samples,
    *,
    sizes: tuple[int, int],
    document: float,
) -> Costs:
    """The costs that explain what these workloads used.

    Args:
        single: Keys of one event each, many senders.
        pairs, full, large: Batches of two events, of many, and of many that are large.
        alone: Keys of one event each, one sender, the broker answering late.
        sizes: Bytes of a document, and of one that is large.
        document: Seconds of decoding one.

    Three workloads in batches, three unknowns, once for this process and once for the broker; an event without a
    batch is measured as it is.
    """
    small, _ = sizes
    batched = (pairs, full, large)
    shares = (pairs.sends / 1000, full.sends / 1000, large.sends / 1000)
    send, event, byte = _fit([middle(each.processor_us) for each in batched], shares, sizes)
    broker = [middle(each.broker_us) * share for each, share in zip(batched, shares, strict=True)]
    broker_send, broker_event, broker_byte = _fit(broker, shares, sizes)
    own_alone, broker_alone = middle(alone.processor_us) * 1e-6, middle(alone.broker_us) * 1e-6
    own_single, broker_single = middle(single.processor_us) * 1e-6, middle(single.broker_us) * 1e-6
    return Costs(
        send=send,
        event=event,
        byte=byte,
        single=max(0.0, own_single - small * byte),
        wire=max(0.0, 1 / middle(alone.rates) - _ALONE_MS / 1000 - own_alone - broker_alone),
        wake=max(0.0, own_alone - own_single),
        broker_send=broker_send,
        broker_event=broker_event,
        broker_byte=broker_byte,
        broker_single=max(0.0, broker_single - small * broker_byte),
        broker_wake=max(0.0, broker_alone - broker_single),
        document=document,
    )


def _fit(
    microseconds: Sequence[float], sends: tuple[float, float, float], sizes: tuple[int, int]
) -> tuple[float, float, float]:
    """Seconds of each send, event and byte, from microseconds an event at so many sends an event.

    The first two workloads differ in sends alone, the last two in little but size. None is taken to be negative.
    """
    few, full, large = microseconds
    small, big = sizes
    send = max(0.0, (few - full) / (sends[0] - sends[1]))
    byte = max(0.0, (large - full - (sends[2] - sends[1]) * send) / (big - small))
    event = max(0.0, full - sends[1] * send - small * byte)
    return send * 1e-6, event * 1e-6, byte * 1e-6
