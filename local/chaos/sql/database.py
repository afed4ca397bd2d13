"""Faults of PostgreSQL: its process, its connections, its locks, its clock, and the claims on shards."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from local.chaos.admin import NotInjected
from local.chaos.streams import TABLE
from local.stack.parts import Part

_ATTEMPTS_S = 10.0
_PAUSE_S = 0.1
# Longer than a reader waits for the lock of a shard.
_HELD_S = 11.0
_INTRUDES_S = 1.0

DATABASE_RESTARTED = "database-restarted"
DATABASE_RECOVERED = "database-recovered"
READER_TERMINATED = "reader-terminated"
WRITER_TERMINATED = "writer-terminated"
SHARD_HELD = "shard-held"
CLOCK_STEPPED_BACK = "clock-stepped-back"
CLAIM_TAKEN_BY_FORCE = "claim-taken-by-force"
POSITIONS_PRUNED = "positions-pruned"
INTRUDER_REFUSED = "intruder-refused"
INTRUDER_NOT_REFUSED = "intruder-not-refused"

# The backends of clients, by what they are; readers set no name.
_BACKENDS = """
select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
and backend_type = 'client backend' and application_name {condition} order by pid
"""
_CONDITIONS = {"terminate-readers": "= ''", "terminate-writers": "= 'writer'", "kill-backend": "<> 'fault'"}

# As if the shard had last been read in the future: what a clock that was set back leaves.
_STEP = f"""
update changefeed."state:{TABLE}" set ulid = changefeed.ulid(
    (extract(epoch from clock_timestamp()) * 1000)::bigint + %s * 1000,
    changefeed.random_bits(40), changefeed.random_bits(39))
where shard_id = %s and changefeed.ulid_part(ulid, 1, 12) < (extract(epoch from clock_timestamp()) * 1000)::bigint
returning shard_id
"""
_TAKE = f"""
update changefeed."claim:{TABLE}" set owner = 'another', epoch = epoch + 1, renewals = renewals + 1
where shard_id = %s and consumer <> 'intruder' returning shard_id
"""
_HOLD = f"""select shard_id from changefeed."state:{TABLE}" where shard_id = %s for update"""
# Everything that every consumer has read, up to the present. If nothing is due, nothing changes.
_PRUNE = f"""
select deleted from changefeed.prune_shard(
    '{TABLE}', %s, changefeed.ulid((extract(epoch from clock_timestamp()) * 1000)::bigint, 0, 0), 1000)
where deleted > 0
"""
_INTRUDER = "chaos_intruder"
_MAKE_INTRUDER = f"""
do $body$
begin
    create role {_INTRUDER};
exception when duplicate_object then null;
end
$body$
"""
_ADMIT_INTRUDER = f"""grant "changefeed.readers:{TABLE}" to {_INTRUDER}"""
# In a transaction, a read that gives positions keeps the shard's lock. Its own claim does not hold back retention.
_READ = f"""
select count(*) from changefeed."read_events:{TABLE}"(%s, '00000000-0000-0000-0000-000000000000', 1000, %s)
"""
_CLAIM = f"""
insert into changefeed."claim:{TABLE}" as c (consumer, shard_id, last_ulid, owner)
values ('intruder', %s, 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'intruder')
on conflict (consumer, shard_id) do update set epoch = c.epoch + 1
"""
_RETAIN = f"""select changefeed."retain:{TABLE}"()"""
_INTRUSIONS = tuple(
    f"""update changefeed."claim:{TABLE}" set {change} where consumer <> 'intruder' and shard_id = %s"""
    for change in (
        "last_ulid = 'ffffffff-ffff-ffff-ffff-ffffffffffff'",
        "last_ulid = '00000000-0000-0000-0000-000000000000'",
        "owner = 'intruder', epoch = epoch + 1",
        "consumer = 'intruder', role_name = current_user",
    )
)
_CONSUMER_ROLE = "CF006"


class DatabaseFaults:
    """Injects faults into the database of a stack; those of a shard into one of its feeds.

    Attributes:
        met: Number of times each edge case of the database was met.
    """

    def __init__(self, database: Part, tables: Sequence[str], shards: int, seed: int) -> None:
        """`tables` are the event tables of the feeds, and `shards` is how many each has."""
        self._tables = tables
        self._url: str = database.details["url"]
        self._data = Path(database.details["data"])
        self._shards = shards
        self._rng = random.Random(f"database-{seed}")
        self.met: Counter[str] = Counter()

    async def inject(self, kind: str, options: dict[str, Any]) -> None:
        """Inject one fault; returns when it is over. Raises NotInjected."""
        if kind in ("kill-database", "stop-database"):
            await self._end_server(signal.SIGKILL if kind == "kill-database" else signal.SIGINT)
        elif kind == "kill-backend":
            (pid, *_) = await self._backends(kind)
            await self._end(pid, DATABASE_RECOVERED)
        elif kind in _CONDITIONS:
            await self._terminate(kind)
        elif kind == "hold-shard":
            await self._hold()
        elif kind == "step-clock-back":
            await self._change(_STEP, (options["by_s"], self._shard()), CLOCK_STEPPED_BACK)
        elif kind == "prune":
            await self._prune()
        elif kind == "intrude":
            await self._intrude()
        else:
            await self._change(_TAKE, (self._shard(),), CLAIM_TAKEN_BY_FORCE)

    def _shard(self) -> int:
        return self._rng.randrange(self._shards)

    def _of_a_feed(self, statement: str) -> bytes:
        return _of(self._rng.choice(self._tables), statement)

    async def _end_server(self, number: int) -> None:
        try:
            pid = int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])
        except (OSError, ValueError) as error:
            raise NotInjected("the database is not running") from error
        await self._end(pid, DATABASE_RESTARTED, number)

    async def _end(self, pid: int, edge: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a process of the database; returns when the database can be used again."""
        async with await self._connect() as connection:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            # This connection ends with the server, or with its recovery.
            try:
                async with asyncio.timeout(_ATTEMPTS_S):
                    while True:
                        await connection.execute("select 1")
                        await asyncio.sleep(_PAUSE_S)
            except TimeoutError as error:
                raise NotInjected(f"{edge}: the database went on") from error
            except psycopg.OperationalError:
                pass  # as it should
        async with await self._connect():
            self.met[edge] += 1

    async def _terminate(self, kind: str) -> None:
        for pid in await self._backends(kind):
            await self._change("select pg_terminate_backend(%s)", (pid,), None)
        self.met[READER_TERMINATED if kind == "terminate-readers" else WRITER_TERMINATED] += 1

    async def _backends(self, kind: str) -> list[int]:
        """Return some of the backends that a fault of this kind ends."""
        async with await self._connect() as connection:
            found = await connection.execute(_BACKENDS.format(condition=_CONDITIONS[kind]))
            pids = [row[0] for row in await found.fetchall()]
        if not pids:
            raise NotInjected(f"{kind}: there is no such connection")
        return self._rng.sample(pids, min(len(pids), self._rng.randint(1, 4)))

    async def _hold(self) -> None:
        """Hold the lock of a shard for longer than readers wait for it."""
        try:
            async with await self._connect() as connection, connection.transaction():
                if not await (await connection.execute(self._of_a_feed(_HOLD), (self._shard(),))).fetchall():
                    raise NotInjected("hold-shard: the shard was never read")
                await asyncio.sleep(_HELD_S)
        except psycopg.OperationalError as error:
            raise NotInjected(f"hold-shard: {type(error).__name__}") from error
        self.met[SHARD_HELD] += 1

    async def _prune(self) -> None:
        """Delete what was read, as soon as there is anything."""
        ends = asyncio.get_running_loop().time() + _ATTEMPTS_S
        while True:
            try:
                return await self._change(_PRUNE, (self._shard(),), POSITIONS_PRUNED)
            except NotInjected:
                if asyncio.get_running_loop().time() > ends:
                    raise
                await asyncio.sleep(_PAUSE_S)

    async def _intrude(self) -> None:
        """Do what the readers' role may do, and try to change the relay's claims, which it may not."""
        table = self._rng.choice(self._tables)
        try:
            async with await self._connect() as connection:
                await connection.execute(_MAKE_INTRUDER.encode())
                await connection.execute(_of(table, _ADMIT_INTRUDER))
                await connection.execute(f"set role {_INTRUDER}".encode())
                async with connection.transaction():
                    most = self._rng.choice((None, 1, 10_000))
                    await connection.execute(_of(table, _READ), (self._shard(), most))
                    await asyncio.sleep(_INTRUDES_S)
                await connection.execute(_of(table, _CLAIM), (self._shard(),))
                await connection.execute(_of(table, _RETAIN))
                for intrusion in _INTRUSIONS:
                    await self._refused(connection, _of(table, intrusion))
        except psycopg.OperationalError as error:
            raise NotInjected(f"intrude: {type(error).__name__} of the database") from error
        except psycopg.errors.LockNotAvailable as error:
            raise NotInjected("intrude: the shard was held") from error

    async def _refused(self, connection: psycopg.AsyncConnection[Any], intrusion: bytes) -> None:
        try:
            changed = await connection.execute(intrusion, (self._shard(),))
        except psycopg.Error as error:
            if error.sqlstate != _CONSUMER_ROLE:
                raise
            self.met[INTRUDER_REFUSED] += 1
        else:
            self.met[INTRUDER_NOT_REFUSED] += changed.rowcount

    async def _change(self, statement: str, values: tuple[Any, ...], edge: str | None) -> None:
        try:
            async with await self._connect() as connection:
                changed = await (await connection.execute(self._of_a_feed(statement), values)).fetchall()
        except psycopg.OperationalError as error:
            raise NotInjected(f"{type(error).__name__} of the database") from error
        if edge is not None:
            if not changed:
                raise NotInjected(f"{edge}: nothing to change")
            self.met[edge] += len(changed)

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        """Open a connection; while the database starts again, this is tried for a while."""
        try:
            async with asyncio.timeout(_ATTEMPTS_S):
                while True:
                    try:
                        return await psycopg.AsyncConnection.connect(
                            self._url, autocommit=True, application_name="fault"
                        )
                    except psycopg.OperationalError:
                        await asyncio.sleep(_PAUSE_S)
        except TimeoutError as error:
            raise NotInjected(f"the database did not answer for {_ATTEMPTS_S:.0f} s") from error


def _of(table: str, statement: str) -> bytes:
    """Return the statement on another feed than that of TABLE."""
    return statement.replace(TABLE, table).encode()
