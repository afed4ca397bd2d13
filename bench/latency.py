"""From commit to subscriber: how long an event takes through the whole stack at a steady rate."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bench.benchmark import Bound, Figure, Findings, Live, Plan, Table, Target
from bench.outbox import Outbox, balanced_keys
from bench.stage import ProcessorUse, Stage, StageOptions
from bench.subscriber import Subscriber

RATE = 300.0
"""Events committed a second."""

_KEYS = 48
_JUDGED_PARTITIONS = 4
_WARM_UP_S = 1.5
_ARRIVE_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Commit:
    """When one event was due to be committed, offered, and known to be committed; seconds, monotonic."""

    identifier: str
    due: float
    offered: float
    returned: float


@dataclass(frozen=True, slots=True)
class Window:
    """What a stretch of steady load showed; milliseconds, sorted.

    Attributes:
        committed: From the answer to the transactional batch to the message at the subscriber.
        offered: From just before the batch was sent: the write itself is in it.
        due: From the moment the batch was due, whatever kept the writer.
        shares: The part of one core that each process used.
        rate: Events committed a second.
    """

    committed: list[float]
    offered: list[float]
    due: list[float]
    shares: dict[str, float]
    rate: float


class Load:
    """Commits at random moments, as many a second on average as asked for, whether or not earlier ones are done.

    Arrivals are a Poisson process from a seed. Since none waits for another's answer, a slow stretch delays
    whatever falls into it, instead of being left out of the figures.
    """

    def __init__(self, outbox: Outbox, keys: Sequence[str], rate: float, seed: int) -> None:
        self._outbox = outbox
        self._keys = keys
        self._rate = rate
        self._random = random.Random(seed)
        self._number = 0

    async def run(self, seconds: float) -> list[Commit]:
        """Commit for so long; returns once every answer is there."""
        commits: list[Commit] = []
        async with asyncio.TaskGroup() as tasks:
            for due in self._moments(seconds):
                if (wait := due - time.monotonic()) > 0:
                    await asyncio.sleep(wait)
                tasks.create_task(self._commit(due, commits))
        return commits

    def _moments(self, seconds: float) -> Iterator[float]:
        began = moment = time.monotonic()
        while (moment := moment + self._random.expovariate(self._rate)) < began + seconds:
            yield moment

    async def _commit(self, due: float, commits: list[Commit]) -> None:
        self._number += 1
        number = self._number
        key = self._random.choice(self._keys)
        identifier = f"{number:08}-{key}"
        offered = time.monotonic()
        await self._outbox.commit(key, identifier, number)
        commits.append(Commit(identifier, due, offered, time.monotonic()))


class Latency:
    """The benchmark."""

    name = "latency"
    about = "Commit to subscriber at 300 events a second, for several poll delays."

    async def run(self, plan: Plan, live: Live) -> Findings:
        """Measure each poll delay, on four physical partitions and, in the full run, on one."""
        findings = Findings()
        rows: list[tuple[str, ...]] = []
        delays = plan.pick(quick=(100, 500), full=(100, 500, 1000))
        for partitions in plan.pick(quick=(_JUDGED_PARTITIONS,), full=(_JUDGED_PARTITIONS, 1)):
            for delay, windows in (await measure(partitions, delays, plan, live)).items():
                _add(findings, partitions, delay, windows)
                rows.append(_row(partitions, delay, windows))
        findings.tables.append(Table(_TITLE, _COLUMNS, tuple(rows), _PROSE))
        return findings


async def measure(
    partitions: int, delays: Sequence[int], plan: Plan, live: Live, *, rate: float = RATE
) -> dict[int, list[Window]]:
    """Windows of steady load by poll delay, on one stage with one subscriber and a host for each delay in turn."""
    keys = list(islice(balanced_keys(partitions), _KEYS))
    logs = Path(plan.scratch) / f"latency-{partitions}"
    live.step(f"latency: starting the stack with {partitions} partition(s) and {_KEYS} session receivers")
    async with (
        Stage(StageOptions(logs=logs, partitions=partitions)) as stage,
        Subscriber(stage.settings["SERVICEBUS"], keys) as subscriber,
        Outbox(stage.settings["COSMOS"]) as outbox,
    ):
        load = Load(outbox, keys, rate, plan.seed)
        found = {}
        for delay in delays:
            await stage.start_hosts(1, RELAY_POLL_DELAY_MS=str(delay))
            found[delay] = await _windows(stage, subscriber, load, delay, plan, live)
            await stage.stop_hosts()
        return found


async def _windows(
    stage: Stage, subscriber: Subscriber, load: Load, delay: int, plan: Plan, live: Live
) -> list[Window]:
    arrived = len(subscriber.arrivals)
    warm_up = await load.run(_WARM_UP_S)
    arrived += len(warm_up)
    await subscriber.until_received(arrived, within_s=_ARRIVE_WITHIN_S)
    windows = []
    seconds = plan.pick(quick=4.0, full=10.0)
    for number in range(plan.pick(quick=2, full=5)):
        live.step(f"latency: poll delay {delay} ms, window {number + 1}")
        use = ProcessorUse(
            {
                "Cosmos DB": stage.cosmos.pid,
                "host": stage.hosts[0].pid,
                "broker": stage.servicebus.pid,
                "subscriber": subscriber.pid,
                "writer": os.getpid(),
            }
        )
        commits = await load.run(seconds)
        shares = use.shares()
        arrived += len(commits)
        await subscriber.until_received(arrived, within_s=_ARRIVE_WITHIN_S)
        windows.append(_window(commits, subscriber, shares, seconds))
        live.rate(percentile(windows[-1].committed, 0.5), "ms, median")
    return windows


def _window(commits: list[Commit], subscriber: Subscriber, shares: dict[str, float], seconds: float) -> Window:
    arrivals = [(subscriber.arrivals[commit.identifier], commit) for commit in commits]
    return Window(
        committed=sorted((at - commit.returned) * 1000 for at, commit in arrivals),
        offered=sorted((at - commit.offered) * 1000 for at, commit in arrivals),
        due=sorted((at - commit.due) * 1000 for at, commit in arrivals),
        shares=shares,
        rate=len(commits) / seconds,
    )


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """The value below which that part of a sorted, non-empty sequence lies."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]


def _add(findings: Findings, partitions: int, delay: int, windows: Sequence[Window]) -> None:
    where = f"{delay} ms, {partitions} partition(s)"
    for fraction, limit in ((0.5, delay / 2 + 60), (0.99, delay + 200.0)):
        label = f"p{round(fraction * 100)}"
        values = tuple(percentile(window.committed, fraction) for window in windows)
        figure = Figure(f"latency/{label} {where}", "ms", values, _NOTE)
        if partitions == _JUDGED_PARTITIONS:
            name = f"commit to subscriber, poll delay {delay} ms, {label}"
            findings.targets.append(Target(name, figure, Bound.AT_MOST, limit, key="latency"))
        else:
            findings.figures.append(figure)
        for start in ("offered", "due"):
            values = tuple(percentile(getattr(window, start), fraction) for window in windows)
            findings.figures.append(Figure(f"latency/{label} {where}, from {_STARTS[start]}", "ms", values))


def _row(partitions: int, delay: int, windows: Sequence[Window]) -> tuple[str, ...]:
    def median(values: Iterator[float]) -> str:
        return f"{statistics.median(values):.0f}"

    shares = "; ".join(
        f"{name} {sum(window.shares[name] for window in windows) / len(windows):.0%}".replace("%", " %")
        for name in windows[0].shares
    )
    return (
        str(delay),
        str(partitions),
        f"{sum(window.rate for window in windows) / len(windows):.0f}",
        median(percentile(window.committed, 0.5) for window in windows),
        median(percentile(window.committed, 0.99) for window in windows),
        median(percentile(window.due, 0.5) for window in windows),
        median(percentile(window.due, 0.99) for window in windows),
        shares,
    )


_NOTE = "from the answer to the transactional batch to the message at a session receiver that was open beforehand"
_STARTS = {"offered": "before the write", "due": "when the write was due"}
_TITLE = "From commit to subscriber"
_COLUMNS = (
    "poll delay, ms",
    "partitions",
    "events/s",
    "p50, ms",
    "p99, ms",
    "p50 from due, ms",
    "p99 from due, ms",
    "of a core",
)
_PROSE = (
    "Transactional batches of a business document and an event arrive as a Poisson process, 300 a second, whether "
    "or not earlier ones are done. The clock starts when the batch's answer has returned, or (*from due*) when "
    "the batch was due, and stops when the SDK hands the message to the subscriber. It holds one session receiver "
    f"for each of the {_KEYS} keys, opened beforehand: taking up a session costs this SDK half a second, which is "
    "the consumer's affair. It receives and deletes. Writer, Cosmos DB, host, broker and subscriber are processes "
    "on the same two cores."
)
