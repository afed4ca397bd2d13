"""Relays backlogs with a group of readers, and measures at what rate the topics accept them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.outbox import Outbox, event
from bench.testbed import ProcessorUse, Testbed, running_testbed
from local.stack.environment import TOPIC, Source

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
        rate: Events a second, counted at each topic that gets them; NaN where all came between two counts.
        shares: The part of one core that each process used: `outbox`, `broker`, `host 1`, ….
    """

    rate: float
    shares: dict[str, float]


class Group:
    """A testbed with its hosts, or workers of the SQL source, and every sender opened."""

    def __init__(
        self,
        keys: Iterable[str],
        *,
        source: Source = Source.COSMOS,
        hosts: int = 1,
        partitions: int,
        ack_delay_ms: int,
        settings: Mapping[str, str],
        topics: Sequence[str] = (TOPIC,),
    ) -> None:
        """`keys` are the partition keys of the events, in their order, without end. See running_testbed.

        Every event goes to each of the topics, by `settings`.
        """
        self.source = source
        self.hosts = hosts
        self._keys = iter(keys)
        self._partitions = partitions
        self._ack_delay_ms = ack_delay_ms
        self._settings = settings
        self._topics = topics
        self._testbed: Testbed
        self._outbox: Outbox
        self._written = 0

    async def open(self, resources: AsyncExitStack, logs: Path, *, warm_up: int) -> None:
        """Start everything, and relay this many events, to open all senders of all hosts."""
        self._testbed = await resources.enter_async_context(
            running_testbed(
                logs,
                source=self.source,
                partitions=self._partitions,
                ack_delay_ms=self._ack_delay_ms,
                settings=self._settings,
                host_options=_QUICK_LEASES,
                subscribed=False,
                topics=self._topics,
            )
        )
        self._outbox = await resources.enter_async_context(self._testbed.outbox())
        for _ in range(self.hosts):
            await self._testbed.stack.start_host()
        if self.source is Source.COSMOS:
            await self._testbed.until_balanced(within_s=_BALANCED_WITHIN_S)
        await self.relay(warm_up)

    async def relay(self, events: int) -> Turn:
        """Write a backlog while the readers wait, then let them relay it."""
        stack = self._testbed.stack
        await self._testbed.write_backlog(self._outbox, self._take(events))
        use = ProcessorUse(
            {"outbox": stack.outbox.pid, "broker": stack.servicebus.pid}
            | {f"host {number}": host.pid for number, host in enumerate(stack.hosts, 1)}
        )
        began, before = await self._reached(self._written + events * _FROM)
        ended, after = await self._reached(self._written + events * _TO)
        shares = use.shares()
        self._written += events
        await self._testbed.until_accepted(self._written * len(self._topics), within_s=_RELAYED_WITHIN_S)
        return Turn((after - before) / (ended - began) if after > before else float("nan"), shares)

    async def _reached(self, events: float) -> tuple[float, int]:
        """Return the time at which the topics were first seen to hold at least this many events each.

        Returns their count, too.
        """
        async with asyncio.timeout(_RELAYED_WITHIN_S):
            while (accepted := await self._testbed.accepted()) < events * len(self._topics):
                await asyncio.sleep(0.02)
        return asyncio.get_running_loop().time(), accepted

    def _take(self, events: int) -> Sequence[dict[str, Any]]:
        keys = (next(self._keys) for _ in range(events))
        return [event(f"{number:06}-{key}", key) for number, key in enumerate(keys, self._written)]
