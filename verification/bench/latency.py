"""From commit to subscriber: how long an event takes through the whole stack at a steady rate."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from local.stack.supervisor import Stack, StackOptions
from verification.bench.benchmark import Bound, Findings, Live, Plan, Table, Target, median, percent
from verification.bench.machine import ProcessorUse
from verification.bench.outbox import Outbox, balanced_keys
from verification.bench.subscriber import Subscriber, running_subscriber

_RATE = 300.0
_KEYS = 48
_PARTITIONS = 4
_DEFAULT_DELAY_MS = 500
_WARM_UP_S = 1.5
_ARRIVE_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Commit:
    """When an event was due to be committed, and when the commit had returned; seconds, monotonic."""

    identifier: str
    due: float
    returned: float


@dataclass(frozen=True, slots=True)
class Window:
    """The latencies of a period of steady load, in milliseconds, sorted.

    Attributes:
        committed: From the answer to the transactional batch to the message at the subscriber.
        due: From the moment the batch was due, including any delay of the writer.
        shares: The part of one core that each process used.
        rate: Events committed a second.
    """

    committed: list[float]
    due: list[float]
    shares: dict[str, float]
    rate: float


class Load:
    """Commits at random moments, a Poisson process from a seed.

    No commit waits for another's answer: a slow period delays whatever falls into it, instead of being left out of
    the figures.
    """

    def __init__(self, outbox: Outbox, keys: Sequence[str], seed: int) -> None:
        self._outbox = outbox
        self._keys = keys
        self._random = random.Random(seed)
        self._number = 0

    async def run(self, seconds: float) -> list[Commit]:
        """Commit for that long; returns once every answer has arrived."""
        commits: list[Commit] = []
        async with asyncio.TaskGroup() as tasks:
            for due in self._moments(seconds):
                if (wait := due - time.monotonic()) > 0:
                    await asyncio.sleep(wait)
                tasks.create_task(self._commit(due, commits))
        return commits

    def _moments(self, seconds: float) -> Iterator[float]:
        began = moment = time.monotonic()
        while (moment := moment + self._random.expovariate(_RATE)) < began + seconds:
            yield moment

    async def _commit(self, due: float, commits: list[Commit]) -> None:
        self._number += 1
        number = self._number
        key = self._random.choice(self._keys)
        identifier = f"{number:08}-{key}"
        await self._outbox.commit(key, identifier, number)
        commits.append(Commit(identifier, due, time.monotonic()))


class Latency:
    """The benchmark."""

    name = "latency"
    about = "commit to subscriber at 300 events a second, by poll delay"

    async def run(self, plan: Plan, live: Live) -> Findings:
        """Measure each poll delay, on four physical partitions."""
        findings, rows = Findings(), []
        delays = plan.pick(quick=(100, _DEFAULT_DELAY_MS), full=(100, _DEFAULT_DELAY_MS, 1000))
        found = await _measure(delays, plan, live)
        for delay, windows in found.items():
            rows.append(_row(delay, windows))
            findings.targets += _targets(delay, windows)
        findings.tables.append(Table("From commit to subscriber", _COLUMNS, tuple(rows), _PROSE))
        return findings


async def _measure(delays: Sequence[int], plan: Plan, live: Live) -> dict[int, list[Window]]:
    """Measure windows of steady load by poll delay in ms, each delay with a host of its own."""
    keys = list(islice(balanced_keys(_PARTITIONS), _KEYS))
    logs = plan.scratch / "latency"
    live.step(f"latency: starting the stack with {_PARTITIONS} partitions and {_KEYS} session receivers")
    options = StackOptions(logs=logs, hosts=0, cosmos_options=("--partitions", str(_PARTITIONS)), edges="off")
    async with (
        Stack(options) as stack,
        running_subscriber(stack.settings["SERVICEBUS"], keys, logs) as subscriber,
        Outbox(stack.settings["COSMOS"]) as outbox,
    ):
        load = Load(outbox, keys, plan.seed)
        found = {}
        for delay in delays:
            await stack.start_host(RELAY_POLL_DELAY_MS=str(delay))
            found[delay] = await _windows(stack, subscriber, load, delay, plan, live)
            await stack.stop_hosts()
        return found


async def _windows(
    stack: Stack, subscriber: Subscriber, load: Load, delay: int, plan: Plan, live: Live
) -> list[Window]:
    arrived = len(subscriber.arrivals)
    warm_up = await load.run(_WARM_UP_S)
    arrived += len(warm_up)
    await subscriber.until_received(arrived, within_s=_ARRIVE_WITHIN_S)
    windows = []
    seconds = plan.pick(quick=4.0, full=6.0)
    for number in range(plan.pick(quick=2, full=5)):
        live.step(f"latency: poll delay {delay} ms, window {number + 1}")
        use = ProcessorUse(
            {
                "outbox": stack.outbox.pid,
                "host": stack.hosts[0].pid,
                "broker": stack.servicebus.pid,
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
        due=sorted((at - commit.due) * 1000 for at, commit in arrivals),
        shares=shares,
        rate=len(commits) / seconds,
    )


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Return the value below which that part of a sorted, non-empty sequence lies."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]


def _targets(delay: int, windows: Sequence[Window]) -> list[Target]:
    return [
        Target(
            f"commit to subscriber, poll delay {delay} ms, p{round(fraction * 100)}",
            tuple(percentile(window.committed, fraction) for window in windows),
            "ms",
            Bound.AT_MOST,
            limit,
            headline=delay == _DEFAULT_DELAY_MS and fraction == 0.5,
        )
        for fraction, limit in ((0.5, delay / 2 + 60), (0.99, delay + 200.0))
    ]


def _row(delay: int, windows: Sequence[Window]) -> tuple[str, ...]:
    def middle(since: str, fraction: float) -> str:
        return f"{median([percentile(getattr(window, since), fraction) for window in windows]):.0f}"

    shares = "; ".join(
        f"{name} {percent(sum(window.shares[name] for window in windows) / len(windows))}"
        for name in windows[0].shares
    )
    return (
        str(delay),
        str(_PARTITIONS),
        f"{sum(window.rate for window in windows) / len(windows):.0f}",
        *(middle(since, fraction) for since in ("committed", "due") for fraction in (0.5, 0.99)),
        shares,
    )


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
    "Transactional batches of a business document and an event arrive as a Poisson process, 300 a second. The "
    "clock starts when the batch's answer has returned, or (*from due*) when the batch was due. It stops when the "
    "SDK returns the message to the subscriber, which receives and deletes, with an open session receiver for "
    f"each of {_KEYS} keys. All processes share two cores."
)
