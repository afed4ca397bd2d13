"""Two Functions hosts against one, when what limits them is the round trip to Service Bus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.benchmark import TIMES, Bound, Figure, Findings, Live, Plan, Table, Target
from bench.outbox import Outbox, balanced_keys, event
from bench.stage import ELSEWHERE, ProcessorUse, Stage, StageOptions

PARTITIONS = 4
ACK_DELAY_MS = 10
_JUDGED_SENDERS = 4
_DEFAULT_SENDERS = 32
PAGE = 100
_WARM_UP_S = 30.0
_MEASURED_S = 60.0

# Rates are taken between these shares of a backlog: neither while links wake up, nor while the last page ends.
_FROM, _TO = 0.1, 0.9

# The trigger's own intervals, 13 s and 17 s, would only lengthen the preparation. Leases stay once balanced.
_QUICK_LEASES = ("--lease-acquire-ms", "300", "--lease-renew-ms", "1000", "--edges", "off")


@dataclass(frozen=True, slots=True)
class Turn:
    """One backlog relayed.

    Attributes:
        rate: Events a second, counted at the topic.
        shares: The part of one core that each process used meanwhile.
    """

    rate: float
    shares: dict[str, float]


class Group:
    """A stage with its hosts, leases balanced and every sender opened."""

    def __init__(self, hosts: int, senders: int, logs: Path) -> None:
        self.hosts = hosts
        self._senders = senders
        settings = {"RELAY_SENDERS": str(senders), "RELAY_MAX_ITEMS": str(PAGE), "RELAY_POLL_DELAY_MS": "500"}
        self._stage = Stage(
            StageOptions(
                logs=logs / f"{hosts}-hosts-{senders}-senders",
                partitions=PARTITIONS,
                ack_delay_ms=ACK_DELAY_MS,
                settings=settings,
                host_options=_QUICK_LEASES,
                subscribed=False,
            )
        )
        self._keys = balanced_keys(PARTITIONS)
        self._outbox: Outbox
        self._written = 0

    async def open(self, opened: AsyncExitStack) -> None:
        """Start everything, and send what opens all senders of all hosts."""
        await opened.enter_async_context(self._stage)
        self._outbox = await opened.enter_async_context(Outbox(self._stage.settings["COSMOS"]))
        await self._stage.start_hosts(self.hosts)
        await self._stage.until_balanced(within_s=_WARM_UP_S)
        # Each host's share of these holds at least as many keys as it has senders, at the same time.
        await self.relay(2 * self.hosts * max(self._senders, PARTITIONS))

    async def relay(self, events: int) -> Turn:
        """Write a backlog while nobody can read it, then let the hosts at it."""
        stage = self._stage
        async with stage.feed_held():
            await self._outbox.fill(list(self._take(events)))
        use = ProcessorUse(
            {"cosmos": stage.cosmos.pid, "broker": stage.servicebus.pid}
            | {f"host {number}": host.pid for number, host in enumerate(stage.hosts, 1)}
        )
        first = await self._reached(self._written + events * _FROM)
        last = await self._reached(self._written + events * _TO)
        shares = use.shares()
        self._written += events
        await stage.until_accepted(self._written, within_s=_MEASURED_S)
        (began, before), (ended, after) = first, last
        return Turn((after - before) / (ended - began) if ended > began else float("nan"), shares)

    async def _reached(self, count: float) -> tuple[float, int]:
        """The time and the topic's count when it was first seen to be at least `count`."""
        async with asyncio.timeout(_MEASURED_S):
            while (accepted := await self._stage.accepted()) < count:
                await asyncio.sleep(0.02)
        return asyncio.get_running_loop().time(), accepted

    def _take(self, events: int) -> Iterator[dict[str, Any]]:
        for number in range(events):
            key = next(self._keys)
            yield event(f"{number:06}-{key}", key)


class Hosts:
    """The benchmark."""

    name = "hosts"
    about = "Two Functions hosts against one, four leases, a broker that answers after 10 ms."

    async def run(self, plan: Plan, live: Live) -> Findings:
        """Measure one host and two in turns."""
        findings = Findings()
        rows = []
        for senders in plan.pick(quick=(_JUDGED_SENDERS,), full=(_JUDGED_SENDERS, 8, _DEFAULT_SENDERS)):
            one, two = await compare(senders, plan, live)
            ratio = tuple(theirs.rate / own.rate for own, theirs in zip(one, two, strict=True))
            figure = Figure(f"hosts/two against one, {senders} senders each", TIMES, ratio)
            if senders == _JUDGED_SENDERS:
                name = "two hosts against one, four leases, 10 ms"
                findings.targets.append(Target(name, figure, Bound.AT_LEAST, 1.8, key="hosts"))
            else:
                findings.figures.append(figure)
            for hosts, turns in ((1, one), (2, two)):
                rates = tuple(turn.rate for turn in turns)
                rated = Figure(f"hosts/{hosts} with {senders} senders", "events/s", rates)
                findings.figures.append(rated)
                rows.append(_row(hosts, senders, rated, turns))
        findings.tables.append(Table(_TITLE, _COLUMNS, tuple(rows), _PROSE))
        return findings


async def compare(senders: int, plan: Plan, live: Live) -> tuple[list[Turn], list[Turn]]:
    """Turns of one host and of two, alternating; both groups run all the time, one of them idle."""
    turns: dict[int, list[Turn]] = {1: [], 2: []}
    repeats = plan.pick(quick=3, full=7)
    # About two seconds for one host, and half of that for two.
    events = min(2400, senders * plan.pick(quick=120, full=200))
    async with AsyncExitStack() as opened:
        groups = [Group(hosts, senders, plan.scratch) for hosts in (1, 2)]
        for group in groups:
            live.step(f"{senders} senders: starting {group.hosts} host(s)")
            await group.open(opened)
        for repeat in range(repeats):
            for group in groups if repeat % 2 else reversed(groups):
                live.step(f"{group.hosts} host(s) with {senders} senders, {repeat + 1} of {repeats}")
                turn = await group.relay(events)
                turns[group.hosts].append(turn)
                live.rate(turn.rate, "events/s")
    return turns[1], turns[2]


def _row(hosts: int, senders: int, rate: Figure, turns: Sequence[Turn]) -> tuple[str, ...]:
    def share(prefix: str) -> str:
        values = [
            sum(used for name, used in turn.shares.items() if name.startswith(prefix)) / len(turns)
            for turn in turns
        ]
        return f"{sum(values):.0%}".replace("%", " %")

    ceiling = hosts * senders / ACK_DELAY_MS * 1000
    return (
        str(hosts),
        str(senders),
        f"{rate.median:.0f}",
        f"{ceiling:.0f}",
        share("host"),
        share("broker"),
        share(ELSEWHERE),
    )


_TITLE = "Two hosts against one"
_COLUMNS = (
    "hosts",
    "senders each",
    "events/s",
    "senders / 10 ms",
    "of a core: hosts",
    "of a core: broker",
    "of a core: all others",
)
_PROSE = (
    "Each event has a key of its own, so every event is a send and a round trip, and the broker answers after "
    "10 ms. The backlog is written while the change feed is held back, over keys that fill the four partitions "
    "equally; leases are balanced and all links open before the clock starts. Rates are counted at the topic "
    "between 10 % and 90 % of the backlog. The judged row has few enough senders that the round trip limits both: "
    "everything here shares two cores, and with 32 senders one host alone uses most of a core, so a second has "
    "little to add."
)
