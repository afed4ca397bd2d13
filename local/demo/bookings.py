"""The demo's own writers: they commit bookings to accounts without a service, and a consumer adds them up."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import zip_longest
from typing import Any

from local.demo.accounts import plan
from local.demo.ledgers import Ledger, open_ledger
from local.demo.load import Pace, Progress
from local.demo.subscriber import Observer
from local.demo.tally import Tally
from outbox_relay import inbox
from outbox_relay.inbox.messages import Handler


class Bookings:
    """A load: `writers` tasks commit bookings to accounts, each to accounts of its own."""

    matches_as = "balances_match"

    def __init__(self, ledger: Ledger, *, accounts: int, events: int, batch: int, writers: int, seed: int) -> None:
        self.progress = Progress()
        self._ledger = ledger
        self._plan = plan(min(accounts, events), events, batch, seed)
        self._writers = writers
        self._committed_at: dict[tuple[str, int], float] = {}
        self._balances: dict[str, int] = {}
        self._sequences: dict[str, int] = defaultdict(int)

    async def write(self, rate: float) -> None:
        """Make every commit, at `rate` events a second in total; 0 for no limit."""
        pace = Pace(rate)
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._writers):
                tasks.create_task(self._write(number, pace))

    async def _write(self, number: int, pace: Pace) -> None:
        """Make the commits of one writer, of each of its accounts in turn."""
        for turn in zip_longest(*self._plan[number :: self._writers]):
            for commit in filter(None, turn):
                await pace.take(commit.events)
                await self._ledger.apply(commit)
                now = time.time()
                for sequence in range(commit.first, commit.first + commit.events):
                    self._committed_at[commit.account_id, sequence] = now
                self.progress.requests += 1
                self.progress.events += commit.events

    def committed_at(self, event: Mapping[str, Any]) -> float:
        """Return when the writer learnt that the event was committed, in seconds since 1970."""
        return self._committed_at[event["partitionKey"], event["sequence"]]

    def handler(self, tally: Tally) -> Handler:
        """Return the consumer: it adds up the bookings of each account, each once and in order."""
        observer = Observer(tally)

        def handle(message: inbox.Message) -> None:
            at = time.time()
            if message.sequence == self._sequences[message.key] + 1:
                self._sequences[message.key] += 1
                data = message.json()
                self._balances[message.key] = self._balances.get(message.key, 0) + data.get("amount", 0)
            observer.record(message, at)

        return handle

    async def matches(self) -> bool:
        """Return True if the consumer's balances are those that the writers have stored."""
        return self._balances == await self._ledger.balances()

    def remark(self) -> str:
        """Return what else there is to say at the end."""
        return f"{self.progress.requests} transactions on {len(self._plan)} accounts."


@asynccontextmanager
async def bookings(settings: Mapping[str, str], **options: int) -> AsyncIterator[Bookings]:
    """Open the ledger of a stack with these settings, and yield the load; `options` are those of Bookings."""
    async with open_ledger(settings) as ledger:
        yield Bookings(ledger, **options)
