"""The reader of an SQL outbox: claims shards, reads each of them, and hands over what others need to read.

Every process decides by itself which shards it reads, from the claims that all of them see.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from outbox_relay.changefeed import AsyncConsumer, AsyncFeed, Claim, ClaimLostError, DatabaseError, Stored
from relay.backends.sql.database import FAILURES, BoundedSession
from relay.backends.sql.memory import Memory
from relay.backends.sql.shard import Connect, Shard
from relay.backends.sql.source import Ownership, SqlBatch, now
from relay.config.settings import SqlFeed
from relay.core.errors import described, first_line
from relay.core.health import Health
from relay.core.pipeline import Relay
from relay.telemetry.stream import logger_of, working_for

if TYPE_CHECKING:
    from relay.routes.history import StreamRules

logger = logger_of(__name__)

# Number of renewals, and of looks at the others' claims, within a claim's time.
_ROUNDS = 4

# Seconds before retention first deletes. The timer runs a worker for one tick only, so it has to be less.
_RETENTION_AFTER_S = 10.0

# Seconds between two of its rounds, and maximum seconds of one deletion.
_RETENTION_EVERY_S = 60.0
_RETENTION_LIMIT_S = 60.0

# On Azure Functions, a timer starts a worker every minute. Between two of its ticks, the shards are free for
# another instance's worker, or wait for a moment.
SCHEDULE = "0 * * * * *"
_LASTS_S = 57.0


@dataclass(frozen=True, slots=True)
class Decision:
    """The next actions of a process.

    Attributes:
        take: Claims to take, as they were read.
        give: Own claims to hand over when the page under way is done, with the process that gets each.
        decline: Own claims that another process asks for and that are kept.
        ask: A claim of another process to ask for; None if there is no reason to.
    """

    take: list[Claim] = field(default_factory=list)
    give: list[tuple[Claim, str]] = field(default_factory=list)
    decline: list[Claim] = field(default_factory=list)
    ask: Claim | None = None


def decide(claims: Sequence[Claim], me: str, dead: frozenset[int]) -> Decision:
    """Decide the next actions of this process.

    `dead` are the shards whose owner has not renewed its claim for too long.

    Shards without a living owner are taken up to a fair share, the number of shards by the number of processes,
    rounded up. A process with less than the share rounded down asks one with more than that for a shard; one with
    less than the share rounded up asks one with more than that. So in the end no two differ by more than one.

    Who asks counts as a process. A request that stayed would make one of a process that may have ended since, and
    nobody would take its share: so an owner declines what it does not give.
    """
    alive = [claim for claim in claims if claim.owner is not None and claim.shard_id not in dead]
    held = Counter(claim.owner for claim in alive if claim.owner is not None)
    members = held.keys() | {me} | {claim.wanted_by for claim in alive if claim.wanted_by is not None}
    at_most = math.ceil(len(claims) / len(members))
    at_least = len(claims) // len(members)
    free = [claim for claim in claims if claim not in alive]
    take = free[: max(0, at_most - held[me])]
    if take:
        return Decision(take=take)
    requests = [(claim, claim.wanted_by) for claim in alive if claim.owner == me and claim.wanted_by is not None]
    spare = max(0, held[me] - max(at_least, 1))
    give, decline = requests[:spare], [claim for claim, _ in requests[spare:]]
    # Whoever has shards to give, or has left free ones to others, has its share.
    if held[me] >= at_most or any(claim.wanted_by == me for claim in alive):
        return Decision(give=give, decline=decline)
    enough = at_least if held[me] < at_least else at_most
    others = [claim for claim in alive if claim.wanted_by is None and held[claim.owner or ""] > enough]
    ask = max(others, key=lambda claim: held[claim.owner or ""], default=None)
    return Decision(decline=decline, ask=ask)


class Watch:
    """The claims without a renewal for `claim_s`, by this process's own clock."""

    def __init__(self, claim_s: float) -> None:
        self._claim_s = claim_s
        self._seen: dict[int, tuple[tuple[int, int], float]] = {}

    def dead(self, claims: Sequence[Claim], now_s: float) -> frozenset[int]:
        """Return the shards whose owner is taken for dead at a time on a clock that does not step."""
        dead = set()
        for claim in claims:
            version, since_s = self._seen.get(claim.shard_id, (None, now_s))
            if version != claim.version:
                self._seen[claim.shard_id] = (claim.version, now_s)
            elif claim.owner is not None and now_s - since_s >= self._claim_s:
                dead.add(claim.shard_id)
        return frozenset(dead)


class Worker:
    """Reads this process's share of the shards until it is asked to stop."""

    def __init__(
        self,
        relay: Relay[SqlBatch],
        settings: SqlFeed,
        connect: Connect,
        *,
        page_size: int,
        poll_delay_s: float,
        rules: StreamRules | None = None,
    ) -> None:
        """Create a worker.

        `connect` opens a session: it is called for every shard, and again when a session is lost.

        `page_size` is the maximum number of events of one attempt, 1 to 1000, and `poll_delay_s` the maximum
        seconds between looks at an idle shard. `rules` are those of the stream in time, which are added at the
        start.
        """
        self._rules = rules
        self.name = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._settings = settings
        self._connect = connect
        self._memory = Memory(settings.max_bytes)
        self._make_shard = partial(
            Shard,
            relay,
            settings,
            connect,
            memory=self._memory,
            stored=Stored(),
            page_size=page_size,
            poll_delay_s=poll_delay_s,
        )
        self.health = Health(settings.claim_s)
        self._watch = Watch(settings.claim_s)
        self._shards: dict[int, Shard] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._session: BoundedSession | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; then finish the pages under way, and release the shards."""
        with working_for(self._settings.label):
            await self._run(stop)

    async def _run(self, stop: asyncio.Event) -> None:
        retention = asyncio.create_task(carry_out_retention(self._connect, self._settings.feed))
        try:
            while not stop.is_set():
                if self._rules is not None:
                    await self._rules.try_to_add()
                self.health.round_ended(claims_read=await self._try_round())
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.claim_s / _ROUNDS):
                        await stop.wait()
        finally:
            retention.cancel()
            await asyncio.gather(retention, return_exceptions=True)
            await self._end()

    async def _try_round(self) -> bool:
        """Return True if the claims could be read and acted on."""
        try:
            await self._round()
        except FAILURES as error:
            logger.warning("relay_claims_unavailable: %s They are tried again.", first_line(error))
        except Exception as error:  # noqa: BLE001 - a defect must not end the shards that are read
            logger.error("relay_defect: %s. The claims are tried again.", described(error))
        else:
            return True
        await self._forget_session()
        return False

    async def _round(self) -> None:
        if self._session is None:
            self._session = BoundedSession(await self._connect(), self._settings.claim_s)
        consumer = AsyncConsumer(self._session, self._settings.feed, self._settings.consumer)
        began = now()
        claims = await consumer.claims(range(self._settings.shards))
        dead = self._watch.dead(claims, now()[0])
        for claim in claims:
            try:
                await self._keep(consumer, claim, began)
            except DatabaseError as error:
                if error.lost:
                    raise
                # The claims of the other shards are still renewed.
                logger.warning(
                    "relay_claim_unavailable shard=%d: %s It is tried again.", claim.shard_id, first_line(error)
                )
        decision = decide(claims, self.name, dead)
        for claim in decision.take:
            await self._take(consumer, claim)
        for claim, successor in decision.give:
            if claim.shard_id in self._shards:
                self._shards[claim.shard_id].stop(successor)
        await self._answer(consumer, decision)

    async def _answer(self, consumer: AsyncConsumer, decision: Decision) -> None:
        """Decline the requests that are declined, and ask for what is asked for."""
        try:
            for claim in decision.decline:
                await consumer.decline(claim)
            if decision.ask is not None:
                await consumer.ask(decision.ask, self.name)
        except ClaimLostError:
            logger.debug("a shard that was asked for has another owner by now")

    async def _keep(self, consumer: AsyncConsumer, claim: Claim, began: tuple[float, float]) -> None:
        """Renew this process's claims, start reading shards handed to it, and end those it has lost."""
        task = self._running.get(claim.shard_id)
        if task is not None and task.done():
            del self._running[claim.shard_id], self._shards[claim.shard_id]
            error = None if task.cancelled() else task.exception()
            if error is not None:
                logger.error("relay_defect shard=%d: %s. It is begun again.", claim.shard_id, described(error))
            return
        shard = self._shards.get(claim.shard_id)
        if shard is not None and (claim.owner, claim.epoch) != (self.name, shard.claim.epoch):
            shard.ownership.end()
        elif claim.owner == self.name:
            try:
                await consumer.renew(claim)
            except ClaimLostError:
                if shard is not None:
                    shard.ownership.end()
                return
            if shard is not None:
                shard.ownership.renewed(began)
            else:
                # Another process has handed it over, or this one had given it up as lost.
                self._begin(claim, began)

    async def _take(self, consumer: AsyncConsumer, claim: Claim) -> None:
        if claim.shard_id in self._shards:
            return
        began = now()
        try:
            taken = await consumer.take(claim, self.name)
        except ClaimLostError:
            return
        self._begin(taken, began)

    def _begin(self, claim: Claim, began: tuple[float, float]) -> None:
        logger.info("relay_shard_claimed shard=%d epoch=%d", claim.shard_id, claim.epoch)
        shard = self._make_shard(claim, Ownership(self._settings.claim_s, began))
        self._shards[claim.shard_id] = shard
        self._running[claim.shard_id] = asyncio.create_task(shard.run())

    async def _end(self) -> None:
        """Finish the pages under way, for no longer than the claims last without renewal."""
        for shard in self._shards.values():
            shard.stop()
        tasks = list(self._running.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._settings.claim_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._shards.clear()
        self._running.clear()
        await self._forget_session()

    async def _forget_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def carry_out_retention(connect: Connect, table: str) -> None:
    """Delete positions that are due, on sessions that nothing else waits for, until cancelled.

    The policy is stored with the feed (`python -m relay install --keep`), and the database deletes no more than it
    allows and every consumer has read.
    """
    await asyncio.sleep(_RETENTION_AFTER_S)
    while True:
        try:
            session = BoundedSession(await connect(), _RETENTION_LIMIT_S)
            try:
                while await AsyncFeed(session, table).carry_out_retention():
                    # Readers and writers go first.
                    await asyncio.sleep(0.1)
            finally:
                await session.close()
        except FAILURES as error:
            logger.warning("relay_retention_unavailable: %s It is tried again.", first_line(error))
        except Exception as error:  # noqa: BLE001 - a defect must not end retention for as long as the process lives
            logger.error("relay_defect: %s. Retention is tried again.", described(error))
        await asyncio.sleep(_RETENTION_EVERY_S)


async def read_until_next_tick(worker: Worker, lasts_s: float = _LASTS_S) -> None:
    """Publish waiting events, then wait for more; the current pages are finished when the time is over."""
    stop = asyncio.Event()
    reading = asyncio.create_task(worker.run(stop))
    try:
        await asyncio.wait((reading,), timeout=lasts_s)
    finally:
        stop.set()
        await reading
