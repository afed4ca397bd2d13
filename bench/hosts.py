"""Two Functions hosts against one, where the round trip to Service Bus is the limit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.benchmark import TIMES, Bound, Findings, Live, Plan, Table, Target, median, percent
from bench.outbox import Outbox, balanced_keys, event
from bench.testbed import OTHERS, ProcessorUse, Testbed, running_testbed

_PARTITIONS = 4
_ACK_DELAY_MS = 10
_JUDGED_SENDERS = 4
_DEFAULT_SENDERS = 32
_PAGE = 100
_BALANCED_WITHIN_S = 30.0
_RELAYED_WITHIN_S = 60.0

# Rates are measured between these shares of a backlog: after the links have warmed up, before the last page ends.
_FROM, _TO = 0.1, 0.9

# The trigger's own intervals, 13 s and 17 s, would only lengthen the preparation. Balanced leases stay put.
_QUICK_LEASES = ("--lease-acquire-ms", "300", "--lease-renew-ms", "1000")


@dataclass(frozen=True, slots=True)
class Turn:
    """One relayed backlog.

    Attributes:
        rate: Events a second, counted at the topic.
        shares: The part of one core that each process used.
    """

    rate: float
    shares: dict[str, float]


class Group:
    """A testbed with its hosts, leases balanced and every sender opened."""

    def __init__(self, hosts: int, senders: int) -> None:
        self.hosts = hosts
        self._senders = senders
        self._keys = balanced_keys(_PARTITIONS)
        self._testbed: Testbed
        self._outbox: Outbox
        self._written = 0

    async def open(self, resources: AsyncExitStack, logs: Path) -> None:
        """Start everything, and relay enough to open all senders of all hosts."""
        settings = {
            "RELAY_SENDERS": str(self._senders),
            "RELAY_MAX_ITEMS": str(_PAGE),
            "RELAY_POLL_DELAY_MS": "500",
        }
        self._testbed = await resources.enter_async_context(
            running_testbed(
                logs / f"{self.hosts}-hosts-{self._senders}-senders",
                partitions=_PARTITIONS,
                ack_delay_ms=_ACK_DELAY_MS,
                settings=settings,
                host_options=_QUICK_LEASES,
                subscribed=False,
            )
        )
        stack = self._testbed.stack
        self._outbox = await resources.enter_async_context(Outbox(stack.settings["COSMOS"]))
        for _ in range(self.hosts):
            await stack.start_host()
        await self._testbed.until_balanced(within_s=_BALANCED_WITHIN_S)
        # Each host's share of these has at least as many keys as the host has senders.
        await self.relay(2 * self.hosts * max(self._senders, _PARTITIONS))

    async def relay(self, events: int) -> Turn:
        """Write a backlog while the change feed is blocked, then let the hosts relay it."""
        stack = self._testbed.stack
        async with self._testbed.feed_held():
            await self._outbox.fill(list(self._take(events)))
        use = ProcessorUse(
            {"cosmos": stack.outbox.pid, "broker": stack.servicebus.pid}
            | {f"host {number}": host.pid for number, host in enumerate(stack.hosts, 1)}
        )
        began, before = await self._reached(self._written + events * _FROM)
        ended, after = await self._reached(self._written + events * _TO)
        shares = use.shares()
        self._written += events
        await self._testbed.until_accepted(self._written, within_s=_RELAYED_WITHIN_S)
        return Turn((after - before) / (ended - began) if ended > began else float("nan"), shares)

    async def _reached(self, count: float) -> tuple[float, int]:
        """When the topic's count was first seen at `count` or above, and the count."""
        async with asyncio.timeout(_RELAYED_WITHIN_S):
            while (accepted := await self._testbed.accepted()) < count:
                await asyncio.sleep(0.02)
        return asyncio.get_running_loop().time(), accepted

    def _take(self, events: int) -> Iterator[dict[str, Any]]:
        for number in range(events):
            key = next(self._keys)
            yield event(f"{number:06}-{key}", key)


class Hosts:
    """The benchmark."""

    name = "hosts"
    about = "two Functions hosts against one: four leases, a broker that answers after 10 ms"

    async def run(self, plan: Plan, live: Live) -> Findings:
        findings, rows = Findings(), []
        for senders in plan.pick(quick=(_JUDGED_SENDERS,), full=(_JUDGED_SENDERS, 8, _DEFAULT_SENDERS)):
            one, two = await _compare(senders, plan, live)
            if senders == _JUDGED_SENDERS:
                ratios = tuple(theirs.rate / own.rate for own, theirs in zip(one, two, strict=True))
                name = "two hosts against one, four leases, 10 ms"
                findings.targets.append(Target(name, ratios, TIMES, Bound.AT_LEAST, 1.8))
            rows += [_row(hosts, senders, turns) for hosts, turns in ((1, one), (2, two))]
        findings.tables.append(Table("Two hosts against one", _COLUMNS, tuple(rows), _PROSE))
        return findings


async def _compare(senders: int, plan: Plan, live: Live) -> tuple[list[Turn], list[Turn]]:
    """Alternating turns of one host and of two; both groups are up all the time, one of them idle."""
    turns: dict[int, list[Turn]] = {1: [], 2: []}
    repeats = plan.pick(quick=3, full=7)
    # About two seconds for one host, and half of that for two.
    events = min(2400, senders * plan.pick(quick=120, full=200))
    async with AsyncExitStack() as resources:
        groups = [Group(hosts, senders) for hosts in (1, 2)]
        for group in groups:
            live.step(f"{senders} senders: starting {group.hosts} host(s)")
            await group.open(resources, plan.scratch)
        for repeat in range(repeats):
            for group in groups if repeat % 2 else reversed(groups):
                live.step(f"{group.hosts} host(s) with {senders} senders, {repeat + 1} of {repeats}")
                turn = await group.relay(events)
                turns[group.hosts].append(turn)
                live.rate(turn.rate, "events/s")
    return turns[1], turns[2]


def _row(hosts: int, senders: int, turns: Sequence[Turn]) -> tuple[str, ...]:
    def share(prefix: str) -> str:
        used = [value for turn in turns for name, value in turn.shares.items() if name.startswith(prefix)]
        return percent(sum(used) / len(turns))

    return (
        str(hosts),
        str(senders),
        f"{median([turn.rate for turn in turns]):.0f}",
        f"{hosts * senders / _ACK_DELAY_MS * 1000:.0f}",
        share("host"),
        share("broker"),
        share(OTHERS),
    )


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
    "Each event has its own key, so every event is a send and a round trip. The backlog is written while the "
    "change feed is blocked, over keys that fill the four partitions equally. Leases are balanced and all links "
    "open before the clock starts. Rates are counted at the topic between 10 % and 90 % of the backlog. The "
    "target's row has few senders, so the round trip limits both: all processes share two cores, and one host "
    "with 32 senders already uses most of a core."
)
