"""The stores of the demo's accounts: Cosmos DB, written by the outbox library, and PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import uuid4

from azure.cosmos.aio import ContainerProxy

from local.demo.accounts import Account, Commit
from outbox_relay.changefeed import shard_of
from outbox_relay.outbox import UnitOfWork
from samples.contacts.settings import open_container

_TABLE = """
create schema demo;
create table demo.account (id text primary key, owner text not null, balance bigint not null)
"""
_CREATE = "insert into demo.account (id, owner, balance) values (%s, %s, 0)"
# It locks the row: events of an account take their places in the order of its commits.
_BOOK = "update demo.account set balance = balance + %s where id = %s returning balance"
_EVENT = """
with event as (
    insert into outbox.domain_event (id, partition_key, type, data, sequence)
    values (%s, %s, 'domainEvent', %s, %s)
    returning id
)
insert into changefeed."outbox:outbox.domain_event" (shard_id, id) select %s, id from event
"""
_BALANCES = "select id, balance from demo.account"


class Ledger(Protocol):
    """Stores accounts."""

    async def apply(self, commit: Commit) -> None:
        """Write an account and the events of its bookings in one transaction."""

    async def balances(self) -> dict[str, int]:
        """Return the stored balance of every account, by id."""


@asynccontextmanager
async def open_ledger(settings: Mapping[str, str]) -> AsyncIterator[Ledger]:
    """Open the ledger in the outbox that the settings name."""
    if settings.get("SQL"):
        # Only then does it need the driver.
        from psycopg_pool import AsyncConnectionPool

        async with AsyncConnectionPool(settings["SQL"], max_size=8, open=False) as pool:
            async with pool.connection() as connection:
                await connection.execute(_TABLE)
            yield _InPostgreSQL(pool, int(settings.get("SQL_SHARDS") or 1))
    else:
        async with open_container(settings) as container:
            yield _InCosmos(container)


class _InCosmos:
    def __init__(self, container: ContainerProxy) -> None:
        self._container = container

    async def apply(self, commit: Commit) -> None:
        async with UnitOfWork(self._container) as work:
            accounts = work.repository(Account)
            if commit.owner is None:
                account = await accounts.read(commit.account_id)
            else:
                account = Account(commit.owner, id=commit.account_id)
                accounts.create(account)
            for booking in commit.bookings:
                account.book(booking)
            await work.commit()

    async def balances(self) -> dict[str, int]:
        found = self._container.query_items(
            "SELECT c.id, c.data.balance FROM c WHERE c.type = @type",
            parameters=[{"name": "@type", "value": Account.document_type}],
        )
        return {each["id"]: each["balance"] async for each in found}


class _InPostgreSQL:
    def __init__(self, pool: Any, shards: int) -> None:
        self._pool = pool
        self._shards = shards

    async def apply(self, commit: Commit) -> None:
        key, now = commit.account_id, datetime.now(UTC).isoformat(timespec="microseconds")
        async with self._pool.connection() as connection:
            total = sum(booking.amount for booking in commit.bookings)
            if commit.owner is not None:
                await connection.execute(_CREATE, (key, commit.owner))
            (balance,) = await (await connection.execute(_BOOK, (total, key))).fetchone()
            balance -= total
            events: list[dict[str, Any]] = []
            if commit.owner is not None:
                events.append({"action": "AccountOpened", "createdAt": now, "owner": commit.owner})
            for booking in commit.bookings:
                balance += booking.amount
                booked = {"amount": booking.amount, "balance": balance, "text": booking.text}
                events.append({"action": "AmountBooked", "createdAt": now, **booked})
            shard = shard_of(key, self._shards)
            async with connection.cursor() as cursor:
                await cursor.executemany(
                    _EVENT,
                    [
                        (str(uuid4()), key, json.dumps(data), commit.first + order, shard)
                        for order, data in enumerate(events)
                    ],
                )

    async def balances(self) -> dict[str, int]:
        async with self._pool.connection() as connection:
            return dict(await (await connection.execute(_BALANCES)).fetchall())
