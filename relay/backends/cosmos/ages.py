"""How long the changes of the outbox container have waited that the relay's leases have not passed.

Nobody else sees a lease that is stuck: the trigger calls nobody for it, and the other leases go on. A look costs
about 3 RU for each physical partition of the lease container, which is one as a rule, and 1 RU for each of the
outbox; where something waits, the read of its oldest commit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError

from relay.backends.cosmos.containers import Containers, explaining
from relay.backends.cosmos.feed import BEGINNING, sdk_token
from relay.backends.cosmos.leases import LeasePosition, Positions, read_positions
from relay.backends.cosmos.overlaps import overlaps
from relay.config.settings import CosmosSettings, Settings
from relay.core.errors import first_line
from relay.core.remedy import render
from relay.routes.selection import DEFAULT
from relay.telemetry.gauges import LeaseAges
from relay.telemetry.stream import as_logged, logger_of, working_for

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

    from relay.routes.history import StreamRules

# Maximum seconds of a look: the next one begins a minute after it began.
_LOOK_TIMEOUT_S = 50.0

NO_LEASE = "none"
"""Lease that is reported for a range that no lease covers: nothing of it has ever been read."""

logger = logger_of(__name__)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of effective partition keys within a physical partition, and the lease furthest behind there.

    Attributes:
        bounds: The range, as the SDK gives it.
        lease: None if no lease covers it.
    """

    bounds: Mapping[str, Any]
    lease: LeasePosition | None

    @property
    def name(self) -> str:
        """The lease's token."""
        return NO_LEASE if self.lease is None else self.lease.token

    def start(self, rid: str) -> dict[str, Any]:
        """Return the SDK's options for reading what the lease has not passed; `rid` is the container's."""
        if self.lease is None or self.lease.continuation is None:
            return {"feed_range": {"Range": dict(self.bounds)}, "start_time": BEGINNING}
        return {"continuation": sdk_token(rid, self.bounds, self.lease.continuation)}


def stretches(bounds: Mapping[str, Any], positions: Positions) -> Iterator[Stretch]:
    """Divide the range of a physical partition where its leases change."""
    minimum, maximum = bounds["min"], bounds["max"]
    leases = positions.within({"Range": bounds})
    inside = {edge for each in leases for edge in (each.minimum, each.maximum) if minimum < edge < maximum}
    for begin, end in pairwise(sorted({minimum, maximum, *inside})):
        yield Stretch({**bounds, "min": begin, "max": end}, positions.last_of(begin))


class LeaseWatch:
    """Looks at every lease once, and hands the ages to the telemetry."""

    def __init__(self, settings: Settings, ages: LeaseAges, rules: StreamRules | None = None) -> None:
        """`rules`: those of the stream in time, which are added here if no event comes that needs them."""
        self._outbox = settings.in_cosmos
        self._label = settings.label
        self._ages = ages
        self._rules = rules
        # Leases of several streams have the same tokens.
        self._prefix = "" if settings.stream == DEFAULT else f"{settings.stream}/"
        self._overlapped = False

    async def look(self) -> None:
        """Look once. A failure is logged: the ages that were reported before then grow until a look succeeds."""
        with working_for(self._label):
            if self._rules is not None:
                await self._rules.try_to_add()
            await self._look()

    async def _look(self) -> None:
        # One for each look: a connection that is idle for a minute may have been cut.
        containers = Containers(self._outbox)
        try:
            async with asyncio.timeout(_LOOK_TIMEOUT_S):
                ages_s = await self._seen(containers)
        except (AzureError, OSError) as error:
            self._ages.missed()
            logger.warning(
                "relay_age_unavailable: the leases in '%s' cannot be compared with the feed of '%s': %s Check "
                "that the app may read both. It is tried again in a minute.",
                self._outbox.lease_container,
                self._outbox.container,
                first_line(error),
            )
        else:
            self._ages.seen(ages_s)
        finally:
            await containers.close()

    async def _seen(self, containers: Containers) -> dict[str, float]:
        async with containers.call() as call:
            outbox = call.container(self._outbox.container)
            leases = call.container(self._outbox.lease_container)
            positions = await read_positions(leases, outbox, prefix=self._outbox.lease_prefix, own_only=True)
            rid = str((await outbox.read())["_rid"])
            call.answered()
            ages_s: dict[str, float] = {}
            feed_ranges = [each async for each in outbox.read_feed_ranges()]
            self._warn_of_overlaps(positions, feed_ranges)
            for feed_range in feed_ranges:
                for each in stretches(feed_range["Range"], positions):
                    age_s = await _age_s(outbox, each.start(rid))
                    name = self._prefix + each.name
                    # Not below 0: `_ts` has whole seconds of the service's clock.
                    ages_s[name] = max(age_s, ages_s.get(name, 0.0))
                    call.answered()
        return ages_s

    def _warn_of_overlaps(self, positions: Positions, feed_ranges: Sequence[Mapping[str, Any]]) -> None:
        """Log leases that overlap, once until they no longer do."""
        subject = f"the lease container '{self._outbox.lease_container}'"
        findings = overlaps(subject, positions, feed_ranges)
        if not self._overlapped:
            for finding in findings:
                logger.warning(
                    "relay_leases_overlap: %s. %s", finding.what, render(finding.remedy or "", as_logged())
                )
        self._overlapped = bool(findings)


async def waiting_since(settings: CosmosSettings) -> int | None:
    """Return when the first change was committed that a stream's leases have not passed; None if nothing waits.

    Raises ServiceError.
    """
    containers = Containers(settings)
    found: list[int] = []
    try:
        with explaining(settings.lease_container):
            async with containers.call() as call:
                outbox = call.container(settings.container)
                leases = call.container(settings.lease_container)
                positions = await read_positions(leases, outbox, prefix=settings.lease_prefix, own_only=True)
                rid = str((await outbox.read())["_rid"])
                async for feed_range in outbox.read_feed_ranges():
                    call.answered()
                    for each in stretches(feed_range["Range"], positions):
                        since = await _since(outbox, each.start(rid))
                        found += [] if since is None else [since]
                        call.answered()
    finally:
        await containers.close()
    return min(found, default=None)


async def _age_s(outbox: ContainerProxy, start: dict[str, Any]) -> float:
    """Seconds since the first change after `start`; 0 if there is none, and less where the clocks differ."""
    since = await _since(outbox, start)
    return 0.0 if since is None else time.time() - since


async def _since(outbox: ContainerProxy, start: dict[str, Any]) -> int | None:
    """The time of the first change after `start`; None if there is none."""
    async for document in outbox.query_items_change_feed(max_item_count=1, **start):
        return int(document["_ts"])
    return None
