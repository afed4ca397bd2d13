"""The side of an SQL source: its database, the workers that relay from it, and the writers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any

import psycopg

from local.chaos.history import Histories
from local.chaos.recordings import Recorded
from local.chaos.schedule import DATABASE_KINDS, RELAY_KINDS, WRITER_KINDS, Fault
from local.chaos.sql import database, recording, relays, writers
from local.chaos.streams import TABLE, Stream, table_of
from local.chaos.workload import Commit
from local.stack.parts import Part
from local.stack.supervisor import Stack
from relay.config.settings import QUARANTINE_TABLE

CLAIM_TAKEN_OVER = "claim-taken-over"

_OWN_CAUSES = {
    database.DATABASE_RESTARTED: "kill-database",
    database.DATABASE_RECOVERED: "kill-backend",
    database.READER_TERMINATED: "terminate-readers",
    database.WRITER_TERMINATED: "terminate-writers",
    database.SHARD_HELD: "hold-shard",
    database.CLOCK_STEPPED_BACK: "step-clock-back",
    database.CLAIM_TAKEN_BY_FORCE: "take-claim",
    database.POSITIONS_PRUNED: "prune",
    database.INTRUDER_REFUSED: "intrude",
    relays.RELAY_KILLED_WITHIN_A_PAGE: "kill-relay",
    relays.RELAY_FROZEN: "freeze-relay",
    relays.RELAY_STOPPED: "stop-relay",
    writers.LONG_TRANSACTION: "long-transaction",
    writers.WRITER_KILLED: "kill-writer",
    writers.COMMIT_UNCERTAIN: "lose-answer",
    writers.ROLLED_BACK: "roll-back",
    writers.TIME_HINT_WRONG: "wrong-hint",
    writers.HOSTILE_ROW: "hostile-row",
}
_OWNERS = f"""
select consumer, shard_id, owner from changefeed."claim:{TABLE}" where consumer <> 'intruder' order by 1, 2
"""
_WITHIN_S = 60.0
_PAUSE_S = 0.2
_QUARANTINED = f"select document_id, reason from {QUARANTINE_TABLE} where type = 'quarantinedEvent'"
# Every change of an owner raises the epoch: the first one of each shard, and those that faults caused.
_EPOCHS = f"""
select coalesce(sum(epoch), 0), count(*) from changefeed."claim:{TABLE}" where consumer <> 'intruder'
"""


class SqlSide:
    """See `sources.SourceSide`."""

    causes: Mapping[str, str] = _OWN_CAUSES
    known = frozenset({*_OWN_CAUSES, CLAIM_TAKEN_OVER, relays.RELAY_FROZEN_WITHIN_A_PAGE})
    parts: Sequence[Part] = ()

    def __init__(self, stack: Stack, history: Histories, seed: int, *, frozen_s: float) -> None:
        """`frozen_s` is how long a worker stays frozen, in seconds."""
        shards = int(stack.settings["SQL_SHARDS"])
        self._stack = stack
        self._feeds = {each.stream: each.sql for each in stack.streams if each.sql is not None}
        self._tables = list(dict.fromkeys(each.feed for each in self._feeds.values()))
        self._url = stack.settings["SQL"]
        self._database = database.DatabaseFaults(stack.outbox, self._tables, shards, seed)
        self._relays = relays.RelayFaults(stack, history, self._tables, seed, frozen_s=frozen_s)
        self._writers = writers.Writers(self._url, shards, history.layout, large=stack.blobs is not None)

    async def start_hosts(self, hosts: int) -> None:
        """Begin to record the changes in the outbox, and start that many workers."""
        await recording.begin(self._url, list(self._feeds.values()))
        for _ in range(hosts):
            await self._stack.start_host()

    async def write(self, commits: Iterator[Commit], history: Histories, *, pause_s: float) -> None:
        """Commit one writer's commits in order, repeating each until it is known to be committed."""
        await self._writers.write(commits, history, pause_s=pause_s)

    def lasting(self, fault: Fault) -> Coroutine[Any, Any, None] | None:
        """Return the work of a fault that takes a while, or None for one that is injected by `at_once`."""
        if fault.kind in DATABASE_KINDS or fault.kind == "take-claim":
            return self._database.inject(fault.kind, fault.options)
        if fault.kind in RELAY_KINDS:
            return self._relays.inject(fault.kind)
        return None

    async def at_once(self, fault: Fault) -> None:
        """Inject a fault by an order to the writers."""
        assert fault.kind in WRITER_KINDS, fault.kind
        self._writers.order(fault)

    async def kill(self, process: str, victim: str) -> None:
        """Kill a worker by its name: there is nothing else to kill."""
        self._relays.kill(process)

    async def recorded(self, stream: Stream) -> Recorded:
        """Return the recorded changes of a stream's events since the stack began."""
        feed = self._feeds[stream.name]
        rows = await self._rows(recording.READ)
        return recording.recorded(rows, feed.feed, feed.consumer, feed.quarantine_table)

    async def met(self) -> Counter[str]:
        """Return the number of times each edge case was met."""
        counted = [await self._rows(_EPOCHS.replace(TABLE, table)) for table in self._tables]
        raised = sum(int(epochs) - shards for ((epochs, shards),) in counted)
        over = Counter({CLAIM_TAKEN_OVER: raised - self._database.met[database.CLAIM_TAKEN_BY_FORCE]})
        return self._database.met + self._relays.met + self._writers.met + over

    async def quarantined(self, stream: Stream) -> dict[str, str]:
        """Return the reasons by the id of the quarantined document."""
        return dict(
            await self._rows(_QUARANTINED.replace(QUARANTINE_TABLE, self._feeds[stream.name].quarantine_table))
        )

    async def timeline(self, outbox: str) -> Mapping[str, Any] | None:
        """Return the stored timeline of an outbox's rules, in its stored form; None if there is none."""
        if not (await self._rows("select to_regclass('relay.rules')"))[0][0]:
            return None
        rows = await self._rows(f"select body from relay.rules where feed = '{table_of(outbox)}'")
        return json.loads(rows[0][0]) if rows else None

    async def commit_times(self, outbox: str, since: float) -> Mapping[str, int]:
        """Return the times in the positions by the ids of events, of those that were placed since then."""
        rows = await self._rows(recording.placed_since(table_of(outbox), since))
        return {identifier: recording.time_of(position) for identifier, position in rows}

    async def end_faults(self) -> None:
        """Do nothing: no fault is pending at the workers."""

    async def killed_workers(self) -> int:
        """Return 0: workers have no host that could kill them."""
        return 0

    async def owners(self) -> list[str]:
        """Return a line for each shard: its owner, and its consumer."""
        return [
            f"shard {shard} of {table}: {consumer} has the owner {owner}"
            for table in self._tables
            for consumer, shard, owner in await self._rows(_OWNERS.replace(TABLE, table))
        ]

    async def _rows(self, query: str) -> list[Any]:
        """Return the rows; while the database starts again, they are asked for again."""
        async with asyncio.timeout(_WITHIN_S):
            while True:
                try:
                    async with await psycopg.AsyncConnection.connect(self._url) as connection:
                        return await (await connection.execute(query)).fetchall()
                except psycopg.OperationalError:
                    await asyncio.sleep(_PAUSE_S)
